// The state tensors of optimizers, by parameter.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lmx/parameters.h"

namespace lmx::optim {

// A state tensor of a parameter, which a checkpoint stores as "<parameter>.<name>".
struct State {
  const char* name;
  Shape shape;
  DType type;
  bool rows = true;  // its rows belong to those of the parameter
};
using States = std::vector<State>;
// The states of a parameter with this value.
using StatesOf = std::function<States(const Tensor& value)>;
using Tensors = std::vector<Tensor>;

// The tensors of each parameter that has some in `state`. UserError that begins with "[optimizer]": a tensor that is
// unknown, missing although the parameter has others, or of another shape or type.
std::map<std::string, Tensors> load_states(const std::string& optimizer, Context& ctx, const ParameterStore& params,
                                           const StateDict& state, const StatesOf& states_of);

// The parameter of a slot "<parameter>.<slot>": the longest such name that `known` accepts, or "" if there is none.
std::string param_of_slot(const std::string& slot, const std::function<bool(const std::string&)>& known);

}  // namespace lmx::optim
