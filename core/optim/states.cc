#include "optim/states.h"

#include <algorithm>
#include <utility>

#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx::optim {
namespace {

// The tensors of one parameter; none if `state` has none of them.
Tensors load_one(const std::string& optimizer, Context& ctx, const std::string& param, const Tensor& value,
                 const StateDict& state, const States& states) {
  Tensors tensors;
  std::string absent;
  for (const State& s : states) {
    const std::string name = str(param, '.', s.name);
    const auto it = state.find(name);
    if (it == state.end()) {
      absent = name;
      continue;
    }
    if (it->second.shape() != s.shape || it->second.dtype() != s.type) {
      const bool alike = s.shape == value.shape() && s.type == value.dtype();
      throw UserError(str("[", optimizer, "] state '", name, "' is ", describe(it->second), ", the parameter ",
                          describe(value), alike ? "" : str(" needs ", s.shape, ' ', name_of(s.type))));
    }
    tensors.push_back(ctx.empty(s.shape, s.type, MemClass::optimizer));
    copy_values(tensors.back(), it->second);
  }
  if (!tensors.empty() && !absent.empty()) throw UserError(str("[", optimizer, "] state '", absent, "' is missing"));
  return tensors;
}

}  // namespace

std::map<std::string, Tensors> load_states(const std::string& optimizer, Context& ctx, const ParameterStore& params,
                                           const StateDict& state, const StatesOf& states_of) {
  std::vector<std::string> known;
  std::map<std::string, Tensors> loaded;
  size_t used = 0;
  for (const std::string& param : params.names()) {
    const Tensor& value = params.at(param).value();
    const States states = states_of(value);
    for (const State& s : states) known.push_back(str(param, '.', s.name));
    Tensors tensors = load_one(optimizer, ctx, param, value, state, states);
    used += tensors.size();
    if (!tensors.empty()) loaded.emplace(param, std::move(tensors));
  }
  if (used == state.size()) return loaded;
  for (const auto& [name, tensor] : state)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(
          str("[", optimizer, "] state '", name, "' belongs to no parameter's slot", did_you_mean(name, known)));
  return loaded;
}

std::string param_of_slot(const std::string& slot, const std::function<bool(const std::string&)>& known) {
  for (size_t dot = slot.rfind('.'); dot != std::string::npos && dot > 0; dot = slot.rfind('.', dot - 1))
    if (std::string param = slot.substr(0, dot); known(param)) return param;
  return {};
}

}  // namespace lmx::optim
