// A rule whose parameters are stored on a server: its keys, and the end of a worker.
#include <algorithm>

#include "comm/rows.h"
#include "lmx/error.h"
#include "lmx/param_server.h"
#include "lmx/row_sync.h"
#include "nn/state_dict.h"
#include "sync/server/server_remote.h"

namespace lmx {

void DelayConfig::fields(Fields& f) {
  f.choice("kind", kind, {"fixed", "exponential", "trace"}, "duration of a worker's step in simulated time");
  f.field("mean", mean, "fixed, exponential: mean duration of a step, in simulated seconds", kNonNegative);
  f.field("spread", spread, "workers differ in speed: durations of one are multiplied by 1 + spread u, u in [-1, 1)",
          {0, 0.99});
  f.field(
      "file", file,
      "trace: seconds, a line a step; one column for each worker, or one column, which they begin at equal distances");
}

void ServerConfig::fields(Fields& f) {
  f.group("codec", codec, "how gradients are encoded on the way to the server; parameters are sent back unchanged");
  f.group("delay", delay, "the simulated clock of virtual ranks; processes (comm=mpi) use real time");
  f.field("schedule", schedule, "file into which the order of pulls and pushes is written; empty: none");
  f.field("replay", replay,
          "a file written by `schedule`, whose order is repeated, in threads or in processes; empty: none");
}

void ServerConfig::check(const std::string& where) const {
  codec.check(where);
  codec.check_sums(where, "a server adds each push to its values in fp32");
  if ((delay.kind == "trace") != !delay.file.empty())
    throw UserError(str(where, ".delay: ",
                        delay.file.empty() ? "kind trace needs a file of durations"
                                           : str("a file of durations is for kind trace, not ", delay.kind)));
}

Traits ServerConfig::traits() const {
  return {{trait::kWorkerClock, str("delay {kind: ", delay.kind, ", mean: ", delay.mean, ", spread: ", delay.spread,
                                    ", file: '", delay.file, "'}, schedule '", schedule, "', replay '", replay, "'")}};
}

// A worker's end of the parameter server. It accesses shards in the same process directly.

using server::Histogram;
using server::Part;
using server::Shard;

namespace {

constexpr const char *kReplica = "replica/", *kResidual = "residual/";

// The lines of the ledger for what a shard has exchanged with the workers of other ranks.
struct Served {
  LedgerEntry pull, push;
};

// By rank; if the other ranks are in other processes, or are not counted, only the own shard exists. Only the worker
// whose turn it is may access it.
struct Shards {
  explicit Shards(int ranks) : of(static_cast<size_t>(ranks)), served(of.size()) {}
  std::vector<std::unique_ptr<Shard>> of;
  std::vector<Served> served;
};

void copy_rows(Context& ctx, const Tensor& from, Tensor& to, const std::vector<int32_t>& rows) {
  for (const int32_t row : rows) LMX_CHECK(row >= 0 && row < from.dim(0), "row ", row, " of ", from.shape());
  const int64_t width = row_width(from.shape());
  const auto at = ctx.upload(rows);
  run_kernel(
      ctx,
      comm::CopyRows<float>{
          {from.data<float>(), width, 0, at.data()}, {}, {to.data<float>(), width, 0, at.data()}, at.size(), width});
}

}  // namespace

struct ServerStrategy::Impl {
  Impl(ServerConfig c, SyncEnv e) : config(std::move(c)), env(std::move(e)), pushes(config.codec, env.ranks) {}

