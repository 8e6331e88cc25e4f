// For tests of what ops say to operands that do not fit.
#pragma once

#include <functional>

#include "lmx/error.h"
#include "lmx/ops.h"
#include "test.h"

namespace lmx::testing {

inline Var zeros(Shape s, DType type = DType::f32) {
  return Var(Tensor::zeros(Allocator::cpu(), s, type));
}

// The UserError that `f` throws, or "no error".
inline std::string message(const std::function<void(Context&)>& f) {
  Context ctx;
  return lmx_test::user_error([&] { f(ctx); });
}

}  // namespace lmx::testing
