#include "train/session.h"

#include <cmath>
#include <exception>
#include <filesystem>

#include "base/files.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "lmx/shard_strategy.h"
#include "recipe/choices.h"
#include "recipe/optimizer.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"
#include "train/evaluate.h"

namespace lmx {
namespace {

std::unique_ptr<Batcher> make_session_batcher(const Recipe& r, SharedSession& s, const Context& ctx) {
  const Network& network = s.network;
  BatcherEnv env = batcher_env(r, s.data, ctx.host);
  if (network.model->translates()) {
    env.cost = [&s](int64_t sentences, int64_t source, int64_t target) {
      return s.costs->seconds(sentences, source, target);
    };
    env.macs = [&network](int64_t sentences, int64_t source, int64_t target) {
      return macs_of_pairs(network, sentences, source, target);
    };
  }
  return make_batcher(r, env);
}

int64_t count_steps(const Recipe& r, const Batcher& batcher) {
  if (r.train.steps > 0) return r.train.steps;
  return std::max<int64_t>(1, std::llround(std::ceil(r.train.epochs * static_cast<double>(batcher.steps_per_epoch()))));
}

// Only rank 0 measures, so that all ranks have the same sub-batches.
std::shared_ptr<SharedSession> share_session(const Recipe& r, Context& ctx, const SessionStart& start) {
  Communicator& comm = *ctx.comm;
  const std::string file = start.resumed + "/" + kCostsFile;
  std::string times = !start.resumed.empty() && std::filesystem::exists(file) ? read_file(file) : "";
  const auto make = [&] { return std::make_shared<SharedSession>(r, ctx, start, times); };
  if (comm.size() == 1 || comm.shares_memory() || !planned_batcher(r.batcher)->plan().measures_cost)
    return comm.once<std::shared_ptr<SharedSession>>(make);
  std::shared_ptr<SharedSession> own;
  std::exception_ptr error;
  try {
    if (ctx.rank == 0) own = make();
  } catch (...) {  // the error is sent to the other ranks, which would otherwise wait
    error = std::current_exception();
  }
  times = comm.gather_texts(own ? own->costs->to_json() : "", "control")[0];
  if (error) std::rethrow_exception(error);
  return own ? own : make();
}

}  // namespace

SharedSession::SharedSession(const Recipe& r, Context& ctx, const SessionStart& start, const std::string& times)
    : workers(ctx.ranks) {
  data = start.open();
  check_validation(r, data);
  network = make_network(r, data.vocabulary.size(), &data.vocabulary);
  check_model_fits_data(r, *network.model, data);
  add_parameters(ctx, params, network, r.seed);
  if (start.init) start.init(network.specs, data.vocabulary, params);
  if (times.empty())
    costs.emplace([this, &ctx](const PairCosts::Shape3& shape, int64_t repeats) {
      return measure_pairs(ctx, network, params, data.vocabulary.size(), shape, repeats);
    });
  else
    costs.emplace(times, kCostsFile);
  batcher = make_session_batcher(r, *this, ctx);
  if (costs->settle()) batcher = make_session_batcher(r, *this, ctx);
  check_batcher_fits_model(r, *batcher, *network.model);
  separator = separator_of(r, *batcher, *network.model, data);
  lr_factor = r.lr_rule.factor(r.batch.global, ctx.ranks);
  optimizer = make_optimizer(r.optimizer, "optimizer", network.specs);
  rates = rule_rates(r.optimizer, "optimizer");
  clip = read_clip(r.clip, "clip");
  metrics = Metrics(r.metric, "metric");
  check_patterns(r, network.specs);
  const auto states = [&ctx] { return ctx.allocator->stats().current[static_cast<size_t>(MemClass::optimizer)]; };
  ema_bytes = -states();
  if (r.train.ema > 0) ema.emplace(params, r.train.ema, ema_pattern(r));
  ema_bytes += states();
  total_steps = count_steps(r, *batcher);
}

std::unique_ptr<Exchanger> make_sync(const Recipe& recipe, const Network& network, const Communicator& comm) {
  const RandomKey key = RandomKey(static_cast<uint64_t>(recipe.seed)).fold("sync");
  return make_exchanger(recipe.sync, "sync",
                        SyncEnv{"", network.specs, comm.rank(), comm.size(), key, comm.nodes().per_node()});
}

namespace {

Context context_of(const Recipe& r, Communicator& c, const std::optional<Device>& device) {
  Context ctx = make_context(r, c, device);
  check_products(r, ctx.device);
  return ctx;
}

}  // namespace

Session::Session(const Recipe& r, Communicator& c, const SessionStart& start)
    : first_sequence(chunk_begin(r.batch.global, c.rank(), c.size())),
      sequences(chunk_begin(r.batch.global, c.rank() + 1, c.size()) - first_sequence),
      recipe(r),
      comm(c),
      ctx(context_of(r, c, start.device)),
      shared(share_session(r, ctx, start)),
      data(shared->data),
      network(shared->network),
      batcher(*shared->batcher),
      params(shared->params.replica()) {
  schedule = make_schedule(r.schedule, "schedule", learning_rate(r.optimizer, "optimizer") * shared->lr_factor);
  sync = make_sync(r, network, c);
  sync->check_loss(*network.loss);
  sync->check_directions(shared->clip, r.precision == "fp16", *shared->optimizer);
  if (batcher.carries_state()) carried = std::make_unique<CarriedState>(ctx, *network.model, first_sequence, sequences);
  if (!sync->servers().empty()) make_workers();
  if (!sync->replicas().empty()) make_replicas();
  summed = params.subset(params_of(sync->replicas()), false);
  make_shards();
}

StepSize Session::size_of_step(int64_t step) const {
  const StepSize said = batcher.step_size(step);
  if (said.tokens > 0 || said.sequences > 0) return said;
  LMX_CHECK(!sub_batches(), "a batcher of sub-batches must override step_size()");
  return {recipe.batch.global * batcher.sequence_length(), recipe.batch.global};
}

// The shared parameters become those of the server; this rank works on a copy.
void Session::make_workers() {
  const ServerConfig& config = sync->servers().front()->config();
  const int ranks = comm.size();
  auto files =
      comm.once<std::shared_ptr<const ClockFiles>>([&] { return std::make_shared<const ClockFiles>(config, ranks); });
  const RandomKey key = RandomKey(static_cast<uint64_t>(recipe.seed)).fold("delay");
  clock = std::make_unique<WorkerClock>(config, std::move(files), key, comm.rank(), ranks);
  clock->require(sequences > 0 ? shared->total_steps : 0);
  params = shared->params.copy(ctx);
  if (ranks > 1 && !comm.shares_memory() && !ctx.device.counts) link = std::make_unique<server::Link>(comm);
  ServerConfig usual;
  usual.schedule = config.schedule;
  if (link && leads() && config.replay.empty() && config.traits() != usual.traits())
    log_warn("[sync] delay is for virtual ranks; workers that are processes take the time that they take");
  const auto make = [this] { return make_optimizer(recipe.optimizer, "optimizer", network.specs); };
  const ServerTools tools{&shared->params, &params, make, link.get()};
  for (ServerStrategy* server : sync->servers()) server->attach(ctx, tools);
  count_shared();
}

void Session::make_replicas() {
  sync->check_batch(recipe.batch.global);
  params = shared->params.copy(ctx, params_of(sync->replicas()));
  replicas = std::make_unique<Replicas>(sync->replicas(), shared->params, params,
                                        make_optimizer(recipe.optimizer, "optimizer", network.specs), !sync->sums());
  count_shared();
  const int64_t unused = replicas->unused_steps(shared->total_steps);
  if (unused > 0 && leads() && !ctx.device.counts)
    log_warn(str("[sync] the ranks exchange their own values for the last time ", plural(unused, "step"),
                 " before the end of the run, so its result has those of that exchange; choose "
                 "train.steps so that the last step has an exchange"));
}

void Session::make_shards() {
  if (!ctx.device.counts) sync->check_run(recipe.sync);
  for (ShardStrategy* shard : sync->shards())
    shard->attach(ctx, shared->params, make_optimizer(recipe.optimizer, "optimizer", network.specs));
}

// The shared values count as memory of each rank, as if it were a separate process.
void Session::count_shared() {
  if (!comm.shares_memory() || leads()) return;
  for (const std::string& name : shared->params.names())
    held_.push_back(shared->params.at(name).value().lent(ctx.allocator, MemClass::parameters));
}

MemoryStats Session::memory() const {
  MemoryStats own = ctx.allocator->stats();
  if (!comm.shares_memory() || leads() || separate_steps()) return own;
  const MemoryStats first = shared->params.at(shared->params.names()[0]).value().allocator()->stats();
  const auto add = [&own](MemClass c, int64_t current, int64_t peak) {
    const auto i = static_cast<size_t>(c);
    own.current[i] += current;
    own.peak[i] += peak;
    own.total += current;
    own.total_peak += current;
  };
  const auto add_first = [&](MemClass c) {
    add(c, first.current[static_cast<size_t>(c)], first.peak[static_cast<size_t>(c)]);
  };
  if (!replicas) add_first(MemClass::parameters);  // count_shared()
  if (!replicas && sync->shards().empty()) {
    add_first(MemClass::optimizer);
    return own;
  }
  int64_t states = shared->ema_bytes;  // beside these, rank 0 has the state of its separate values or of its part
  for (const auto& [name, t] : shared->optimizer->state()) states += t.bytes();
  add(MemClass::optimizer, states, states);
  return own;
}

}  // namespace lmx