  int64_t begin(int64_t n, int shard) const { return chunk_begin(n, shard, env.ranks); }
  Shard& own_shard() const { return *shards->of[static_cast<size_t>(env.rank)]; }
  const std::vector<int32_t>* chosen(const std::string& name) const {
    const auto found = rows.find(name);
    return found == rows.end() ? nullptr : &found->second;
  }
  // The number of a shard's rows in [0, n): of all rows, or of the chosen ones.
  int64_t count(const std::vector<int32_t>* chosen, int64_t n, int shard) const {
    const int64_t first = begin(n, shard), last = begin(n, shard + 1);
    if (!chosen) return last - first;
    return std::lower_bound(chosen->begin(), chosen->end(), last) -
           std::lower_bound(chosen->begin(), chosen->end(), first);
  }
  // Adds to `step` the bytes of one parameter's rows that are pulled, and to `line` those from the shards of other
  // ranks.
  void count_pull(const Tensor& value, const std::vector<int32_t>* chosen, const RankNodes& nodes, LedgerEntry& line);

  ServerConfig config;
  SyncEnv env;
  ServerTools tools;
  std::shared_ptr<Shards> shards;
  server::Rows rows;  // rows chosen for the step
  server::Push pushes;
  std::unique_ptr<server::Remote> remote;  // null: all shards are in this process
  ServerBytes step;
};

ServerStrategy::ServerStrategy(ServerConfig config, SyncEnv env)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(env))) {}
ServerStrategy::~ServerStrategy() = default;

const ServerConfig& ServerStrategy::config() const {
  return impl_->config;
}

const ServerBytes& ServerStrategy::bytes() const {
  return impl_->step;
}

const SyncEnv& ServerStrategy::env() const {
  return impl_->env;
}

void ServerStrategy::attach(Context& ctx, const ServerTools& tools) {
  Impl& s = *impl_;
  LMX_CHECK(tools.link || ctx.ranks == 1 || ctx.comm->shares_memory() || ctx.device.counts,
            "no link to shards in other processes");
  s.tools = tools;
  s.shards = ctx.comm->once<std::shared_ptr<Shards>>([&] { return std::make_shared<Shards>(ctx.ranks); });
  std::vector<std::string> names;
  for (const ParameterSpec& spec : s.env.params) names.push_back(spec.name);
  const auto range = [&](int64_t n) { return std::pair(s.begin(n, ctx.rank), s.begin(n, ctx.rank + 1)); };
  s.shards->of[static_cast<size_t>(ctx.rank)] = std::make_unique<Shard>(
      ctx, tools.server->views(names, range), tools.make_optimizer(), ctx.ranks, s.config.codec);
  if (tools.link)
    s.remote = std::make_unique<server::Remote>(*tools.link, ctx, s.env.group, names, *tools.server, s.own_shard(),
                                                s.pushes.encodes());
  ctx.comm->barrier();
}

void ServerStrategy::begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan) {
  impl_->rows = choose_rows(ctx, share, plan);
}

std::map<std::string, std::vector<int32_t>> ServerStrategy::choose_rows(Context&, std::span<const Batch>, StepPlan&) {
  return {};
}

void ServerStrategy::Impl::count_pull(const Tensor& value, const std::vector<int32_t>* chosen, const RankNodes& nodes,
                                      LedgerEntry& line) {
  for (int r = 0; r < env.ranks; ++r) {
    const int64_t n = count(chosen, value.dim(0), r), bytes = 4 * n * row_width(value.shape()),
                  request = chosen ? server::request_bytes(n) : 0;
    step.requested += request;
    step.replied += bytes;
    if (r == env.rank) continue;
    const bool crosses = nodes.apart(r, env.rank);
    Served& served = shards->served[static_cast<size_t>(r)];
    served.pull.add_received(request, crosses);
    served.pull.add_sent(bytes, crosses);
    line.add_sent(request, crosses);
    line.add_received(bytes, crosses);
  }
}

