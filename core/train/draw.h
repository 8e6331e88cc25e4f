// The next token of a text that a model goes on with.
#pragma once

#include <cstdint>
#include <span>

#include "lmx/train.h"

namespace lmx::train {

// One draw from softmax(logits / temperature) among the `top_k` likeliest ids from `first` on, and of these among those
// of `top_p`. `uniform` in [0, 1) decides; equal logits stand in the order of their ids.
LMX_API int32_t draw_token(std::span<const float> logits, int32_t first, const GenerateOptions& options,
                           double uniform);

}  // namespace lmx::train
