#include "train/position.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/shard_strategy.h"
#include "nn/state_dict.h"
#include "optim/states.h"
#include "runfiles/vocabulary_mark.h"
#include "train/loop/worker_state.h"

namespace lmx {
namespace {

// The parts of train_state.safetensors, beside those of the header.
constexpr const char *kOptimizer = "optimizer/", *kCarried = "carried/";

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
  double real_in(const std::string& name, double least, double most) const {
    const double value = real(name);
    if (value >= least && value <= most) return value;
    throw UserError(str("[resume] ", from_, "/state.json, ", name, " is ", number_text(value), "; it must be from ",
                        number_text(least), " to ", number_text(most)));
  }
  // A count: every integer up to 2^53 has a double.
  int64_t integer(const std::string& name, double least = 0) const {
    return std::llround(real_in(name, least, 9007199254740992.0));
  }
  bool has(const std::string& name) const { return values_.contains(name); }
  void by_name(const std::string& prefix, std::map<std::string, int64_t>& counts) const {
    for (const auto& [name, text] : values_)
      if (name.starts_with(prefix)) counts[name.substr(prefix.size())] = integer(name);
  }

 private:
  const std::map<std::string, std::string>& values_;
  std::string from_;
};

// The averages of an optimizer with the trait kAverages: for use only, since its state determines them.
StateDict averages_of(Context& ctx, SharedSession& shared, const StateDict& values) {
  shared.optimizer->evaluate(ctx, shared.params, true);
  StateDict averages = parameter_values(shared.params);
  shared.optimizer->evaluate(ctx, shared.params, false);
  std::erase_if(averages, [&](const auto& entry) { return entry.second.raw() == values.at(entry.first).raw(); });
  return averages;
}

}  // namespace

RunState::RunState(Session& session, std::string folder, const Position& start, int64_t until_step)
    : s(session),
      directory(std::move(folder)),
      terms(loss_terms(*s.network.model)),
      scaling(s.recipe.loss_scale, s.recipe.precision),
      at(start),
      until(until_step) {
  if (at.loss_scale.scale == 0) at.loss_scale = scaling.start();
}

bool RunState::log_due(int64_t step) const {
  return step % s.recipe.train.log_every == 0 || step == last_step();
}

bool RunState::eval_due(int64_t step) const {
  const int64_t every = s.recipe.train.eval_every > 0 ? s.recipe.train.eval_every : s.batcher.steps_per_epoch();
  return step % every == 0 || step == last_step();
}

bool RunState::recipe_reads(int64_t step) const {
  const int64_t every = s.recipe.checkpoint.every;
  return eval_due(step) || (every > 0 && step % every == 0);
}

bool RunState::whole_due(int64_t step) const {
  return recipe_reads(step) || step == until;
}

