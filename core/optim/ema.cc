// a <- decay a + (1 - decay) p after each update. Rows that an update does not change are averaged later: when they
// next change, or when the average is used. The skipped steps are then computed one by one, so the result is bit-equal
// to averaging every row at each update. Such a row is read from memory once, instead of once per update.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/optim.h"
#include "lmx/parallel.h"

namespace lmx {
namespace {

constexpr int64_t kBlock = 64;  // elements that stay in registers or in the first-level cache
constexpr int64_t kGroup = 32;  // number of steps after which the loop tests whether the average still changes

// Applies `times` averaging steps towards p to n elements.
template <class T>
LMX_SIMD void average(T* __restrict a, const T* __restrict p, T decay, int64_t n, int64_t times) {
  const T rest = T(1) - decay;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    T add[kBlock], now[kBlock], before[kBlock];
    for (int64_t i = 0; i < size; ++i) add[i] = rest * p[begin + i];
    for (int64_t i = 0; i < size; ++i) now[i] = before[i] = a[begin + i];
    for (int64_t left = times; left > 0;) {
      const int64_t group = std::min(kGroup, left);
      for (int64_t s = 0; s < group; ++s)
        for (int64_t i = 0; i < size; ++i) now[i] = decay * now[i] + add[i];
      left -= group;
      if (left == 0) break;
      // Each step is monotone: if a group of steps changes nothing, the values are a fixed point.
      bool moved = false;
      for (int64_t i = 0; i < size; ++i) moved |= !(now[i] == before[i]);
      if (!moved) break;
      for (int64_t i = 0; i < size; ++i) before[i] = now[i];
    }
    for (int64_t i = 0; i < size; ++i) a[begin + i] = now[i];
  }
}

void average(Tensor& averages, const Tensor& value, double decay, int64_t first, int64_t n, int64_t times) {
  if (times == 0) return;
  if (averages.dtype() == DType::f64)
    average<double>(averages.data<double>() + first, value.data<double>() + first, decay, n, times);
  else
    average<float>(averages.data<float>() + first, value.data<float>() + first, static_cast<float>(decay), n, times);
}

}  // namespace

Ema::Ema(const ParameterStore& params, double decay, const ParamPattern& pattern) : decay_(decay) {
  if (!(decay > 0 && decay < 1)) throw UserError(str("[ema] decay ", decay, ": must be in (0, 1)"));
  // The average of a frozen parameter equals its value.
  for (const std::string& name : pattern.select(params.names())) {
    if (params.at(name).requires_grad())
      averages_.emplace(name, Average{params.at(name).value().clone(MemClass::optimizer)});
  }
}

void Ema::settle(Average& average, const Tensor& value) const {
  const int64_t n = average.values.numel(), rows = static_cast<int64_t>(average.row_averaged.size());
  if (rows == 0) {
    parallel_for(n, 1 << 14, [&](int64_t begin, int64_t end) {
      lmx::average(average.values, value, decay_, begin, end - begin, updates_ - average.averaged);
    });
  } else {
    const int64_t width = n / rows;
    parallel_for(rows, std::max<int64_t>(1, (1 << 12) / width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t& averaged = average.row_averaged[static_cast<size_t>(row)];
        lmx::average(average.values, value, decay_, row * width, width, updates_ - averaged);
        averaged = updates_;
      }
    });
  }
  average.averaged = updates_;
}

void Ema::before_update(const Var& param) {
  LMX_CHECK(!swapped_, "an update of '", param.name(), "' while its average is in its place");
  const auto it = averages_.find(param.name());
  if (it == averages_.end()) return;
  Average& average = it->second;
  if (!param.grad().sparse()) return settle(average, param.value());
  const std::vector<RowSparse>& pieces = param.grad().pieces;
  LMX_CHECK(pieces.size() == 1 && pieces[0].unique, "the gradient of ", param.name(), " is not coalesced");
  const int64_t rows = average.values.dim(0), width = average.values.numel() / rows;
  if (average.row_averaged.empty()) average.row_averaged.assign(static_cast<size_t>(rows), average.averaged);
  const std::vector<int32_t>& touched = pieces[0].indices;
  parallel_for(static_cast<int64_t>(touched.size()), std::max<int64_t>(1, (1 << 12) / width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t row = touched[static_cast<size_t>(i)];
                   int64_t& averaged = average.row_averaged[static_cast<size_t>(row)];
                   lmx::average(average.values, param.value(), decay_, row * width, width, updates_ - averaged);
                   averaged = updates_;
                 }
               });
}

void Ema::count_update() {
  ++updates_;
}

void Ema::swap(ParameterStore& params) {
  for (auto& [name, average] : averages_) {
    Var& param = params.at(name);
    if (!swapped_) settle(average, param.value());
    std::swap(param.value(), average.values);
    param.changed();
  }
  swapped_ = !swapped_;
}

StateDict Ema::state(const ParameterStore& params) {
  LMX_CHECK(!swapped_, "the averages are in the parameters' place");
  StateDict state;
  for (auto& [name, average] : averages_) {
    settle(average, params.at(name).value());
    state.emplace(name, average.values);
  }
  return state;
}

void Ema::load(const StateDict& state) {
  std::vector<std::string> known;
  for (const auto& [name, average] : averages_) {
    known.push_back(name);
    const auto it = state.find(name);
    if (it == state.end()) throw UserError(str("[ema] average of '", name, "' is missing"));
    if (it->second.shape() != average.values.shape() || it->second.dtype() != average.values.dtype())
      throw UserError(
          str("[ema] average of '", name, "' is ", describe(it->second), ", the parameter ", describe(average.values)));
  }
  for (const auto& [name, tensor] : state) {
    if (!averages_.contains(name))
      throw UserError(str("[ema] average of '", name, "', which is not averaged", did_you_mean(name, known)));
  }
  updates_ = 0;
  for (auto& [name, average] : averages_) {
    average.values.copy_from(state.at(name));
    average.averaged = 0;
    average.row_averaged.clear();
  }
}

}  // namespace lmx
