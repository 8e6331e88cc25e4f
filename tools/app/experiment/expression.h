// Formulas of an experiment's file: numbers, names, + - * / ^ and functions; and what was measured in cells.
//
//   2 * V * D * 4 * (G - 1)                  names are constants, and the axes' values where a cell is meant
//   memory[dense, 24] / memory[unique, 24]   a measure at the cells that these axis values choose; the mean where an
//                                            averaged axis is left open
//   slope(memory[dense], G)                  over the axis that is left open; exponent(...) in log-log coordinates
//   spread(ppl[all])  most(...)  least(...)  over all cells that are chosen: standard deviation, maximum, minimum
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx_cli::experiments {

// One measured value, where it was measured.
struct Sample {
  double x = 0;  // the asked axis' value; 0 where none was asked for
  double value = 0;
};

// What names mean. Failing to know one is a UserError without a place, which evaluate() adds.
class Scope {
 public:
  virtual ~Scope() = default;
  virtual double variable(const std::string& name) const = 0;
  // The measured values of `measure` in the cells that `selection` chooses ("dense", "G=24"). `axis`: whose value
  // each sample's x is, the only one that may stay open beside averaged ones; "": none may; "*": all may, without x.
  virtual std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                                     const std::string& axis) const = 0;
};

// The value of the formula that `node` holds. UserError with file:line:column: what is no formula, unknown names.
double evaluate(const lmx::Node& node, const std::string& path, const Scope& scope);

double mean(const std::vector<Sample>& samples);
// Standard deviation of a sample (n - 1); 0 of a single value.
double spread(const std::vector<Sample>& samples);

}  // namespace lmx_cli::experiments
