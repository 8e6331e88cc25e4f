#include "conformance/rank.h"

#include <algorithm>
#include <bit>

namespace lmx_cli::check {

using namespace lmx;

bool same_bits(const Values& a, const Values& b) {
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](float u, float v) { return std::bit_cast<uint32_t>(u) == std::bit_cast<uint32_t>(v); });
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

std::unique_ptr<CommGroup> virtual_group(int ranks) {
  const Node config = parse_yaml(str("{name: virtual, ranks: ", ranks, "}"), "check");
  return create<CommFactory>(Registry::instance().find(PluginKind::comm, config, "comm"), config, "comm",
                             CommEnv{1, {}});
}

RankRun::RankRun(Communicator& comm, const Subject& s) : comm_(comm), specs_(parameters()) {
  ctx_.rank = comm.rank();
  ctx_.ranks = comm.size();
  ctx_.allocator = comm.allocator();
  ctx_.comm = &comm;
  const SyncEnv env{"check", specs_, ctx_.rank, ctx_.ranks, RandomKey(3)};
  rule_ = create<SyncFactory>(s.plugin, s.config, "sync.check", env);
  for (const ParameterSpec& p : specs_) vars_.emplace(p.name, Var(ctx_.zeros(p.shape), true, p.name));
  if (!server()) units_ = strategy().units({specs_.rbegin(), specs_.rend()});
}

std::string RankRun::step(int step, const Given& given) {
  const std::string wrong = reduce(step, given);
  rule_->after_step(ctx_);
  return wrong;
}

void RankRun::discarded_step(int step, const Given& given) {
  reduce(step, given);
  rule_->discard();
  rule_->after_step(ctx_);
}

std::string RankRun::reduce(int step, const Given& given) {
  std::string wrong;
  StepPlan plan;
  plan.step = step;
  rule_->begin_step(ctx_, {}, plan);
  selected_ = gather_selected();
  for (const ParameterSpec& p : specs_)
    give(vars_.at(p.name), own_of(ctx_.rank, ctx_.ranks, given.of, p), given.factor);
  for (const std::vector<std::string>& names : units_) {
    const std::string found = reduce_unit(step, given, names);
    if (wrong.empty()) wrong = found;
  }
  values_.clear();
  for (const ParameterSpec& p : specs_) values_.push_back(dense(p));
  return wrong;
}

std::string RankRun::reduce_unit(int step, const Given& given, const std::vector<std::string>& names) {
  std::vector<Var> unit;
  std::vector<ParameterSpec> specs;
  for (const std::string& name : names) {
    unit.push_back(vars_.at(name));
    specs.push_back(*std::find_if(specs_.begin(), specs_.end(), [&](const auto& p) { return p.name == name; }));
  }
  comm_.clear_ledger();
  strategy().reduce(ctx_, unit);
  int64_t sent = 0;
  for (const LedgerEntry& e : comm_.ledger()) sent += e.sent;
  const int64_t expected = rule_->expected_bytes(traffic_of(ctx_.rank, ctx_.ranks, given.of, specs, selected_));
  if (sent == expected) return "";
  return str("rank ", ctx_.rank, " of ", ctx_.ranks, ", step ", step, ": ", sent, " bytes sent for the unit of ",
             names[0], ", expected_bytes() says ", expected);
}

SelectedRows RankRun::gather_selected() {
  SelectedRows selected;
  for (const ParameterSpec& p : specs_) {
    const std::vector<int32_t>* own = strategy().selected_rows(p.name);
    if (!own) continue;
    const GatheredIndices all = gather_indices(ctx_, *own, "control");
    int64_t at = 0;
    for (const int64_t n : all.counts) {
      const auto rows = all.all.slice(at, at + n).values<int32_t>();
      selected[p.name].emplace_back(rows.begin(), rows.end());
      at += n;
    }
  }
  return selected;
}

void RankRun::give(Var& var, const Own& own, float factor) {
  Gradient& g = var.grad();
  g.clear();
  if (own.values.empty()) return;
  Shape shape = var.shape();
  if (!own.indices.empty()) shape[0] = static_cast<int64_t>(own.indices.size());
  Tensor values = Tensor::from<float>(ctx_.allocator, shape, own.values, MemClass::gradients);
  for (float& v : values.values<float>()) v *= factor;
  if (own.indices.empty())
    g.dense = values;
  else
    g.pieces.push_back({own.indices, values, false});
}

std::vector<float> RankRun::dense(const ParameterSpec& p) {
  Var& var = vars_.at(p.name);
  const Tensor all = dense_of(ctx_, var.grad(), var.value());
  return {all.values<float>().begin(), all.values<float>().end()};
}

}  // namespace lmx_cli::check
