#include "app/inference/state_unit.h"

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::train {
namespace {

// Compares layer numbers in names that differ only in this number: the longer number is the higher one.
bool is_higher(const std::string& name, const std::string& other) {
  return name.size() != other.size() ? name.size() > other.size() : name > other;
}

}  // namespace

std::string state_name(const ModelState& state, const std::string& wanted) {
  if (state.empty())
    throw UserError(str("[state] this run's model keeps no state from token to token, so there is no ", wanted,
                        " state to look at"));
  if (state.contains(wanted)) return wanted;
  std::vector<std::string> names;
  std::string cell, hidden;  // of the last layer
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    if (name.ends_with(".c") && is_higher(name, cell)) cell = name;
    if ((name.ends_with(".h") || name.ends_with(".s")) && is_higher(name, hidden)) hidden = name;
  }
  if (cell.empty()) cell = hidden;
  const std::string found = wanted == "cell" ? cell : wanted == "hidden" ? hidden : "";
  if (!found.empty()) return found;
  throw UserError(str("[state] this run's model has no ", wanted, " state", did_you_mean(wanted, names), "; it has ",
                      config::join(names)));
}

int64_t state_units(const ModelState& state, const std::string& name, int64_t unit) {
  const Tensor& tensor = state.at(name);
  const int64_t units = tensor.dim(0) > 0 ? tensor.numel() / tensor.dim(0) : 0;
  if (unit >= units || unit < -1)
    throw UserError(str("[state] ", name, " has units 0 to ", units - 1, ", no unit ", unit));
  return units;
}

}  // namespace lmx::train
