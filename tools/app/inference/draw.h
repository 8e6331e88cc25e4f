// The next token of a text that a model goes on with.
#pragma once

#include <cstdint>
#include <span>

#include "app/inference/generate.h"
#include "recipe/recipe.h"

namespace lmx::train {

// One draw from softmax(logits / temperature) (0: the likeliest) among the `top_k` likeliest ids from `first` on (0:
// all of them), and of these among the likeliest that have the probability `top_p` together (1: all). `uniform` in [0,
// 1) decides; of equal logits the lesser id is the likelier. REQUIRES: first < logits.size().
int32_t draw_token(std::span<const float> logits, int32_t first, const GenerateOptions& options, double uniform);

}  // namespace lmx::train
