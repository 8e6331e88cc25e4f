// First-order reverse-mode differentiation on a tape.
//
// An op computes its value, then records one closure that computes its inputs' gradients from its outputs' gradients. A
// gradient is dense or row-sparse; a table that is read by rows never gets a dense V x D gradient.
#pragma once

#include <any>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx {

struct OperandTarget;  // lmx/operand.h

// Rows of a gradient: rows[i] belongs to row indices[i] of the table. If `unique` is set, the indices ascend and none
// is repeated.
struct RowSparse {
  std::vector<int32_t> indices;  // (n), on the host
  Tensor rows;                   // (n, D), or (n) for a vector parameter
  bool unique = false;
};

// Adds up rows of equal index, in order of appearance, so the sum is reproducible. The indices of the result ascend.
LMX_API RowSparse coalesce(Context& ctx, const std::vector<RowSparse>& pieces);

// A gradient: empty, dense, or a list of row-sparse pieces.
struct LMX_API Gradient {
  Tensor dense;
  Tensor operand;  // `dense` in the type of matrix products, if the kernel that computed it wrote both (lmx/operand.h)
  std::vector<RowSparse> pieces;
  bool empty() const { return !dense.defined() && pieces.empty(); }
  bool sparse() const { return !pieces.empty(); }
  void clear();
  // All pieces as one unique piece (a no-op for a dense or empty gradient).
  void coalesce(Context& ctx);
};

// A value in the graph, shared by reference. Leaves with requires_grad are parameters.
class LMX_API Var {
 public:
  Var() = default;
  explicit Var(Tensor value, bool requires_grad = false, std::string name = {});
  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const;
  Tensor& value();
  const Shape& shape() const { return value().shape(); }
  bool requires_grad() const;
  bool leaf() const;  // not produced by a recorded op
  const std::string& name() const;
  Gradient& grad() const;  // shared by all copies
  // To be called after the value was changed in place (an optimizer's update): discards everything that cached()
  // stores.
  void changed();
  uint64_t version() const;  // number of changes
  // The result that cached<T>() stores with this key; null if there is none.
  template <class T>
  const T* stored(std::string_view key) const {
    return static_cast<const T*>(stored_or_null(key).get());
  }
  // Returns the result of `make()`, which is computed at the first call after the value has changed (a packed or
  // rounded copy). Replicas may call it concurrently; no thread may change the value at the same time.
  template <class T, class Make>
  const T& cached(std::string_view key, Make&& make) const {
    return *static_cast<const T*>(
        cached_or(key, [&]() -> std::shared_ptr<void> { return std::make_shared<T>(make()); }).get());
  }
  // A Var with the same value and cache, but a separate gradient: the parameter for another rank of this process.
  Var replica() const;
  bool same(const Var& other) const { return impl_ == other.impl_; }

 private:
  friend class Tape;
  struct Shared;
  struct Impl;
  std::shared_ptr<void> stored_or_null(std::string_view key) const;
  std::shared_ptr<void> cached_or(std::string_view key, const std::function<std::shared_ptr<void>()>& make) const;
  std::shared_ptr<Impl> impl_;
};

// sum += x, of equal shapes, f32 or f64.
LMX_API void add_tensor(Context& ctx, Tensor& sum, const Tensor& x);
// table (V, ...): row indices[i] += rows[i] of the piece, in ascending order of i; indices may repeat.
LMX_API void add_rows(Context& ctx, Tensor& table, RowSparse piece);

class LMX_API Tape {
 public:
  Tape();
  ~Tape();
  using Backward = std::function<void(Tape&)>;
  // Called by ops after their forward. Outputs require gradients if any input does; otherwise nothing is recorded.
  void record(const char* op, std::vector<Var> inputs, const std::vector<Var>& outputs, Backward backward);
  // Runs the closures in reverse order from `loss` (one element), whose gradient is `seed`. Gradients of leaves are
  // added to the existing ones; all other gradients are freed during the pass. The tape is empty afterwards.
  void backward(Context& ctx, const Var& loss, double seed = 1.0);
  // Called with a parameter when this backward pass has processed its last use.
  std::function<void(const Var&)> on_ready;
  // If it is set, each closure is replaced by wrap(closure) when it is recorded, for example to name the plugin in its
  // errors.
  std::function<Backward(Backward)> wrap;
  void clear();

  // For closures. The gradient of an output; undefined if no gradient reached it.
  static const Tensor& grad_of(const Var& output);
  // The same in the type of matrix products: as_operand(), unless the kernel that computed the gradient wrote it.
  static Tensor operand_of_grad(Context& ctx, const Var& output);
  // Adds to an input's gradient; does nothing for inputs that require none. Takes ownership of the tensor without a
  // copy. `operand`: its rounded copy, if the kernel wrote one.
  static void accumulate(Context& ctx, const Var& input, Tensor grad, Tensor operand = {});
  static void accumulate_rows(Context& ctx, const Var& input, RowSparse rows);
  // The dense gradient to add to with beta = 1, or a new uninitialised one with beta = 0. GEMMs write to it directly.
  struct Sink {
    Tensor grad;
    float beta;
  };
  static Sink sink(Context& ctx, const Var& input);
  // The target for a kernel that replaces the whole of a sink with beta = 0; none if kernels write no operands.
  static OperandTarget operand_of_sink(Context& ctx, const Var& input, const Sink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether an op must record: the context has a tape, and at least one of `inputs` requires a gradient. If this is
// false, an op skips the work that only its backward needs. Undefined Vars (an optional bias that is absent) require
// none.
inline bool recording(const Context& ctx, std::initializer_list<const Var*> inputs) {
  if (!ctx.tape) return false;
  for (const Var* v : inputs) {
    if (v->defined() && v->requires_grad()) return true;
  }
  return false;
}

}  // namespace lmx
