// a <- decay a + (1 - decay) p after each update; of a row-sparse parameter, the rows that were updated.
#include <regex>

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/optim.h"
#include "lmx/parallel.h"

namespace lmx {
namespace {

template <class T>
LMX_SIMD void average(T* __restrict a, const T* __restrict p, T decay, int64_t n) {
  const T rest = T(1) - decay;
  for (int64_t i = 0; i < n; ++i) a[i] = decay * a[i] + rest * p[i];
}

template <class T>
void update_typed(Tensor& averages, const Var& param, T decay) {
  T* a = averages.data<T>();
  const T* p = param.value().data<T>();
  if (!param.grad().sparse()) {
    parallel_for(averages.numel(), 1 << 14,
                 [&](int64_t begin, int64_t end) { average<T>(a + begin, p + begin, decay, end - begin); });
    return;
  }
  const int64_t width = averages.numel() / averages.dim(0);
  for (const RowSparse& piece : param.grad().pieces) {
    LMX_CHECK(piece.unique && param.grad().pieces.size() == 1, "the gradient of ", param.name(), " is not coalesced");
    parallel_for(static_cast<int64_t>(piece.indices.size()), std::max<int64_t>(1, (1 << 14) / width),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t at = piece.indices[static_cast<size_t>(i)] * width;
                     average<T>(a + at, p + at, decay, width);
                   }
                 });
  }
}

}  // namespace

Ema::Ema(Context&, const ParameterStore& params, double decay, const std::string& pattern) : decay_(decay) {
  if (!(decay > 0 && decay < 1)) throw UserError(str("[ema] decay ", decay, ": must be in (0, 1)"));
  std::regex expression;
  try {
    expression = std::regex(pattern);
  } catch (const std::regex_error& e) {
    throw UserError(str("[ema] '", pattern, "' is no regular expression: ", e.what()));
  }
  for (const std::string& name : params.names()) {
    if (std::regex_match(name, expression)) averages_.emplace(name, params.at(name).value().clone(MemClass::optimizer));
  }
  if (averages_.empty()) throw UserError(str("[ema] '", pattern, "' matches no parameter"));
}

void Ema::update(Context&, const Var& param) {
  const auto it = averages_.find(param.name());
  if (it == averages_.end() || param.grad().empty()) return;
  if (it->second.dtype() == DType::f64) {
    update_typed<double>(it->second, param, decay_);
  } else {
    update_typed<float>(it->second, param, static_cast<float>(decay_));
  }
}

void Ema::swap(ParameterStore& params) {
  for (auto& [name, average] : averages_) {
    Var& param = params.at(name);
    std::swap(param.value(), average);
    param.changed();
  }
}

StateDict Ema::state() const {
  return averages_;
}

void Ema::load(const StateDict& state) {
  std::vector<std::string> known;
  for (const auto& [name, average] : averages_) {
    known.push_back(name);
    const auto it = state.find(name);
    if (it == state.end()) throw UserError(str("[ema] average of '", name, "' is missing"));
    if (it->second.shape() != average.shape() || it->second.dtype() != average.dtype()) {
      throw UserError(
          str("[ema] average of '", name, "' is ", describe(it->second), ", the parameter ", describe(average)));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!averages_.contains(name))
      throw UserError(str("[ema] average of '", name, "', which is not averaged", did_you_mean(name, known)));
  }
  for (auto& [name, average] : averages_) average.copy_from(state.at(name));
}

}  // namespace lmx
