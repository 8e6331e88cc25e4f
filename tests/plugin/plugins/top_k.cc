// Top-k sparsification with error feedback (Stich et al. 2018): each rank sends the largest quarter of a parameter's
// elements, and keeps the rest for later steps. Its faults 1 to 5 break one promise each, 6 and 7 fail in reduce().
#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <map>
#include <numeric>

#include "lmx/plugin.h"
#include "lmx/row_sync.h"
#include "lmx/sync.h"

namespace {

struct Config {
  int64_t part = 4;
  int64_t fault = 0;
  void fields(lmx::Fields& f) {
    f.field("part", part, "one of how many elements is sent in a step", lmx::kPositive);
    f.field("fault", fault, "the promise that is broken; 0: none", lmx::kNonNegative);
  }
};

class TopK : public lmx::SyncStrategy {
 public:
  TopK(const Config& config, const lmx::SyncEnv& env) : c_(config), env_(env) {
    for (const lmx::ParameterSpec& p : env.params) kept_[p.name].assign(static_cast<size_t>(p.shape.numel()), 0.0f);
  }

  void reduce(lmx::Context& ctx, std::span<lmx::Var> unit) override {
    if (c_.fault == 6) static_cast<void>(std::map<int, int>().at(7));
    if (c_.fault == 7) raise(SIGSEGV);
    for (lmx::Var& param : unit) {
      std::vector<float>& kept = kept_.at(param.name());
      before_[param.name()] = kept;
      const lmx::Tensor own = lmx::dense_of(ctx, param.grad(), param.value());
      for (size_t i = 0; i < kept.size(); ++i) kept[i] += own.values<float>()[i];
      const std::vector<int32_t> chosen = largest(kept);
      std::vector<float> values;
      for (const int32_t i : chosen) {
        values.push_back(kept[static_cast<size_t>(i)]);
        if (c_.fault != 3) kept[static_cast<size_t>(i)] = 0;  // 3: what was sent is kept as well
      }
      const auto gathered = [&](const auto& list, const auto& memory) {
        using T = typename std::decay_t<decltype(list)>::value_type;
        const lmx::Shape shape{static_cast<int64_t>(list.size())};
        return ctx.comm->all_gather(lmx::Tensor::from<T>(memory, shape, list), env_.group);
      };
      const lmx::Tensor ids = gathered(chosen, ctx.host), all = gathered(values, ctx.allocator);
      lmx::Tensor sum = ctx.zeros(param.shape(), lmx::DType::f32, lmx::MemClass::gradients);
      const float factor = c_.fault == 1 ? -1.0f : c_.fault == 2 ? 2.0f : 1.0f;
      for (int64_t i = 0; i < ids.numel(); ++i)
        sum.data<float>()[ids.data<int32_t>()[i]] += factor * all.data<float>()[i];
      param.grad().clear();
      param.grad().dense = sum;
    }
  }
  void after_step(lmx::Context&) override { before_.clear(); }
  void discard() override {
    if (c_.fault == 4) return;
    for (const auto& [name, kept] : before_) kept_[name] = kept;
  }
  void rescale(double factor) override {
    if (c_.fault == 5) return;
    for (auto& [name, kept] : kept_)
      for (float& v : kept) v *= static_cast<float>(factor);
  }
  lmx::StateDict state() const override {
    lmx::StateDict state;
    for (const auto& [name, kept] : kept_)
      state[name] =
          lmx::Tensor::from<float>(lmx::Allocator::cpu(), lmx::Shape{static_cast<int64_t>(kept.size())}, kept);
    return state;
  }
  void load(lmx::Context& ctx, const std::vector<lmx::StateDict>& ranks) override {
    for (const auto& [name, t] : ranks.at(static_cast<size_t>(ctx.rank)))
      kept_[name].assign(t.values<float>().begin(), t.values<float>().end());
  }

 private:
  int64_t count(int64_t n) const { return std::max<int64_t>(1, n / c_.part); }
  std::vector<int32_t> largest(const std::vector<float>& values) const {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto size = [&](int32_t i) {  // NaN first: every rank must see it
      const float v = values[static_cast<size_t>(i)];
      return std::isfinite(v) ? std::abs(v) : std::numeric_limits<float>::infinity();
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return size(a) > size(b); });
    order.resize(static_cast<size_t>(count(static_cast<int64_t>(values.size()))));
    return order;
  }

  Config c_;
  lmx::SyncEnv env_;
  std::map<std::string, std::vector<float>> kept_, before_;  // by parameter; `before_`: as this step found it
};

}  // namespace

LMX_PLUGIN(sync, test_top_k, Config, TopK)
