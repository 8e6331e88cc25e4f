// The losses that are built into lmx.
#pragma once

#include "lmx/loss.h"
#include "nn/component.h"

namespace lmx::losses {

using Entry = component::Entry<LossFactory>;
// All losses that are built in.
const std::vector<Entry>& entries();
// The name that a recipe without `loss:` has.
inline constexpr const char* kUsual = "full_softmax";

Entry full_softmax();
Entry sampled_softmax();
Entry two_stage_softmax();

}  // namespace lmx::losses
