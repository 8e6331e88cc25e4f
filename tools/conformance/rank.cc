#include "conformance/sync.h"

#include <algorithm>
#include <bit>
#include <sstream>

#include "backend/cuda.h"
#include "comm/rank_device.h"

namespace lmx::app::conformance {

bool same_bits(const Values& a, const Values& b) {
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](float u, float v) { return std::bit_cast<uint32_t>(u) == std::bit_cast<uint32_t>(v); });
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

uint64_t digest(const Values& values) {
  uint64_t hash = 1469598103934665603ULL;
  for (const std::vector<float>& list : values)
    for (const float v : list) hash = (hash ^ std::bit_cast<uint32_t>(v)) * 1099511628211ULL;
  return hash >> 11;
}

Context context_of(Communicator& comm, Device device) {
  Context ctx = comm::rank_context(comm);
  comm::compute_with_ranks_on(ctx, device);
  return ctx;
}

double unreceived(Communicator& comm, const UnitBytes& b) {
  const double open[] = {static_cast<double>(b.sent - b.received),
                         static_cast<double>(b.sent_between_nodes - b.received_between_nodes)};
  const std::vector<double> all = comm.gather_numbers(open, "control");
  double of_all = 0, between = 0;
  for (size_t i = 0; i < all.size(); i += 2) of_all += all[i], between += all[i + 1];
  return of_all != 0 ? of_all : between;
}

RankRun::RankRun(Communicator& comm, const Subject& s)
    : comm_(comm), ctx_(context_of(comm, s.device)), specs_(parameters()), queue_(comm.overlaps(), s.device) {
  SyncEnv env{"check", specs_, ctx_.rank, ctx_.ranks, RandomKey(3), comm.nodes().per_node()};
  rule_ = create<SyncFactory>(s.plugin, s.config, "sync.check", env);
  if (rule_->result() == SyncResult::update) {  // a recipe gives tables to another rule
    std::erase_if(specs_, [](const ParameterSpec& p) { return p.sparse; });
    env.params = specs_;
    rule_ = create<SyncFactory>(s.plugin, s.config, "sync.check", env);
  }
  for (const ParameterSpec& p : specs_) vars_.emplace(p.name, Var(ctx_.zeros(p.shape), true, p.name));
  if (rule_->strategy()) units_ = strategy().units({specs_.rbegin(), specs_.rend()});
}

void RankRun::reduce(int step, const Given& given) {
  StepPlan plan;
  plan.step = step;
  rule_->begin_step(ctx_, {}, plan);
  selected_ = gather_selected();
  exchanged_.clear();
  queue_.begin_step();
  for (const std::vector<std::string>& names : units_) post_unit(given, names);
  queue_.drain();
  values_.clear();
  for (const ParameterSpec& p : specs_) values_.push_back(dense(p));
}

// As in backward, the gradients of later units are computed while a unit is exchanged, if the group supports that.
void RankRun::post_unit(const Given& given, const std::vector<std::string>& names) {
  std::vector<ParameterSpec> specs;
  std::vector<Tensor> used;
  for (const std::string& name : names) {
    specs.push_back(*std::find_if(specs_.begin(), specs_.end(), [&](const auto& p) { return p.name == name; }));
    const Gradient& grad = vars_.at(name).grad();
    Own own = own_of(ctx_.rank, given.of, specs.back());
    if (name == given.spoiled && ctx_.rank == ctx_.ranks - 1) own.values.at(0) = given.value;
    give(ctx_, vars_.at(name), own, given.factor);
    if (grad.dense.defined()) used.push_back(grad.dense);
    for (const RowSparse& piece : grad.pieces) used.push_back(piece.rows);
  }
  queue_.post(
      queue_.now(), [this, specs] { reduce_unit(specs); }, std::move(used));
}

void RankRun::reduce_unit(const std::vector<ParameterSpec>& specs) {
  std::vector<Var> unit;
  for (const ParameterSpec& p : specs) unit.push_back(vars_.at(p.name));
  Context ctx = ctx_;
  use_stream_of_thread(ctx);
  comm_.clear_ledger();
  strategy().reduce(ctx, unit);
  UnitExchange own{.name = specs.at(0).name};
  own.bytes.add(comm_.ledger());
  exchanged_.push_back(std::move(own));
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

std::vector<StateDict> gather_states(Context& ctx, const StateDict& own) {
  std::string text;
  for (const auto& [key, kept] : own) {
    const Tensor tensor = kept.device() == Device{} ? kept : copy_to(kept, ctx.host);
    text += str(key, '\n', name_of(tensor.dtype()), ' ', tensor.rank());
    for (int i = 0; i < tensor.rank(); ++i) text += str(' ', tensor.dim(i));
    text += '\n';
    text.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
  }
  std::vector<StateDict> states;
  for (const std::string& of_rank : ctx.comm->gather_texts(text, "control")) {
    states.emplace_back();
    std::istringstream in(of_rank);
    for (std::string key, type; std::getline(in, key);) {
      int dims = 0;
      in >> type >> dims;
      std::vector<int64_t> sizes(static_cast<size_t>(dims));
      for (int64_t& size : sizes) in >> size;
      in.get();
      Tensor tensor = Tensor::empty(ctx.host, Shape(std::span<const int64_t>(sizes)), dtype_from_name(type));
      in.read(static_cast<char*>(tensor.raw()), tensor.bytes());
      states.back()[key] = tensor;
    }
  }
  return states;
}

std::unique_ptr<RankRun> RankRun::resumed(const Subject& s) {
  std::vector<StateDict> states = gather_states();
  for (size_t r = 0; r < states.size(); ++r)
    if (static_cast<int>(r) != ctx_.rank) states[r].clear();
  auto other = std::make_unique<RankRun>(comm_, s);
  other->rule_->load(ctx_, states);
  other->rule_->load_common(ctx_, app::conformance::gather_states(ctx_, rule_->common_state())[0]);
  return other;
}

std::vector<float> RankRun::dense(const ParameterSpec& p) {
  Var& var = vars_.at(p.name);
  const Tensor all = dense_of(ctx_, var.grad(), var.value());
  const auto read = ctx_.read<float>(all);
  return {read.get().begin(), read.get().end()};
}

}  // namespace lmx::app::conformance
