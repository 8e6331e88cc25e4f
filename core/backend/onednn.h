// A small interface to oneDNN, included only by the CPU's GEMM files.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "lmx/context.h"
#include "lmx/error.h"

namespace lmx {

// Runs `call`. An error of oneDNN becomes a RunError that contains `what()`: the operation and its shapes.
template <class What, class Call>
decltype(auto) with_onednn(What&& what, Call&& call) {
  try {
    return call();
  } catch (const dnnl::error& e) {
    throw RunError(str("[gemm] oneDNN cannot ", what(), " here: ", e.what()));
  }
}

// The CPU engine; a stateless handle that the whole process shares.
const dnnl::engine& cpu_engine();

// A matrix product of oneDNN. Immutable; execute() is thread-safe, since the caller provides the scratchpad.
class DnnlMatmul {
 public:
  struct Key {
    int64_t m, n, k;
    bool trans_a, trans_b, packed_b, accumulate;
    dnnl::memory::data_type type;
    int threads;        // oneDNN divides the work among threads when it builds the product
    bool bias = false;  // (N) f32, added to every row
    dnnl::memory::data_type result = dnnl::memory::data_type::f32;
    auto operator<=>(const Key&) const = default;
  };
  explicit DnnlMatmul(const Key& key);
  // `bias`: null without key().bias. RunError: oneDNN's message, with the shapes.
  void execute(Context& ctx, const void* a, const void* b, void* c, const void* bias = nullptr) const;
  const Key& key() const { return key_; }
  dnnl::memory::desc weights_desc() const { return desc_.weights_desc(); }
  bool brgemm() const;  // whether the implementation gains from a packed right side
  // The right side's layout as a number: equal for equal layouts, independent of the number of rows.
  int layout() const { return layout_; }

 private:
  Key key_;
  dnnl::matmul::primitive_desc desc_;
  dnnl::matmul primitive_;
  int layout_;
};

// "multiply (M, K) by (K, N) bf16".
std::string describe_product(const DnnlMatmul::Key& key);

// The product for `key`, built once in a process. RunError: oneDNN has none.
const DnnlMatmul& dnnl_matmul(const DnnlMatmul::Key& key);

// The product for `key` with a packed right side (packed_b; trans_b is ignored); null if this CPU has no kernels that
// gain from it.
const DnnlMatmul* packed_matmul(DnnlMatmul::Key key);

// op(b) (K, N) in the layout and type of `product`, which must have a packed right side. b is f32 or bf16, and is
// stored as (N, K) if `trans`. `c`: the memory class of the copy.
Tensor packed_right_side(Context& ctx, const void* b, dnnl::memory::data_type type, bool trans,
                         const DnnlMatmul& product, MemClass c);

}  // namespace lmx
