// oneDNN behind a few names; included by the CPU's GEMM files alone.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "lmx/context.h"

namespace lmx {

// The CPU engine; a stateless handle that the whole process shares.
const dnnl::engine& cpu_engine();

// A matrix product as oneDNN runs it. Immutable; execute() is thread-safe (the scratchpad is the caller's).
class DnnlMatmul {
 public:
  struct Key {
    int64_t m, n, k;
    bool trans_a, trans_b, packed_b, accumulate;
    dnnl::memory::data_type type;
    int threads;  // oneDNN divides the work when it builds the product
    auto operator<=>(const Key&) const = default;
  };
  explicit DnnlMatmul(const Key& key);
  void execute(Context& ctx, const void* a, const void* b, void* c) const;
  dnnl::memory::desc weights_desc() const { return desc_.weights_desc(); }
  bool brgemm() const;  // the implementation that gains from a packed right-hand side

 private:
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
};

// The product for `key`, built once a process.
const DnnlMatmul& dnnl_matmul(const DnnlMatmul::Key& key);

}  // namespace lmx
