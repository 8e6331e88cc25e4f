// Builds the components of a recipe; saves their state in a checkpoint and restores it.
#include <cmath>
#include <exception>
#include <filesystem>

#include "base/files.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/model_extensions.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"
#include "runfiles/checkpoint.h"
#include "runfiles/vocabulary_mark.h"
#include "train/evaluate.h"
#include "train/trainer.h"

namespace lmx::train {
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

// Numbers of state.json by name. A missing or malformed one means that another version of lmx wrote the checkpoint.
class Numbers {
 public:
  Numbers(const std::map<std::string, std::string>& values, const std::string& from) : values_(values), from_(from) {}
  double real(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw UserError(str("[resume] ", from_, "/state.json has no number ", name));
    try {
      return number_from_text(found->second);
    } catch (const UserError& e) {
      throw UserError(str("[resume] ", from_, "/state.json, ", name, ": ", e.what()));
    }
  }
  int64_t integer(const std::string& name) const { return std::llround(real(name)); }
  bool has(const std::string& name) const { return values_.contains(name); }
  void by_name(const std::string& prefix, std::map<std::string, int64_t>& counts) const {
    for (const auto& [name, text] : values_)
      if (name.starts_with(prefix)) counts[name.substr(prefix.size())] = integer(name);
  }

 private:
  const std::map<std::string, std::string>& values_;
  std::string from_;
};

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
  lr_factor = r.lr_rule.factor(r.batch.global, ctx.ranks);
  optimizer = make_optimizer(r.optimizer, "optimizer");
  clip = read_clip(r.clip, "clip");
  check_patterns(r, network.specs);
  if (r.train.ema > 0) ema.emplace(params, r.train.ema, ema_pattern(r));
  total_steps = count_steps(r, *batcher);
}

Session::Session(const Recipe& r, Communicator& c, const SessionStart& start)
    : first_sequence(chunk_begin(r.batch.global, c.rank(), c.size())),
      sequences(chunk_begin(r.batch.global, c.rank() + 1, c.size()) - first_sequence),
      recipe(r),
      comm(c),
      ctx(make_context(r, c)),
      shared(share_session(r, ctx, start)),
      data(shared->data),
      network(shared->network),
      batcher(*shared->batcher),
      params(shared->params.replica()) {
  schedule = make_schedule(r.schedule, "schedule", optimizer_rate(r) * shared->lr_factor);
  const RandomKey key = RandomKey(static_cast<uint64_t>(r.seed)).fold("sync");
  sync = std::make_unique<SyncRules>(r.sync, "sync", network.specs, c.rank(), c.size(), key);
  sync->check_loss(*network.loss);
  if (batcher.carries_state()) carried = std::make_unique<CarriedState>(ctx, *network.model, first_sequence, sequences);
  if (!sync->servers().empty()) make_workers();
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
  if (ranks > 1 && !comm.shares_memory()) link = std::make_unique<server::Link>(comm);
  ServerConfig usual;
  usual.schedule = config.schedule;
  if (link && leads() && config.replay.empty() && config.traits() != usual.traits())
    log_warn("[sync] delay is for virtual ranks; workers that are processes take the time that they take");
  const auto make = [this] { return make_optimizer(recipe.optimizer, "optimizer"); };
  const ServerTools tools{&shared->params, &params, make, link.get()};
  for (ServerStrategy* server : sync->servers()) server->attach(ctx, tools);
  if (!comm.shares_memory() || leads()) return;
  for (const std::string& name : shared->params.names())
    held_.push_back(shared->params.at(name).value().lent(ctx.allocator, MemClass::parameters));
}

MemoryStats Session::memory() const {
  MemoryStats own = ctx.allocator->stats();
  if (!comm.shares_memory() || leads() || !sync->replicated()) return own;
  const MemoryStats first = shared->params.at(shared->params.names()[0]).value().allocator()->stats();
  for (const MemClass c : {MemClass::parameters, MemClass::optimizer}) {
    const auto i = static_cast<size_t>(c);
    own.current[i] += first.current[i];
    own.peak[i] += first.peak[i];
    own.total += first.current[i];
    own.total_peak += first.current[i];
  }
  return own;
}

