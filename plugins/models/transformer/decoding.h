// Generates translations and texts token by token (Decoding of lmx/model.h).
#pragma once

#include <memory>
#include <vector>

#include "lmx/decoding.h"
#include "lmx/model.h"
#include "network.h"

namespace lmx::transformer {

std::unique_ptr<Decoding> start_decoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                         const Tensor& source, const std::vector<int64_t>& lengths);

// Texts of a language model.
std::unique_ptr<Decoding> start_text(const Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                     int64_t rows);

}  // namespace lmx::transformer
