// Translations and texts token by token (Decoding of lmx/model.h).
#pragma once

#include <memory>
#include <vector>

#include "lmx/model.h"
#include "network.h"

namespace lmx::transformer {

std::unique_ptr<Decoding> start_decoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                         const Tensor& source, const std::vector<int64_t>& lengths);

// Texts of a language model, which keep the keys and values of their positions: rows * positions * 2 d values a layer.
std::unique_ptr<Decoding> start_text(const Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                     int64_t rows);

// `ctx` for inference: nothing is recorded, nothing is dropped.
inline Context silent(const Context& ctx) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  return quiet;
}

}  // namespace lmx::transformer
