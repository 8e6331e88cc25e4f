// One self-contained HTML file about runs, or about a sweep: no network, light and dark, below 2 MB.
#pragma once

#include <string>
#include <vector>

#include "app/report/report.h"

namespace lmx_cli::reports {

// The points of a sweep, as its heat map and its parallel axes show them.
struct SweepView {
  struct Axis {
    std::string name;
    std::vector<std::string> values;
  };
  struct Point {
    std::vector<std::string> place;  // a value of each axis
    std::string outcome;             // done, diverged, failed ...
    double value = 0;                // of the metric; NaN without
    int64_t run = -1;                // index of its run in the page; -1: it left none
  };
  std::string metric;
  bool lower_is_better = true;
  std::vector<Axis> axes;
  std::vector<Point> points;
};

// `title` stands above. Until the page fits, curves are thinned, then those of all but the best runs left out, then all
// but the best runs, which the page says; `sweep` may be null.
std::string page(const std::string& title, const std::vector<Report>& runs, const SweepView* sweep);

}  // namespace lmx_cli::reports
