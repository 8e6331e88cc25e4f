// The results of a sweep: mean, standard deviation and number of values of each configuration. The best one is marked,
// and so are those that do not differ from it significantly.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/report/page.h"
#include "app/sweep/journal.h"

namespace lmx::app::sweep {

// Points that differ only in their seed.
struct Configuration {
  Place place;                 // values of the axes without `seed`
  std::vector<double> values;  // of its points that are done
  std::vector<State> states;   // of all its points
  bool best = false;           // it has the best mean of all configurations with values
  bool within_noise = false;   // its mean does not differ from the best one significantly
  double mean() const;
  std::string outcomes() const;  // "3 done", "2 done, 1 diverged", "1 waiting"
};

struct Summary {
  std::string recipe;  // the plan's name
  Metric metric;
  std::vector<Axis> axes;  // without `seed`
  bool seeds = false;
  std::vector<Configuration> configurations;
};
Summary summarise(const Plan& plan, const std::vector<State>& states);

std::string csv(const Summary& summary);       // one line per configuration, all digits, the values of all seeds
std::string markdown(const Summary& summary);  // the same for reading; two axes also give a grid
std::string latex(const Summary& summary);     // a tabular for the package booktabs
std::string text(const Summary& summary);      // for a terminal
// `sweep`: its folder. docs/json.md describes the keys.
nlohmann::ordered_json json(const Summary& summary, const std::string& sweep);

// Five significant digits.
std::string number_text(double value);

// The data of a sweep for `lmx report`.

struct SweepReport {
  report::SweepView view;
  std::vector<report::Report> runs;  // runs of the points that have records
  Summary summary;                   // of its configurations
};

// Reads the folder of a sweep, finished or not. UserError: no sweep there, or a damaged one.
SweepReport read_sweep(const std::string& directory);

}  // namespace lmx::app::sweep
