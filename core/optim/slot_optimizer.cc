#include "lmx/slot_optimizer.h"

#include <cmath>

#include "autograd/gradient_sums.h"
#include "backend/cuda.h"
#include "lmx/error.h"
#include "ops/common.h"
#include "optim/states.h"

namespace lmx {

Optimizer::~Optimizer() = default;
Grain Optimizer::grain(const std::string&) const {
  return Grain::parameter;
}
bool Optimizer::keeps_state(const std::string&) const {
  return true;
}
void Optimizer::begin(const std::vector<ParameterSpec>&, const std::string&) {}
void Optimizer::evaluate(Context&, ParameterStore&, bool) {}

void Optimizer::update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) {
  std::vector<Reading<double>> factors;  // all copies are enqueued before the host waits
  for (const ParameterUpdate& u : updates)
    factors.push_back(u.grad_scale.factor ? ctx.read<double>(u.grad_scale.factor) : Reading<double>());
  for (size_t i = 0; i < updates.size(); ++i) {
    const GradScale& scale = updates[i].grad_scale;
    const double factor = scale.factor ? factors[i].value() : 1;
    if (!std::isnan(factor)) update(ctx, *updates[i].param, lr, number, scale.number * factor);
  }
}

namespace optim {
namespace {

Tensor filled(Context& ctx, const Tensor& like, double value) {
  Tensor t = ctx.empty(like.shape(), like.dtype(), MemClass::optimizer);
  fill(ctx, t, value);
  return t;
}

// The rounded copy of a parameter, which a device updates with it; undefined if there is none, and on the CPU.
Tensor updated_copy(const Context& ctx, const Var& param) {
  return kernels_write_operands(ctx) ? ops::stored_copy(ctx, param) : Tensor();
}

}  // namespace

void detail::refuse_slots(const char* kernel, size_t taken, size_t given) {
  throw UserError(
      str("[optimizer] the kernel ", kernel, " takes ", plural(taken, "slot"), ", and its optimizer has ", given));
}

SlotOptimizer::SlotOptimizer(std::string name, std::vector<Slot> slots)
    : name_(std::move(name)), slots_(std::move(slots)) {
  LMX_CHECK(slots_.size() <= kMaxSlots, name_, " has ", slots_.size(), " slots, an optimizer has at most ", kMaxSlots);
}

SlotOptimizer::Tensors& SlotOptimizer::tensors_of(Context& ctx, const Var& param) {
  const auto [it, fresh] = tensors_.try_emplace(param.name());
  if (fresh) {
    for (const Slot& slot : slots_) it->second.push_back(filled(ctx, param.value(), slot.initial));
  }
  return it->second;
}

template <class T>
Change<T> SlotOptimizer::change_of(const Context& ctx, const ParameterUpdate& update, Tensors& slots,
                                   const int32_t* rows) {
  const Gradient& grad = update.param->grad();
  const Tensor& value = update.param->value();
  const int64_t width = grad.sparse() ? value.numel() / value.dim(0) : 1;
  const Tensor& from = grad.sparse() ? grad.pieces[0].rows : grad.dense;
  const int64_t count = grad.sparse() ? static_cast<int64_t>(grad.pieces[0].indices.size()) : value.numel();
  LMX_CHECK(from.numel() == count * width && (grad.sparse() || from.shape() == value.shape()), "gradient ",
            describe(from), " of ", update.param->name(), ' ', update.param->shape());
  const GradScale& scale = update.grad_scale;
  Change<T> of{update.param->value().data<T>(),
               from.data<T>(),
               {},
               grad.sparse() ? rows : nullptr,
               count,
               width,
               scale.number,
               scale.factor ? scale.factor.data<double>() : nullptr,
               operand_target(ctx, updated_copy(ctx, *update.param))};
  for (size_t s = 0; s < slots.size(); ++s) of.slot[s] = slots[s].data<T>();
  return of;
}

void SlotOptimizer::update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) {
  LMX_CHECK(number >= 1, "updates count from 1, got ", number);
  const Rates rates{lr, number};
  std::vector<int32_t> indices;  // of all row-sparse gradients, for one upload
  for (const ParameterUpdate& u : updates) {
    const std::vector<RowSparse>& pieces = u.param->grad().pieces;
    LMX_CHECK(pieces.empty() || (pieces.size() == 1 && pieces[0].unique), "the gradient of ", u.param->name(),
              " is not coalesced");
    if (!pieces.empty()) indices.insert(indices.end(), pieces[0].indices.begin(), pieces[0].indices.end());
  }
  const Uploaded<int32_t> rows = indices.empty() ? Uploaded<int32_t>() : ctx.upload(std::move(indices));
  const int32_t* next = rows.data();
  std::vector<Change<float>> narrow;
  std::vector<Change<double>> wide;
  for (const ParameterUpdate& u : updates) {
    const Gradient& grad = u.param->grad();
    if (grad.empty()) continue;
    Tensors& slots = tensors_of(ctx, *u.param);
    if (grad.sparse() && grad.pieces[0].indices.empty()) continue;
    u.param->value().dtype() == DType::f64 ? wide.push_back(change_of<double>(ctx, u, slots, next))
                                           : narrow.push_back(change_of<float>(ctx, u, slots, next));
    if (grad.sparse()) next += grad.pieces[0].indices.size();
  }
  if (!narrow.empty()) apply(ctx, std::span<const Change<float>>(narrow), rates);
  if (!wide.empty()) apply(ctx, std::span<const Change<double>>(wide), rates);
  for (const ParameterUpdate& u : updates) {
    if (u.param->grad().empty()) continue;
    const Tensor copy = updated_copy(ctx, *u.param);
    u.param->changed();
    if (copy.defined()) ops::keep_copy(ctx, *u.param, copy);
  }
}

void SlotOptimizer::update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) {
  if (param.grad().empty()) return;
  const ParameterUpdate one{&param, {grad_scale}};
  update_all(ctx, {&one, 1}, lr, number);
}

StateDict SlotOptimizer::state() const {
  StateDict all;
  for (const auto& [param, tensors] : tensors_) {
    for (size_t s = 0; s < slots_.size(); ++s) all.emplace(str(param, '.', slots_[s].name), tensors[s]);
  }
  return all;
}

void SlotOptimizer::load(Context& ctx, const ParameterStore& params, const StateDict& state) {
  tensors_ = load_states(name_, ctx, params, state, [this](const Tensor& value) {
    States states;
    for (const Slot& slot : slots_) states.push_back({slot.name, value.shape(), value.dtype()});
    return states;
  });
}

}  // namespace optim
}  // namespace lmx
