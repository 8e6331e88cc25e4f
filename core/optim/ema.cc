// a <- decay a + (1 - decay) p after each update. Rows that an update does not change are averaged later: when they
// next change, or when the average is used. The skipped steps are then computed one by one, so the result is bit-equal
// to averaging every row at each update. Such a row is read from memory once, instead of once per update.
#include <utility>

#include "backend/cuda.h"
#include "lmx/error.h"
#include "lmx/optim.h"
#include "optim/measure.h"

namespace lmx {

// The averaging steps of several tensors, which run together.
class Ema::Steps {
 public:
  // `times` steps of all elements.
  void add(Tensor& averages, const Tensor& value, int64_t times) {
    work_.push_back({&averages, &value, false, {.times = times, .count = averages.numel()}});
  }
  // times[i] steps of row rows[i]; no rows: of row i.
  void add_rows(Tensor& averages, const Tensor& value, const std::vector<int32_t>& rows,
                const std::vector<int64_t>& times) {
    work_.push_back({&averages,
                     &value,
                     !rows.empty(),
                     {.count = static_cast<int64_t>(times.size()), .width = averages.numel() / averages.dim(0)}});
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    times_.insert(times_.end(), times.begin(), times.end());
  }
  void run(Context& ctx, double decay) {
    const Uploaded<int32_t> rows = rows_.empty() ? Uploaded<int32_t>() : ctx.upload(std::move(rows_));
    const Uploaded<int64_t> times = times_.empty() ? Uploaded<int64_t>() : ctx.upload(std::move(times_));
    const int32_t* next_row = rows.data();
    const int64_t* next_time = times.data();
    for (Work& w : work_) {
      if (w.steps.times > 0) continue;
      w.steps.row_times = std::exchange(next_time, next_time + w.steps.count);
      if (w.some_rows) w.steps.rows = std::exchange(next_row, next_row + w.steps.count);
    }
    run_typed<float>(ctx, decay);
    run_typed<double>(ctx, decay);
  }

 private:
  struct Work {
    Tensor* averages;
    const Tensor* value;
    bool some_rows;
    optim::AverageSteps steps;  // without the arrays, which are uploaded for all tensors together; times > 0: none
  };

  template <class T>
  void run_typed(Context& ctx, double decay) const {
    std::vector<optim::AverageRows<T>> all;
    for (const Work& w : work_)
      if (w.averages->dtype() == dtype_of<T>)
        all.push_back({w.averages->data<T>(), w.value->data<T>(), static_cast<T>(decay), w.steps});
    if (!all.empty()) run_kernel(ctx, optim::AverageAll<T>{all.data(), static_cast<int64_t>(all.size())});
  }

  std::vector<Work> work_;
  std::vector<int32_t> rows_;
  std::vector<int64_t> times_;
};

Ema::Ema(const ParameterStore& params, double decay, const ParamPattern& pattern) : decay_(decay) {
  if (!(decay > 0 && decay < 1)) throw UserError(str("[ema] decay ", decay, ": must be in (0, 1)"));
  // The average of a frozen parameter equals its value.
  for (const std::string& name : pattern.select(params.names())) {
    if (params.at(name).requires_grad())
      averages_.emplace(name, Average{params.at(name).value().clone(MemClass::optimizer)});
  }
}

// Brings every row up to date.
void Ema::settle(Steps& steps, Average& average, const Tensor& value) const {
  if (!average.row_averaged.empty())
    settle_rows(steps, average, value, {});
  else if (updates_ > average.averaged)
    steps.add(average.values, value, updates_ - average.averaged);
  average.averaged = updates_;
}

// Brings these rows up to date; no rows: all.
void Ema::settle_rows(Steps& steps, Average& average, const Tensor& value, const std::vector<int32_t>& rows) const {
  std::vector<int64_t> times;
  const auto add = [&](int64_t& averaged) { times.push_back(updates_ - std::exchange(averaged, updates_)); };
  for (const int32_t row : rows) add(average.row_averaged[static_cast<size_t>(row)]);
  if (rows.empty())
    for (int64_t& averaged : average.row_averaged) add(averaged);
  steps.add_rows(average.values, value, rows, times);
}

void Ema::before_update(Context& ctx, std::span<const Var* const> params) {
  Steps steps;
  for (const Var* param : params) {
    LMX_CHECK(!swapped_, "an update of '", param->name(), "' while its average is in its place");
    const auto it = averages_.find(param->name());
    if (it == averages_.end()) continue;
    Average& average = it->second;
    if (!param->grad().sparse()) {
      settle(steps, average, param->value());
      continue;
    }
    const std::vector<RowSparse>& pieces = param->grad().pieces;
    LMX_CHECK(pieces.size() == 1 && pieces[0].unique, "the gradient of ", param->name(), " is not coalesced");
    if (average.row_averaged.empty())
      average.row_averaged.assign(static_cast<size_t>(average.values.dim(0)), average.averaged);
    if (!pieces[0].indices.empty()) settle_rows(steps, average, param->value(), pieces[0].indices);
  }
  steps.run(ctx, decay_);
}

void Ema::count_update() {
  ++updates_;
}

void Ema::swap(Context& ctx, ParameterStore& params) {
  if (!swapped_) {
    Steps steps;
    for (auto& [name, average] : averages_) settle(steps, average, params.at(name).value());
    steps.run(ctx, decay_);
  }
  for (auto& [name, average] : averages_) {
    Var& param = params.at(name);
    std::swap(param.value(), average.values);
    param.changed();
  }
  swapped_ = !swapped_;
}

StateDict Ema::state(Context& ctx, const ParameterStore& params) {
  LMX_CHECK(!swapped_, "the averages are in the parameters' place");
  Steps steps;
  for (auto& [name, average] : averages_) settle(steps, average, params.at(name).value());
  steps.run(ctx, decay_);
  StateDict state;
  for (const auto& [name, average] : averages_) state.emplace(name, average.values);
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