TrainState pack_state(const Session& s, const Position& at) {
  TrainState out;
  if (s.carried)
    for (const auto& [name, rows] : s.carried->rows())
      out.train["carried/" + name] = s.comm.all_gather(rows, "checkpoint");
  if (!s.leads()) return {};
  out.model = parameter_values(s.shared->params);
  add_with_prefix(out.train, "optimizer/", s.shared->optimizer->state());
  if (s.shared->ema) add_with_prefix(out.train, "ema/", s.shared->ema->state(s.shared->params));
  const auto put = [&](const std::string& name, double value) { out.numbers[name] = number_text(value); };
  // Counts are never written as 1e+05, since `best_step` is part of a folder's name.
  const auto count = [&](const std::string& name, int64_t value) { out.numbers[name] = std::to_string(value); };
  count("step", at.step);
  count("updates", at.updates);
  count("counted.steps", at.counted_steps);
  count("counted.tokens", at.counted_tokens);
  count("evaluated", at.evaluated);
  put("valid_ppl", at.valid_ppl);
  put("best_ppl", at.best_ppl);
  count("best_step", at.best_step);
  count("no_better", at.no_better);
  put("lr_scale", at.lr_scale);
  count("skipped_in_a_row", at.skipped_in_a_row);
  put("valid_nll", at.valid_nll);
  put("train_seconds", at.seconds);
  put("loss_scale.scale", at.loss_scale.scale);
  count("loss_scale.good", at.loss_scale.good);
  count("loss_scale.last_overflow", at.loss_scale.last_overflow);
  count("loss_scale.overflows", at.loss_scale.overflows);
  for (const auto& [name, n] : at.loss_scale.census) count("loss_scale.census." + name, n);
  put("window.nats", at.window.nats);
  count("window.tokens", at.window.tokens);
  count("window.skipped", at.window.skipped);
  count("window.updates", at.window.updates);
  count("window.positions", at.window.positions);
  count("window.padded", at.window.padded);
  count("window.overflows", at.window.overflows);
  for (const auto& [name, sum] : at.window.terms) put("window.terms." + name, sum);
  for (const auto& [name, rows] : at.window.rows) count("window.rows." + name, rows);
  for (const auto& [name, n] : at.window.overflowed) count("window.overflowed." + name, n);
  count("records", at.records);
  put_mark(out.numbers, mark_of(s.data.vocabulary));
  const std::vector<double> schedule = s.schedule->state();
  for (size_t i = 0; i < schedule.size(); ++i) put(str("schedule.", i), schedule[i]);
  return out;
}

Position unpack_state(Session& s, const TrainState& state, const std::string& from, bool same_batch) {
  s.comm.once<int>([&] {
    load_parameters(s.shared->params, state.model, from);
    s.shared->optimizer->load(s.ctx, s.params, with_prefix(state.train, "optimizer/"));
    if (s.shared->ema) s.shared->ema->load(with_prefix(state.train, "ema/"));
    return 0;
  });
  s.sync->load(s.ctx, state.ranks);
  if (s.carried && same_batch) s.carried->load(with_prefix(state.train, "carried/"), s.recipe.batch.global, from);
  const Numbers n(state.numbers, from);
  Position at;
  at.step = n.integer("step");
  // Version 0.1.0 stored no updates and no token counts: its steps count as updates, and tokens are counted again.
  at.updates = n.has("updates") ? n.integer("updates") : at.step;
  at.counted_steps = n.has("counted.steps") ? n.integer("counted.steps") : 0;
  at.counted_tokens = n.has("counted.tokens") ? n.integer("counted.tokens") : 0;
  at.evaluated = n.integer("evaluated");
  at.valid_ppl = n.real("valid_ppl");
  at.best_ppl = n.real("best_ppl");
  at.best_step = n.integer("best_step");
  at.no_better = n.has("no_better") ? n.integer("no_better") : 0;  // not in checkpoints before stop.patience
  at.lr_scale = n.real("lr_scale");
  at.skipped_in_a_row = n.integer("skipped_in_a_row");
  at.window.nats = n.real("window.nats");
  at.window.tokens = n.integer("window.tokens");
  at.window.skipped = n.integer("window.skipped");
  at.window.updates = n.integer("window.updates");
  at.valid_nll = n.real("valid_nll");
  at.seconds = n.real("train_seconds");
  at.window.positions = n.integer("window.positions");
  at.window.padded = n.integer("window.padded");
  at.window.overflows = n.integer("window.overflows");
  at.loss_scale = {n.real("loss_scale.scale"),
                   n.integer("loss_scale.good"),
                   n.integer("loss_scale.last_overflow"),
                   n.integer("loss_scale.overflows"),
                   {}};
  at.records = n.has("records") ? n.integer("records") : -1;
  at.open = open_window(windows_of(state.numbers, s.comm.rank(), s.comm.size()), from);
  for (const std::string& name : loss_terms(*s.network.model))
    if (n.has("window.terms." + name)) at.window.terms[name] = n.real("window.terms." + name);
  n.by_name("window.rows.", at.window.rows);
  n.by_name("window.overflowed.", at.window.overflowed);
  n.by_name("loss_scale.census.", at.loss_scale.census);
  std::vector<double> schedule;
  for (size_t i = 0; n.has(str("schedule.", i)); ++i) schedule.push_back(n.real(str("schedule.", i)));
  s.schedule->load(schedule);
  if (s.asynchronous()) unpack_worker(s, state.ranks[static_cast<size_t>(s.ctx.rank)], at);
  return at;
}

}  // namespace lmx::train
