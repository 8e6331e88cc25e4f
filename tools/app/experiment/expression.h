// Formulas of an experiment's file: numbers, names, + - * / ^ and functions; and measured values of cells.
//
//   2 * V * D * 4 * (G - 1)                  names are constants and, in a formula for a cell, its axis values
//   memory[dense, 24] / memory[unique, 24]   a measure at the cells with these axis values; the mean over an averaged
//                                            axis without a value
//   slope(memory[dense], G)                  over an axis without a value; exponent(...) in log-log coordinates
//   spread(ppl[all])  most(...)  least(...)  over all selected cells: standard deviation, maximum, minimum
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::experiment {

// One measured value, and its position on an axis.
struct Sample {
  double x = 0;  // value of the requested axis; 0 if none was requested
  double value = 0;
};

// The meaning of names in formulas. An unknown name is a UserError without a position, which evaluate() adds.
class Scope {
 public:
  virtual ~Scope() = default;
  virtual double variable(const std::string& name) const = 0;
  // Returns the measured values of `measure` in the cells that `selection` chooses ("dense", "G=24"). `axis` is the
  // axis that gives each sample's x. Apart from averaged axes, only this one may have no value in the selection; "":
  // none may; "*": all may, and x is unused.
  virtual std::vector<Sample> select(const std::string& measure, const std::vector<std::string>& selection,
                                     const std::string& axis) const = 0;
};

// An error of a formula at a place of its file.
class FormulaError : public UserError {
 public:
  // `place`: with which the message begins.
  FormulaError(const std::string& place, const std::string& reason) : UserError(place + reason), reason_(reason) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// Evaluates the formula in `node`. FormulaError with file:line:column: an invalid formula, unknown names.
double evaluate(const Node& node, const std::string& path, const Scope& scope);

// Returns the names of variables and measures in a formula, without those of functions and of selections in brackets.
std::vector<std::string> names_in(const std::string& formula);

// Returns NaN if there are no samples.
double mean(const std::vector<Sample>& samples);
// Returns the standard deviation of a sample (n - 1); 0 for a single value.
double spread(const std::vector<Sample>& samples);

}  // namespace lmx::app::experiment
