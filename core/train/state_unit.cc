#include "train/state_unit.h"

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::train {

std::string state_name(const ModelState& state, const std::string& wanted) {
  if (state.empty())
    throw UserError(str("[state] this run's model keeps no state from token to token, so there is no ", wanted,
                        " state to look at"));
  if (state.contains(wanted)) return wanted;
  std::vector<std::string> names;
  std::string last;  // of equal stems the longer number is the higher one
  const auto fits = [&](const std::string& name) {
    if (wanted == "cell") return name.ends_with(".c");
    return wanted == "hidden" && (name.ends_with(".h") || name.ends_with(".s"));
  };
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    if (!fits(name)) continue;
    if (last.empty() || name.size() > last.size() || (name.size() == last.size() && name > last)) last = name;
  }
  if (!last.empty()) return last;
  const std::string listed = config::join(names);
  names.insert(names.end(), {"cell", "hidden"});
  throw UserError(
      str("[state] this run's model has no ", wanted, " state", did_you_mean(wanted, names), "; it has ", listed));
}

int64_t state_units(const ModelState& state, const std::string& name, int64_t unit) {
  const Tensor& tensor = state.at(name);
  const int64_t units = tensor.dim(0) > 0 ? tensor.numel() / tensor.dim(0) : 0;
  if (unit >= units || unit < -1)
    throw UserError(str("[state] ", name, " has units 0 to ", units - 1, ", no unit ", unit));
  return units;
}

}  // namespace lmx::train