void ServerStrategy::pull(Context& ctx) {
  Impl& s = *impl_;
  if (s.remote) return s.remote->pull(s.rows, *s.tools.replica);
  LedgerEntry line{.group = s.env.group, .collective = "pull"};
  s.step = {};
  for (const ParameterSpec& spec : s.env.params) {
    const Tensor& from = s.tools.server->at(spec.name).value();
    Var& replica = s.tools.replica->at(spec.name);
    const std::vector<int32_t>* chosen = s.chosen(spec.name);
    if (chosen) {
      copy_rows(ctx, from, replica.value(), *chosen);
    } else {
      replica.value().copy_from(from);
    }
    replica.changed();
    s.count_pull(from, chosen, ctx.comm->nodes(), line);
  }
  for (const auto& shard : s.shards->of)
    if (shard) shard->pulled(ctx.rank);
  if (ctx.ranks > 1) ctx.comm->count(std::move(line));
}

void ServerStrategy::select(Context& ctx) {
  for (const auto& [name, rows] : impl_->rows) {
    Var& param = impl_->tools.replica->at(name);
    Gradient& grad = param.grad();
    if (grad.empty()) continue;
    RowSparse chosen = pack_rows(ctx, rows_of(ctx, grad, param.value()), rows);
    grad.clear();
    grad.pieces.push_back(std::move(chosen));
  }
}

void ServerStrategy::push(Context& ctx, double lr, const ClipResult& clipped) {
  Impl& s = *impl_;
  std::vector<std::vector<Part>> parts(static_cast<size_t>(ctx.ranks));
  for (const ParameterSpec& spec : s.env.params)
    s.pushes.add(ctx, s.tools.replica->at(spec.name), clipped.factor(spec.name), parts);
  if (s.remote) return s.remote->push(parts, lr);
  LedgerEntry line{.group = s.env.group, .collective = "push"};
  for (int r = 0; r < ctx.ranks; ++r) {
    const auto i = static_cast<size_t>(r);
    int64_t bytes = 0;
    for (const Part& p : parts[i])
      bytes += server::push_bytes(s.pushes.codec(), p.sparse, p.count,
                                  row_width(s.tools.server->at(p.name).value().shape()));
    s.step.pushed += bytes;
    if (r != ctx.rank) {
      const bool crosses = ctx.comm->nodes().apart(r, ctx.rank);
      line.add_sent(bytes, crosses);
      s.shards->served[i].push.add_received(bytes, crosses);
    }
    if (s.shards->of[i]) s.shards->of[i]->apply(ctx.rank, std::move(parts[i]), lr);
  }
  if (ctx.ranks > 1) ctx.comm->count(std::move(line));
}

void ServerStrategy::count_served(Context& ctx) {
  Served& own = impl_->shards->served[static_cast<size_t>(ctx.rank)];
  for (auto& [name, line] : {std::pair("pull", &own.pull), std::pair("push", &own.push)}) {
    line->group = impl_->env.group;
    line->collective = name;
    if (line->sent + line->received > 0) ctx.comm->count(*line);
  }
  own = {};
}

// Ranks of one process share the values already; the ledger counts the bytes that they would send to each other.
void ServerStrategy::publish(Context& ctx) {
  Impl& s = *impl_;
  LedgerEntry line{.group = s.env.group, .collective = "all_gather"};
  for (const ParameterSpec& spec : s.env.params) {
    Tensor& t = s.tools.server->at(spec.name).value();
    std::vector<int64_t> rows;
    for (int r = 0; r < ctx.ranks; ++r) rows.push_back(s.count(nullptr, t.dim(0), r));
    if (s.remote) {
      const int64_t first = s.begin(t.dim(0), ctx.rank), last = s.begin(t.dim(0), ctx.rank + 1);
      t.copy_from(ctx.comm->all_gather(t.slice(first, last), rows, s.env.group));
      continue;
    }
    for (int r = 0; r < ctx.ranks; ++r) {
      const bool crosses = ctx.comm->nodes().apart(r, ctx.rank);
      if (r == ctx.rank) continue;
      line.add_sent(4 * row_width(t.shape()) * rows[static_cast<size_t>(ctx.rank)], crosses);
      line.add_received(4 * row_width(t.shape()) * rows[static_cast<size_t>(r)], crosses);
    }
  }
  if (ctx.ranks > 1 && !s.remote) ctx.comm->count(std::move(line));
  ctx.comm->once<int>([&] {
    for (const ParameterSpec& spec : s.env.params) s.tools.server->at(spec.name).changed();
    return 0;
  });
}

