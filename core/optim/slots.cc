#include "optim/slots.h"

#include <algorithm>

#include "autograd/gradient_sums.h"
#include "backend/cuda.h"
#include "lmx/error.h"

namespace lmx {

Optimizer::~Optimizer() = default;

namespace optim {
namespace {

Tensor filled(Context& ctx, const Tensor& like, double value) {
  Tensor t = ctx.empty(like.shape(), like.dtype(), MemClass::optimizer);
  fill(ctx, t, value);
  return t;
}

template <class T>
std::array<T*, kMaxSlots> pointers(std::vector<Tensor>& slots) {
  std::array<T*, kMaxSlots> p{};
  for (size_t s = 0; s < slots.size(); ++s) p[s] = slots[s].data<T>();
  return p;
}

}  // namespace

SlotOptimizer::Tensors& SlotOptimizer::tensors_of(Context& ctx, const Var& param) {
  const auto [it, fresh] = tensors_.try_emplace(param.name());
  if (fresh) {
    for (const Slot& slot : slots_) it->second.push_back(filled(ctx, param.value(), slot.initial));
  }
  return it->second;
}

template <class T>
void SlotOptimizer::typed(Context& ctx, Var& param, Tensors& slots, const Rates& rates) const {
  const Gradient& grad = param.grad();
  const Tensor& value = param.value();
  LMX_CHECK(!grad.sparse() || (grad.pieces.size() == 1 && grad.pieces[0].unique), "the gradient of ", param.name(),
            " is not coalesced");
  const int64_t width = grad.sparse() ? value.numel() / value.dim(0) : 1;
  const Tensor& from = grad.sparse() ? grad.pieces[0].rows : grad.dense;
  const int64_t count = grad.sparse() ? static_cast<int64_t>(grad.pieces[0].indices.size()) : value.numel();
  LMX_CHECK(from.numel() == count * width && (grad.sparse() || from.shape() == value.shape()), "gradient ",
            describe(from), " of ", param.name(), ' ', param.shape());
  if (count == 0) return;
  const Uploaded<int32_t> rows = grad.sparse() ? ctx.upload(grad.pieces[0].indices) : Uploaded<int32_t>();
  apply(ctx, Elements<T>{param.value().data<T>(), from.data<T>(), pointers<T>(slots), rows.data(), count, width},
        rates);
}

void SlotOptimizer::update(Context& ctx, Var& param, double lr, int64_t step, double grad_scale) {
  if (param.grad().empty()) return;
  LMX_CHECK(step >= 1, "steps count from 1, got ", step);
  Tensors& slots = tensors_of(ctx, param);
  const Rates rates{lr, step, grad_scale};
  const bool wide = param.value().dtype() == DType::f64;
  wide ? typed<double>(ctx, param, slots, rates) : typed<float>(ctx, param, slots, rates);
  param.changed();
}

StateDict SlotOptimizer::state() const {
  StateDict all;
  for (const auto& [param, tensors] : tensors_) {
    for (size_t s = 0; s < slots_.size(); ++s) all.emplace(str(param, '.', slots_[s].name), tensors[s]);
  }
  return all;
}

void SlotOptimizer::load(Context& ctx, const ParameterStore& params, const StateDict& state) {
  std::vector<std::string> known;
  std::map<std::string, Tensors> loaded;
  size_t used = 0;
  for (const std::string& param : params.names()) {
    const Tensor& value = params.at(param).value();
    Tensors tensors;
    std::string absent;
    for (const Slot& slot : slots_) {
      known.push_back(str(param, '.', slot.name));
      const auto it = state.find(known.back());
      if (it == state.end()) {
        absent = known.back();
        continue;
      }
      if (it->second.shape() != value.shape() || it->second.dtype() != value.dtype()) {
        throw UserError(str("[", name_, "] state '", known.back(), "' is ", describe(it->second), ", the parameter ",
                            describe(value)));
      }
      tensors.push_back(ctx.empty(value.shape(), value.dtype(), MemClass::optimizer));
      copy_values(tensors.back(), it->second);
    }
    if (tensors.empty()) continue;
    if (!absent.empty()) throw UserError(str("[", name_, "] state '", absent, "' is missing"));
    used += tensors.size();
    loaded.emplace(param, std::move(tensors));
  }
  if (used != state.size()) {
    for (const auto& [name, tensor] : state) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw UserError(
          str("[", name_, "] state '", name, "' belongs to no parameter's slot", did_you_mean(name, known)));
    }
  }
  tensors_ = std::move(loaded);
}

int64_t SlotOptimizer::state_bytes(const ParameterSpec& spec) const {
  return static_cast<int64_t>(slots_.size() * size_of(DType::f32)) * spec.shape.numel();
}

}  // namespace optim
}  // namespace lmx
