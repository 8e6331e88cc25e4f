#include "optim/slots.h"

#include <algorithm>

#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx {

Optimizer::~Optimizer() = default;

namespace optim {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread, at least

Tensor filled(Context& ctx, const Tensor& like, double value) {
  Tensor t = ctx.zeros(like.shape(), like.dtype(), MemClass::optimizer);
  if (value == 0) return t;
  if (t.dtype() == DType::f64) {
    std::ranges::fill(t.values<double>(), value);
  } else {
    std::ranges::fill(t.values<float>(), static_cast<float>(value));
  }
  return t;
}

template <class T>
std::array<T*, kMaxSlots> pointers(std::vector<Tensor>& slots) {
  std::array<T*, kMaxSlots> p{};
  for (size_t s = 0; s < slots.size(); ++s) p[s] = slots[s].data<T>();
  return p;
}

template <class T>
std::array<T*, kMaxSlots> moved(std::array<T*, kMaxSlots> p, int64_t by) {
  for (T*& pointer : p) {
    if (pointer) pointer += by;
  }
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
void SlotOptimizer::update_dense(Var& param, Tensors& slots, const Rates& rates) const {
  const Tensor& grad = param.grad().dense;
  LMX_CHECK(grad.shape() == param.shape(), "gradient ", describe(grad), " of ", param.name(), ' ', param.shape());
  T* p = param.value().data<T>();
  const T* g = grad.data<T>();
  const auto slot = pointers<T>(slots);
  parallel_for(grad.numel(), kGrain, [&](int64_t begin, int64_t end) {
    apply(Run<T>{p + begin, g + begin, moved<T>(slot, begin), end - begin}, rates);
  });
}

template <class T>
void SlotOptimizer::update_rows(Var& param, Tensors& slots, const Rates& rates) const {
  const std::vector<RowSparse>& pieces = param.grad().pieces;
  LMX_CHECK(pieces.size() == 1 && pieces[0].unique, "the gradient of ", param.name(), " is not coalesced");
  const std::vector<int32_t>& rows = pieces[0].indices;
  const int64_t width = param.value().numel() / param.value().dim(0);
  LMX_CHECK(pieces[0].rows.numel() == static_cast<int64_t>(rows.size()) * width, "gradient rows ",
            describe(pieces[0].rows), " of ", param.name(), ' ', param.shape());
  T* p = param.value().data<T>();
  const T* g = pieces[0].rows.data<T>();
  const auto slot = pointers<T>(slots);
  parallel_for(static_cast<int64_t>(rows.size()), std::max<int64_t>(1, kGrain / width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t at = rows[static_cast<size_t>(i)] * width;
                   apply(Run<T>{p + at, g + i * width, moved<T>(slot, at), width}, rates);
                 }
               });
}

void SlotOptimizer::update(Context& ctx, Var& param, double lr, int64_t step, double grad_scale) {
  if (param.grad().empty()) return;
  LMX_CHECK(step >= 1, "steps count from 1, got ", step);
  Tensors& slots = tensors_of(ctx, param);
  const Rates rates{lr, step, grad_scale};
  const bool wide = param.value().dtype() == DType::f64;
  if (param.grad().sparse()) {
    wide ? update_rows<double>(param, slots, rates) : update_rows<float>(param, slots, rates);
  } else {
    wide ? update_dense<double>(param, slots, rates) : update_dense<float>(param, slots, rates);
  }
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
      tensors.push_back(it->second.clone(MemClass::optimizer));
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
  (void)ctx;
}

int64_t SlotOptimizer::state_bytes(const ParameterSpec& spec) const {
  return static_cast<int64_t>(slots_.size() * size_of(DType::f32)) * spec.shape.numel();
}

}  // namespace optim
}  // namespace lmx
