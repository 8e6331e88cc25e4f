#include "nn/state_dict.h"

#include <utility>

#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx {

std::vector<std::string> names_of(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs) names.push_back(spec.name);
  return names;
}

void load_parameters(ParameterStore& params, const StateDict& values, const std::string& from) {
  for (const std::string& name : params.names()) {
    const auto found = values.find(name);
    if (found == values.end())
      throw UserError(str("[resume] ", from, " has no parameter ", name, ", which this recipe's model needs"));
    Var& var = params.at(name);
    if (found->second.shape() != var.shape() || found->second.dtype() != var.value().dtype())
      throw UserError(str("[resume] parameter ", name, " is ", describe(found->second), " in ", from, " and ",
                          describe(var.value()), " in this recipe; resume with the recipe and overrides of that run"));
    if (std::as_const(var).value().raw() != found->second.raw()) copy_values(var.value(), found->second);
    var.changed();
  }
  for (const auto& [name, t] : values)
    if (!params.contains(name))
      throw UserError(
          str("[resume] ", from, " has a parameter ", name, " ", t.shape(), ", which this recipe's model lacks"));
}

StateDict parameter_values(const ParameterStore& params) {
  StateDict values;
  for (const std::string& name : params.names()) values.emplace(name, params.at(name).value());
  return values;
}

StateDict with_prefix(const StateDict& all, const std::string& prefix) {
  StateDict part;
  for (auto it = all.lower_bound(prefix); it != all.end() && it->first.starts_with(prefix); ++it)
    part.emplace(it->first.substr(prefix.size()), it->second);
  return part;
}

void add_with_prefix(StateDict& all, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, t] : part) all.emplace(prefix + name, t);
}

}  // namespace lmx
