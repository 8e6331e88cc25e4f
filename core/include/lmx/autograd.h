// First-order reverse-mode differentiation on a tape.
//
// An op computes its value, then records one closure that turns its outputs' gradients into its inputs'. Gradients are
// dense or row-sparse; a table looked up by rows never gets a V x D gradient.
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

// Rows of a gradient: rows[i] belongs to row indices[i] of the table. `indices` may repeat unless `unique`;
// when unique they ascend.
struct RowSparse {
  std::vector<int32_t> indices;  // (n), on the host
  Tensor rows;                   // (n, D), or (n) for a vector parameter
  bool unique = false;
};

// Sums rows of equal index (in order of appearance, so the sum is reproducible) and sorts: indices ascend.
LMX_API RowSparse coalesce(Context& ctx, const std::vector<RowSparse>& pieces);

// A gradient: nothing yet, dense, or row-sparse pieces.
struct LMX_API Gradient {
  Tensor dense;
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
  // The value was changed in place (an optimizer's update): drops what cached() keeps.
  void changed();
  uint64_t version() const;  // number of changes
  // What `make()` returned since the value last changed (a packed or rounded copy). Thread-safe between replicas, as
  // long as nobody changes the value at the same time.
  template <class T, class Make>
  const T& cached(std::string_view key, Make&& make) const {
    return *static_cast<const T*>(
        cached_or(key, [&]() -> std::shared_ptr<void> { return std::make_shared<T>(make()); }).get());
  }
  // The same value and cache under a gradient of its own: a parameter as another rank of this process sees it.
  Var replica() const;
  bool same(const Var& other) const { return impl_ == other.impl_; }

 private:
  friend class Tape;
  struct Shared;
  struct Impl;
  std::shared_ptr<void> cached_or(std::string_view key, const std::function<std::shared_ptr<void>()>& make) const;
  std::shared_ptr<Impl> impl_;
};

class LMX_API Tape {
 public:
  Tape();
  ~Tape();
  using Backward = std::function<void(Tape&)>;
  // Called by ops after their forward. Outputs then require gradients if any input does; if none does, nothing is kept.
  void record(const char* op, std::vector<Var> inputs, const std::vector<Var>& outputs, Backward backward);
  // Runs the closures in reverse from `loss` (one element), whose gradient is `seed`. Leaf gradients are added to what
  // is there; everything else is freed on the way. The tape is empty afterwards.
  void backward(Context& ctx, const Var& loss, double seed = 1.0);
  // Called with a parameter once its last use in this backward is done.
  std::function<void(const Var&)> on_ready;
  void clear();

  // For closures. The gradient of an output; undefined when nothing flowed into it.
  static const Tensor& grad_of(const Var& output);
  // Adds to an input's gradient; a no-op for inputs that need none. The tensor is taken over, not copied.
  static void accumulate(Context& ctx, const Var& input, Tensor grad);
  static void accumulate_rows(const Var& input, RowSparse rows);
  // The dense gradient to add into with beta = 1, or a fresh uninitialised one with beta = 0 (GEMMs write there
  // directly).
  struct Sink {
    Tensor grad;
    float beta;
  };
  static Sink sink(Context& ctx, const Var& input);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether an op has to record: the context has a tape, and at least one of `inputs` requires a gradient. An op skips the
// work that only its backward needs if this is false. Undefined Vars (an optional bias that is absent) count as none.
inline bool recording(const Context& ctx, std::initializer_list<const Var*> inputs) {
  if (!ctx.tape) return false;
  for (const Var* v : inputs) {
    if (v->defined() && v->requires_grad()) return true;
  }
  return false;
}

}  // namespace lmx
