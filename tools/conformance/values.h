// Values of tensors in the host's memory, for comparisons.
#pragma once

#include "lmx/tensor.h"

namespace lmx_cli::check {

// Element i of an f32 or f64 tensor.
double at(const lmx::Tensor& t, int64_t i);

// Returns the largest difference of two tensors' elements, divided by the largest element; infinite if a size differs
// or an element is not finite.
double difference(const lmx::Tensor& a, const lmx::Tensor& b);

// Returns whether shape, type and all bytes are equal.
bool same_bytes(const lmx::Tensor& a, const lmx::Tensor& b);

// An f32 or f64 tensor of normal random values with this standard deviation, which depend on the seed alone.
lmx::Tensor normal_values(lmx::Shape shape, lmx::DType type, uint64_t seed, double deviation = 1);

}  // namespace lmx_cli::check
