#include <map>
#include <mutex>
#include <utility>

#include "autograd/gradient_sums.h"
#include "lmx/autograd.h"
#include "lmx/error.h"
#include "lmx/operand.h"
#include "lmx/recompute.h"

namespace lmx {

// The part of a variable that all its replicas share.
struct Var::Shared {
  Tensor value;
  uint64_t version = 0;
  std::recursive_mutex mutex;  // protects the cache; recursive, since make() may request another cached object
  std::map<std::string, std::shared_ptr<void>, std::less<>> cache;
};

struct Var::Impl {
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  Gradient grad;
  std::string name;
  bool requires_grad = false;
  bool leaf = true;
};

Var::Var(Tensor value, bool requires_grad, std::string name) : impl_(std::make_shared<Impl>()) {
  impl_->shared->value = std::move(value);
  impl_->requires_grad = requires_grad;
  impl_->name = std::move(name);
}

const Tensor& Var::value() const {
  LMX_CHECK(impl_, "value of an undefined variable");
  return impl_->shared->value;
}
Tensor& Var::value() {
  LMX_CHECK(impl_, "value of an undefined variable");
  return impl_->shared->value;
}
bool Var::requires_grad() const {
  return impl_ && impl_->requires_grad;
}
bool Var::leaf() const {
  return impl_ && impl_->leaf;
}
const std::string& Var::name() const {
  return impl_->name;
}
Gradient& Var::grad() const {
  return impl_->grad;
}
uint64_t Var::version() const {
  return impl_->shared->version;
}

void Var::changed() {
  const std::lock_guard lock(impl_->shared->mutex);
  ++impl_->shared->version;
  impl_->shared->cache.clear();
}

std::shared_ptr<void> Var::stored_or_null(std::string_view key) const {
  const std::lock_guard lock(impl_->shared->mutex);
  const auto found = impl_->shared->cache.find(key);
  return found == impl_->shared->cache.end() ? nullptr : found->second;
}

std::shared_ptr<void> Var::cached_or(std::string_view key, const std::function<std::shared_ptr<void>()>& make) const {
  const std::lock_guard lock(impl_->shared->mutex);
  // make() may itself add to the cache; std::map does not move existing nodes.
  std::shared_ptr<void>& slot = impl_->shared->cache[std::string(key)];
  if (!slot) slot = make();
  return slot;
}

Var Var::replica() const {
  Var other(Tensor(), impl_->requires_grad, impl_->name);
  other.impl_->shared = impl_->shared;
  return other;
}

struct Tape::Impl {
  struct Record {
    const char* op;
    std::vector<Var> inputs, outputs;
    Backward backward;
  };
  std::vector<Record> records;
  // The number of recorded uses of each leaf that are not yet differentiated.
  std::map<const void*, int64_t> uses;
};

Tape::Tape() : impl_(std::make_unique<Impl>()) {}
Tape::~Tape() = default;

void Tape::clear() {
  impl_->records.clear();
  impl_->uses.clear();
}

void Tape::record(const char* op, std::vector<Var> inputs, const std::vector<Var>& outputs, Backward backward) {
  std::erase_if(inputs, [](const Var& v) { return !v.requires_grad(); });
  if (inputs.empty()) return;
  for (const Var& v : inputs) {
    if (v.leaf()) ++impl_->uses[v.impl_.get()];
  }
  for (const Var& v : outputs) {
    v.impl_->requires_grad = true;
    v.impl_->leaf = false;
  }
  if (wrap) backward = wrap(std::move(backward));
  impl_->records.push_back({op, std::move(inputs), outputs, std::move(backward)});
}

void Tape::backward(Context& ctx, const Var& loss, double seed) {
  LMX_CHECK(loss.defined() && loss.value().numel() == 1, "backward from ", describe(loss.value()), ", not one element");
  if (loss.requires_grad() && !loss.leaf()) {
    Tensor start = loss.value().like(MemClass::activations);
    fill(ctx, start, seed);
    accumulate(ctx, loss, start);
  }
  while (!impl_->records.empty()) {
    Impl::Record record = std::move(impl_->records.back());
    impl_->records.pop_back();
    bool reached = false;
    for (const Var& v : record.outputs) reached |= !v.grad().empty();
    if (reached) {
      const Span span(ctx.tracer, record.op);
      record.backward(*this);
    }
    for (const Var& v : record.outputs) v.impl_->grad.clear();
    for (const Var& v : record.inputs) {
      if (v.leaf() && --impl_->uses[v.impl_.get()] == 0 && on_ready) on_ready(v);
    }
  }
  impl_->uses.clear();
}

const Tensor& Tape::grad_of(const Var& output) {
  LMX_CHECK(!output.grad().sparse(), "a row-sparse gradient where a dense one is read");
  return output.grad().dense;
}

Tensor Tape::operand_of_grad(Context& ctx, const Var& output) {
  const Gradient& g = output.grad();
  return g.operand.defined() ? g.operand : as_operand(ctx, grad_of(output));
}

void Tape::accumulate(Context& ctx, const Var& input, Tensor grad, Tensor operand) {
  if (!input.requires_grad()) return;
  Gradient& g = input.grad();
  g.operand = g.empty() && !input.leaf() ? std::move(operand) : Tensor();
  LMX_CHECK(grad.shape() == input.shape(), "gradient ", describe(grad), " of ", input.name(), " ", input.shape());
  if (g.dense.defined()) {
    add_tensor(ctx, g.dense, grad);
    return;
  }
  // A parameter's gradient outlives the backward pass. It is counted in the class of gradients, and must not share the
  // storage of an activation's gradient.
  g.dense = input.leaf() && grad.mem_class() != MemClass::gradients ? grad.clone(MemClass::gradients) : std::move(grad);
  for (RowSparse& piece : g.pieces) add_rows(ctx, g.dense, std::move(piece));
  g.pieces.clear();
}

void Tape::accumulate_rows(Context& ctx, const Var& input, RowSparse rows) {
  if (!input.requires_grad()) return;
  Gradient& g = input.grad();
  g.operand = {};
  if (g.dense.defined()) {
    add_rows(ctx, g.dense, std::move(rows));
  } else {
    g.pieces.push_back(std::move(rows));
  }
}

Tape::Sink Tape::sink(Context& ctx, const Var& input) {
  Gradient& g = input.grad();
  g.operand = {};
  if (g.dense.defined()) return {g.dense, 1.0f};
  const MemClass c = input.leaf() ? MemClass::gradients : MemClass::activations;
  Tensor fresh = ctx.empty(input.shape(), input.value().dtype(), c);
  if (g.sparse()) {
    fresh.zero();
    for (RowSparse& piece : g.pieces) add_rows(ctx, fresh, std::move(piece));
    g.pieces.clear();
    g.dense = fresh;
    return {fresh, 1.0f};
  }
  g.dense = fresh;
  return {fresh, 0.0f};
}

OperandTarget Tape::operand_of_sink(Context& ctx, const Var& input, const Sink& sink) {
  if (sink.beta != 0 || input.leaf() || !kernels_write_operands(ctx)) return {};
  Gradient& g = input.grad();
  if (!g.operand.defined()) g.operand = operand_memory(ctx, sink.grad);
  return operand_target(ctx, g.operand);
}

namespace {

// Adds the gradients of out = f(x) to those of x and of all leaves that f uses.
void differentiate_again(Context& ctx, const Var& x, const Var& out, const std::function<Var(Context&, const Var&)>& f,
                         const Tape& outer) {
  Tape tape;
  tape.wrap = outer.wrap;
  Context again = ctx;
  again.tape = &tape;
  const Var input(x.value());
  tape.record("recompute_input", {x}, {input},
              [&ctx, x, input](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(input)); });
  Tape::accumulate(again, f(again, input), Tape::grad_of(out));
  tape.backward(again, Var(ctx.zeros({1})));  // from the gradient that is already there
}

}  // namespace

Var recompute(Context& ctx, const Var& x, std::vector<Var> parameters, std::function<Var(Context&, const Var&)> f) {
  if (!ctx.tape) return f(ctx, x);
  Context quiet = ctx;
  quiet.tape = nullptr;
  const Var out(f(quiet, x).value());
  parameters.push_back(x);
  ctx.tape->record("recompute", std::move(parameters), {out},
                   [&ctx, x, out, f = std::move(f)](Tape& outer) { differentiate_again(ctx, x, out, f, outer); });
  return out;
}

}  // namespace lmx
