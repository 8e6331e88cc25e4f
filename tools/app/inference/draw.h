// Samples the next token of a text (temperature, top-k, top-p).
#pragma once

#include <cstdint>
#include <span>

#include "app/inference/generate.h"
#include "recipe/recipe.h"

namespace lmx::train {

// Samples an id >= `first` from softmax(logits / temperature); temperature 0 chooses the likeliest id. Only the `top_k`
// likeliest ids are candidates (0: all), and of these only the likeliest ids whose probabilities sum up to `top_p` (1:
// all). `uniform` in [0, 1) is the random number. Of two equal logits, the smaller id counts as the likelier. REQUIRES:
// first < logits.size().
int32_t draw_token(std::span<const float> logits, int32_t first, const GenerateOptions& options, double uniform);

}  // namespace lmx::train