TrainState pack_state(const Session& s, const Position& at) {
  TrainState out;
  if (s.carried)
    for (const auto& [name, rows] : s.carried->rows())
      out.train[kCarried + name] = s.comm.all_gather(rows, "checkpoint");
  Context ctx = s.ctx;
  for (const ShardStrategy* shard : s.sync->shards())
    add_with_prefix(out.train, kOptimizer, shard->gather_optimizer(ctx));
  if (!s.leads()) return {};
  out.model = parameter_values(s.shared->params);
  add_with_prefix(out.train, kOptimizer, s.shared->optimizer->state());
  add_with_prefix(out.train, kAverages,
                  s.shared->ema ? s.shared->ema->state(ctx, s.shared->params) : averages_of(ctx, *s.shared, out.model));
  add_with_prefix(out.train, kCommonState, s.sync->common_state());
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
  if (at.valid_bpb > 0) put("valid_bpb", at.valid_bpb);
  put("train_seconds", at.seconds);
  put("loss_scale.scale", at.loss_scale.scale);
  count("loss_scale.good", at.loss_scale.good);
  count("loss_scale.last_overflow", at.loss_scale.last_overflow);
  count("loss_scale.overflows", at.loss_scale.overflows);
  for (const auto& [name, n] : at.loss_scale.census) count("loss_scale.census." + name, n);
  put("window.grad_norm", at.window.grad_norm);
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

namespace {

// The state of the optimizer of one of the rules that divide the update, or, if `shard` is null, of the others.
StateDict optimizer_of(const Session& s, const StateDict& all, const ShardStrategy* shard) {
  std::map<std::string, const ShardStrategy*> shard_of;
  for (const ShardStrategy* one : s.sync->shards())
    for (const ParameterSpec& spec : one->env().params) shard_of[spec.name] = one;
  StateDict part = with_prefix(all, kOptimizer);
  std::erase_if(part, [&](const auto& slot) {
    const auto found = shard_of.find(
        optim::param_of_slot(slot.first, [&](const std::string& name) { return s.shared->params.contains(name); }));
    return (found == shard_of.end() ? nullptr : found->second) != shard;
  });
  return part;
}

// UserError: the run would continue without a part of its state.
void require_known(const StateDict& train, const std::string& from) {
  const char* const parts[] = {kOptimizer, kAverages, kCarried, kCommonState};
  for (const auto& [name, tensor] : train)
    if (std::none_of(std::begin(parts), std::end(parts), [&](const char* part) { return name.starts_with(part); }))
      throw UserError(str("[resume] ", from, " has the state '", name,
                          "', which this version of lmx does not read; continue with the version that wrote it"));
}

}  // namespace

Position unpack_state(Session& s, const TrainState& state, const std::string& from, bool same_batch) {
  require_known(state.train, from);
  s.comm.once<int>([&] {
    load_parameters(s.shared->params, state.model, from);
    s.shared->optimizer->load(s.ctx, s.params, optimizer_of(s, state.train, nullptr));
    if (s.shared->ema) s.shared->ema->load(with_prefix(state.train, kAverages));
    return 0;
  });
  for (ShardStrategy* shard : s.sync->shards()) shard->load_optimizer(s.ctx, optimizer_of(s, state.train, shard));
  // Ranks write no files if no rank has a separate state.
  std::vector<StateDict> ranks = state.ranks;
  if (ranks.empty()) ranks.resize(static_cast<size_t>(s.ctx.ranks));
  s.sync->load(s.ctx, ranks);
  s.sync->load_common(s.ctx, with_prefix(state.train, kCommonState));
  if (s.replicas) s.replicas->load(s.ctx, ranks);
  if (s.carried && same_batch) s.carried->load(with_prefix(state.train, kCarried), s.recipe.batch.global, from);
  const Numbers n(state.numbers, from);
  Position at;
  at.step = n.integer("step");
  // Version 0.1.0 stored no updates and no token counts: its steps count as updates, and tokens are counted again.
  at.updates = n.has("updates") ? n.integer("updates") : at.step;
  at.counted_steps = n.has("counted.steps") ? n.integer("counted.steps") : 0;
  at.counted_tokens = n.has("counted.tokens") ? n.integer("counted.tokens") : 0;
  at.evaluated = n.integer("evaluated", -1);  // -1: none yet
  at.valid_ppl = n.real("valid_ppl");
  at.best_ppl = n.real("best_ppl");
  at.best_step = n.integer("best_step", -1);
  at.no_better = n.has("no_better") ? n.integer("no_better") : 0;  // not in checkpoints before stop.patience
  at.lr_scale = n.real_in("lr_scale", 0, 1);
  at.skipped_in_a_row = n.integer("skipped_in_a_row");
  // Version 0.3.0 did not save it.
  if (n.has("window.grad_norm")) at.window.grad_norm = n.real("window.grad_norm");
  at.window.nats = n.real("window.nats");
  at.window.tokens = n.integer("window.tokens");
  at.window.skipped = n.integer("window.skipped");
  at.window.updates = n.integer("window.updates");
  at.valid_nll = n.real("valid_nll");
  at.valid_bpb = n.has("valid_bpb") ? n.real("valid_bpb") : 0;
  at.seconds = n.real("train_seconds");
  at.window.positions = n.integer("window.positions");
  at.window.padded = n.integer("window.padded");
  at.window.overflows = n.integer("window.overflows");
  at.loss_scale = {n.real_in("loss_scale.scale", 0, 1e300),
                   n.integer("loss_scale.good"),
                   n.integer("loss_scale.last_overflow", -1),
                   n.integer("loss_scale.overflows"),
                   {}};
  at.records = n.has("records") ? n.integer("records", -1) : -1;
  at.open = open_window(windows_of(state.numbers, s.comm.rank(), s.comm.size()), from);
  for (const std::string& name : loss_terms(*s.network.model))
    if (n.has("window.terms." + name)) at.window.terms[name] = n.real("window.terms." + name);
  n.by_name("window.rows.", at.window.rows);
  n.by_name("window.overflowed.", at.window.overflowed);
  n.by_name("loss_scale.census.", at.loss_scale.census);
  std::vector<double> schedule;
  for (size_t i = 0; n.has(str("schedule.", i)); ++i) schedule.push_back(n.real(str("schedule.", i)));
  s.schedule->load(schedule);
  if (s.separate_steps()) unpack_worker(s, ranks[saved_rank(s.ctx.rank, ranks.size(), s.ctx.ranks)], at);
  return at;
}

}  // namespace lmx