StateDict ServerStrategy::state() const {
  const Impl& s = *impl_;
  StateDict all = s.own_shard().state();
  for (const auto& [key, t] : s.pushes.state()) all.emplace(kResidual + key, t);
  for (const ParameterSpec& spec : s.env.params)
    all.emplace(kReplica + spec.name, s.tools.replica->at(spec.name).value());
  return all;
}

void ServerStrategy::load(Context& ctx, const std::vector<StateDict>& ranks) {
  Impl& s = *impl_;
  if (static_cast<int>(ranks.size()) != ctx.ranks)
    throw UserError(str("[sync] sync.", s.env.group, ": the checkpoint is of ", plural(ranks.size(), "worker"),
                        ", each at another step and with a replica of another age; ", ctx.ranks,
                        " cannot continue from it. Resume with ", plural(ranks.size(), "rank")));
  const StateDict& own = ranks[static_cast<size_t>(ctx.rank)];
  s.own_shard().load(own);
  std::vector<StateDict> residuals;
  for (const StateDict& state : ranks) residuals.push_back(with_prefix(state, kResidual));
  s.pushes.load(ctx, residuals);
  const StateDict replica = with_prefix(own, kReplica);
  for (const ParameterSpec& spec : s.env.params) {
    Var& param = s.tools.replica->at(spec.name);
    const auto found = replica.find(spec.name);
    if (found == replica.end() || found->second.shape() != param.shape())
      throw UserError(str("[sync] sync.", s.env.group, ": the checkpoint has no replica of ", spec.name, ' ',
                          param.shape(), ": it is from another model"));
    param.value().copy_from(ctx.upload(found->second));
    param.changed();
  }
}

std::vector<std::string> ServerStrategy::warnings(bool loss_scaled) const {
  return config().codec.warnings(str("sync.", env().group, ".codec"), loss_scaled);
}

std::string ServerStrategy::describe(int ranks) const {
  const DelayConfig& delay = impl_->config.delay;
  std::string how = str("take ", delay.mean, " s each");
  if (delay.kind == "exponential") how = str("take ", delay.mean, " s on average, exponentially");
  if (delay.kind == "trace") how = str("take the times of ", delay.file);
  if (delay.spread > 0) how += str(", workers differ by ", delay.spread);
  if (!impl_->config.replay.empty()) how = "happen in the order of " + impl_->config.replay;
  const std::string workers = str("asynchronous, ", plural(ranks, "worker"));
  if (!impl_->remote) return str(workers, "; on the simulated clock steps ", how);
  if (impl_->config.replay.empty()) how = "take real time";
  return str(workers, " in separate processes; steps ", how);
}

std::map<std::string, CodecHealth> ServerStrategy::take_health() {
  return impl_->pushes.take_health();
}

std::vector<std::pair<std::string, double>> ServerStrategy::take_values() {
  const Histogram recent = impl_->own_shard().take_staleness();
  std::vector<std::pair<std::string, double>> values;
  if (recent.empty()) return values;
  values.emplace_back("staleness_mean", server::mean_of(recent));
  values.emplace_back("staleness_max", static_cast<double>(recent.rbegin()->first));
  for (const auto& [staleness, n] : recent) values.emplace_back(str("staleness/", staleness), static_cast<double>(n));
  return values;
}

std::string ServerStrategy::summary() const {
  const Histogram& all = impl_->own_shard().staleness();
  if (all.empty()) return {};
  std::string text = str("staleness of updates ", server::mean_of(all), " on average; how often each:");
  for (const auto& [staleness, n] : all)
    text += str(' ', staleness, ": ", n, staleness == all.rbegin()->first ? "" : ",");
  return text;
}

}  // namespace lmx
