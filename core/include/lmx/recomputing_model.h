// Activation checkpointing, for estimates of time: an optional interface of models (lmx/model.h).
#pragma once

#include "lmx/model.h"

namespace lmx {

// A model whose backward computes a part of forward a second time, because forward does not keep its results.
class LMX_API RecomputingModel {
 public:
  virtual ~RecomputingModel();
  // Whether backward computes this product of Model::products() once more, beside its own two products.
  virtual bool recomputes(const Product& product) const = 0;
  // Activation bytes, for each token, that backward needs and computes again. Those that forward keeps are
  // Model::activation_bytes_per_token().
  virtual int64_t recomputed_bytes_per_token(DType compute) const = 0;
};

}  // namespace lmx
