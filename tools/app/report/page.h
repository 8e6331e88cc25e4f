// Creates one self-contained HTML file about runs or a sweep: no network, light and dark themes, below 2 MB.
#pragma once

#include <string>
#include <vector>

#include "app/report/report.h"

namespace lmx_cli::reports {

// The points of a sweep, for its heat map and its parallel axes.
struct SweepView {
  struct Axis {
    std::string name;
    std::vector<std::string> values;
  };
  struct Point {
    std::vector<std::string> place;  // a value of each axis
    std::string outcome;             // done, diverged, failed ...
    double value = 0;                // of the metric; NaN if there is none
    int64_t run = -1;                // index of its run in the page; -1: it has no run
  };
  std::string metric;
  bool lower_is_better = true;
  std::vector<Axis> axes;
  std::vector<Point> points;
};

// Returns the page; `title` is its heading, `sweep` may be null. Until the page fits, curves are thinned, then the
// curves of all but the best runs are left out, then all but the best runs. The page reports this. A browser reads the
// page again every `refresh_s` seconds; 0: never.
std::string page(const std::string& title, const std::vector<Report>& runs, const SweepView* sweep,
                 int64_t refresh_s = 0);

}  // namespace lmx_cli::reports
