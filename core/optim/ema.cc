// a <- decay a + (1 - decay) p after each update. Rows that an update does not change are averaged later: when they
// next change, or when the average is used. The skipped steps are then computed one by one, so the result is bit-equal
// to averaging every row at each update. Such a row is read from memory once, instead of once per update.
#include <utility>

#include "backend/cuda.h"
#include "lmx/error.h"
#include "lmx/optim.h"
#include "optim/measure.h"

namespace lmx {
namespace {

using optim::AverageSteps;

template <class T>
void run(Context& ctx, Tensor& averages, const Tensor& value, double decay, const AverageSteps& s) {
  run_kernel(ctx, optim::AverageRows<T>{averages.data<T>(), value.data<T>(), static_cast<T>(decay), s});
}

void run(Context& ctx, Tensor& averages, const Tensor& value, double decay, const AverageSteps& s) {
  averages.dtype() == DType::f64 ? run<double>(ctx, averages, value, decay, s)
                                 : run<float>(ctx, averages, value, decay, s);
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

// Brings every row up to date.
void Ema::settle(Context& ctx, Average& average, const Tensor& value) const {
  if (average.row_averaged.empty()) {
    if (updates_ > average.averaged)
      run(ctx, average.values, value, decay_, {.times = updates_ - average.averaged, .count = average.values.numel()});
  } else {
    settle_rows(ctx, average, value, {});
  }
  average.averaged = updates_;
}

// Brings these rows up to date; no rows: all.
void Ema::settle_rows(Context& ctx, Average& average, const Tensor& value, const std::vector<int32_t>& rows) const {
  std::vector<int64_t> times;
  const auto add = [&](int64_t& averaged) { times.push_back(updates_ - std::exchange(averaged, updates_)); };
  for (const int32_t row : rows) add(average.row_averaged[static_cast<size_t>(row)]);
  if (rows.empty())
    for (int64_t& averaged : average.row_averaged) add(averaged);
  const auto count = static_cast<int64_t>(times.size());
  const Uploaded<int32_t> index = rows.empty() ? Uploaded<int32_t>() : ctx.upload(rows);
  const Uploaded<int64_t> steps = ctx.upload(std::move(times));
  run(ctx, average.values, value, decay_,
      {.rows = index.data(),
       .row_times = steps.data(),
       .count = count,
       .width = average.values.numel() / average.values.dim(0)});
}

void Ema::before_update(Context& ctx, const Var& param) {
  LMX_CHECK(!swapped_, "an update of '", param.name(), "' while its average is in its place");
  const auto it = averages_.find(param.name());
  if (it == averages_.end()) return;
  Average& average = it->second;
  if (!param.grad().sparse()) return settle(ctx, average, param.value());
  const std::vector<RowSparse>& pieces = param.grad().pieces;
  LMX_CHECK(pieces.size() == 1 && pieces[0].unique, "the gradient of ", param.name(), " is not coalesced");
  if (average.row_averaged.empty())
    average.row_averaged.assign(static_cast<size_t>(average.values.dim(0)), average.averaged);
  if (!pieces[0].indices.empty()) settle_rows(ctx, average, param.value(), pieces[0].indices);
}

void Ema::count_update() {
  ++updates_;
}

void Ema::swap(Context& ctx, ParameterStore& params) {
  for (auto& [name, average] : averages_) {
    Var& param = params.at(name);
    if (!swapped_) settle(ctx, average, param.value());
    std::swap(param.value(), average.values);
    param.changed();
  }
  swapped_ = !swapped_;
}

StateDict Ema::state(Context& ctx, const ParameterStore& params) {
  LMX_CHECK(!swapped_, "the averages are in the parameters' place");
  StateDict state;
  for (auto& [name, average] : averages_) {
    settle(ctx, average, params.at(name).value());
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
    copy_values(average.values, state.at(name));
    average.averaged = 0;
    average.row_averaged.clear();
  }
}

}  // namespace lmx
