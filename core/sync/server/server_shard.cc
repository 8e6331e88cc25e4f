#include "sync/server/server_shard.h"

#include "lmx/error.h"

namespace lmx::server {
namespace {

constexpr const char *kOptimizer = "optimizer/", *kClock = "server/clock", *kStaleness = "server/staleness",
                     *kRecent = "server/recent";

Tensor numbers(const Context& ctx, const std::vector<int64_t>& values) {
  return Tensor::from<int64_t>(ctx.host, {static_cast<int64_t>(values.size())}, values, MemClass::other);
}

Tensor pairs(const Context& ctx, const Histogram& histogram) {
  std::vector<int64_t> flat;
  for (const auto& [staleness, count] : histogram) flat.insert(flat.end(), {staleness, count});
  return numbers(ctx, flat);
}

Histogram histogram_of(const Tensor& pairs) {
  Histogram h;
  const auto flat = pairs.values<int64_t>();
  for (size_t i = 0; i + 1 < flat.size(); i += 2) h[flat[i]] = flat[i + 1];
  return h;
}

const Tensor& entry(const StateDict& state, const char* key) {
  const auto found = state.find(key);
  if (found == state.end() || found->second.dtype() != DType::i64)
    throw UserError(str("[sync] the checkpoint lacks ", key, ": it is from a run without a parameter server"));
  return found->second;
}

}  // namespace

double mean_of(const Histogram& histogram) {
  double all = 0, sum = 0;
  for (const auto& [staleness, n] : histogram) {
    all += static_cast<double>(n);
    sum += static_cast<double>(staleness * n);
  }
  return sum / all;
}

Shard::Shard(Context ctx, ParameterStore values, std::unique_ptr<Optimizer> optimizer, int workers,
             const CodecConfig& codec)
    : ctx_(std::move(ctx)),
      values_(std::move(values)),
      optimizer_(std::move(optimizer)),
      codec_(make_codec(codec)),
      pulled_at_(static_cast<size_t>(workers)) {
  ctx_.tape = nullptr;
}

void Shard::pulled(int worker) {
  pulled_at_[static_cast<size_t>(worker)] = updates_;
}

Tensor Shard::decoded(const Part& part, const Shape& shape) {
  if (part.values.dtype() != DType::u8) return part.values;
  Shape block = shape;
  block[0] = part.count;
  Tensor values = ctx_.empty(block, DType::f32, MemClass::communication);
  codec_->decode(ctx_, part.values, values);
  return values;
}

void Shard::apply(int worker, std::vector<Part> parts, double lr) {
  const int64_t staleness = updates_ - pulled_at_[static_cast<size_t>(worker)];
  ++staleness_[staleness];
  ++recent_[staleness];
  ++updates_;
  for (Part& part : parts) {
    if (part.sparse && part.rows.empty()) continue;
    Var& param = values_.at(part.name);
    Tensor values = decoded(part, param.shape());
    if (part.sparse) {
      param.grad().pieces = {{std::move(part.rows), std::move(values), true}};
    } else {
      param.grad().dense = std::move(values);
    }
    optimizer_->update(ctx_, param, lr, updates_, part.scale);
    param.grad().clear();
  }
}

Histogram Shard::take_staleness() {
  return std::exchange(recent_, {});
}

StateDict Shard::state() const {
  StateDict all;
  for (const auto& [name, t] : optimizer_->state()) all.emplace(kOptimizer + name, t);
  std::vector<int64_t> clock{updates_};
  clock.insert(clock.end(), pulled_at_.begin(), pulled_at_.end());
  all.emplace(kClock, numbers(ctx_, clock));
  all.emplace(kStaleness, pairs(ctx_, staleness_));
  all.emplace(kRecent, pairs(ctx_, recent_));
  return all;
}

void Shard::load(const StateDict& state) {
  const auto clock = entry(state, kClock).values<int64_t>();
  if (clock.size() != pulled_at_.size() + 1)
    throw UserError(str("[sync] the checkpoint's parameter server had ", clock.size() - 1, " workers, this one has ",
                        pulled_at_.size()));
  updates_ = clock[0];
  pulled_at_.assign(clock.begin() + 1, clock.end());
  staleness_ = histogram_of(entry(state, kStaleness));
  recent_ = histogram_of(entry(state, kRecent));
  StateDict slots;
  for (const auto& [key, t] : state)
    if (key.starts_with(kOptimizer)) slots.emplace(key.substr(std::string(kOptimizer).size()), t);
  optimizer_->load(ctx_, values_, slots);
}

}  // namespace lmx::server
