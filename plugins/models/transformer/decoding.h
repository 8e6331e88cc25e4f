// Generates translations and texts token by token (Decoding of lmx/model.h).
#pragma once

#include <memory>
#include <vector>

#include "lmx/model.h"
#include "network.h"

namespace lmx::transformer {

std::unique_ptr<Decoding> start_decoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                         const Tensor& source, const std::vector<int64_t>& lengths);

// Texts of a language model. Each layer caches the keys and values of all positions: rows * positions * 2 d values.
std::unique_ptr<Decoding> start_text(const Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                     int64_t rows);

// `ctx` for inference: no gradients are recorded, and there is no dropout.
inline Context silent(const Context& ctx) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  return quiet;
}

}  // namespace lmx::transformer
