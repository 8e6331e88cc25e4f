#include "optim/parameter_optimizer.h"

#include "autograd/gradient_sums.h"
#include "backend/cuda.h"
#include "lmx/error.h"
#include "lmx/ops.h"
#include "optim/squares.h"
#include "optim/update.h"

namespace lmx::optim {
namespace {

// Rows of a tensor of the parameter, whose number of dimensions may be 1.
Tensor gathered(Context& ctx, const Tensor& from, const Tensor& rows) {
  Context plain = ctx;
  plain.tape = nullptr;
  Shape shape = from.shape();
  shape[0] = rows.numel();
  return embedding(plain, Var(from.reshape({from.dim(0), -1})), rows).value().reshape(shape);
}

// Row rows[i] of `to` becomes row i of `from`.
void scatter(Context& ctx, Tensor to, const Tensor& from, const Uploaded<int32_t>& rows) {
  const auto typed = [&]<class T>(T) {
    const Change<T> of{to.data<T>(), from.data<T>(), {}, rows.data(), rows.size(), to.numel() / to.dim(0), 1, nullptr};
    run_updates(ctx, std::span<const Change<T>>(&of, 1), [](const Change<T>& c) { return ScaledCopy<T>{c}; });
  };
  to.dtype() == DType::f64 ? typed(double{}) : typed(float{});
}

}  // namespace

void ParameterOptimizer::start(Tensors&, const Tensor&) const {}

Tensors& ParameterOptimizer::slots_of(Context& ctx, const Var& param) {
  const auto [it, fresh] = slots_.try_emplace(param.name());
  if (fresh) {
    states_[param.name()] = states(param.value());
    for (const State& s : states_[param.name()]) {
      it->second.push_back(ctx.empty(s.shape, s.type, MemClass::optimizer));
      fill(ctx, it->second.back(), 0);
    }
    start(it->second, param.value());
  }
  return it->second;
}

void ParameterOptimizer::rows_step(Context& ctx, Var& param, Tensors& slots, const GradScale& scale,
                                   const Rates& rates) {
  const RowSparse& piece = param.grad().pieces[0];
  const auto count = static_cast<int64_t>(piece.indices.size());
  const Tensor ids = Tensor::from<int32_t>(ctx.host, {count}, piece.indices);
  const Uploaded<int32_t> rows = ctx.upload(piece.indices);
  const States& all = states_.at(param.name());
  Tensors own;
  for (size_t s = 0; s < slots.size(); ++s) own.push_back(all[s].rows ? gathered(ctx, slots[s], ids) : slots[s]);
  Step some{param.name(), gathered(ctx, param.value(), ids), piece.rows, own, scale};
  step(ctx, some, rates);
  scatter(ctx, param.value(), some.value, rows);
  for (size_t s = 0; s < slots.size(); ++s)
    if (all[s].rows) scatter(ctx, slots[s], own[s], rows);
}

void ParameterOptimizer::update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) {
  LMX_CHECK(number >= 1, "updates count from 1, got ", number);
  const Rates rates{lr, number};
  for (const ParameterUpdate& u : updates) {
    const Gradient& grad = u.param->grad();
    if (grad.empty()) continue;
    LMX_CHECK(grad.pieces.empty() || (grad.pieces.size() == 1 && grad.pieces[0].unique), "the gradient of ",
              u.param->name(), " is not coalesced");
    Tensors& slots = slots_of(ctx, *u.param);
    if (grad.sparse() && grad.pieces[0].indices.empty()) continue;
    if (grad.sparse()) {
      rows_step(ctx, *u.param, slots, u.grad_scale, rates);
    } else {
      Step all{u.param->name(), u.param->value(), grad.dense, slots, u.grad_scale};
      step(ctx, all, rates);
    }
    u.param->changed();
  }
}

void ParameterOptimizer::update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) {
  const ParameterUpdate one{&param, {grad_scale}};
  update_all(ctx, {&one, 1}, lr, number);
}

StateDict ParameterOptimizer::state() const {
  StateDict all;
  for (const auto& [param, tensors] : slots_)
    for (size_t s = 0; s < tensors.size(); ++s) all.emplace(str(param, '.', states_.at(param)[s].name), tensors[s]);
  return all;
}

void ParameterOptimizer::load(Context& ctx, const ParameterStore& params, const StateDict& state) {
  slots_ = load_states(name_, ctx, params, state, [this](const Tensor& value) { return states(value); });
  states_.clear();
  for (const auto& [param, tensors] : slots_) states_[param] = states(params.at(param).value());
}

Tensor squares_of(Context& ctx, std::span<const Tensor> tensors) {
  SquaredList list;
  for (const Tensor& t : tensors) list.add(t);
  list.upload(ctx);
  Tensor sums = ctx.empty({list.size()}, DType::f64, MemClass::other);
  list.sum(ctx, list.block_sums(ctx), sums);
  return sums;
}

}  // namespace lmx::optim
