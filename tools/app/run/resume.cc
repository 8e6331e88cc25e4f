#include "app/run/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "app/runs/run_directory.h"
#include "app/runs/stored_parameters.h"
#include "app/runs/supervision.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/plugin.h"
#include "nn/state_dict.h"
#include "recipe/choices.h"
#include "recipe/sync_rules.h"
#include "runfiles/checkpoint.h"
#include "train/position.h"

namespace lmx::app {
namespace {

// Collects the leaves by path; lists count as leaves.
void collect(const Node& node, const std::string& path, std::map<std::string, std::string>& leaves) {
  if (node.kind != Node::Kind::map) {
    leaves[path] = node.kind == Node::Kind::scalar ? node.text : to_json(node);
    return;
  }
  for (const auto& [key, value] : node.entries) collect(value, config::join_path(path, key), leaves);
}

bool may_differ(const std::string& path) {
  static const std::set<std::string> exact{"batch.fit",         "train.preflight",     "device",
                                           "threads",           "train.steps",         "train.epochs",
                                           "train.log_every",   "train.eval_every",    "train.eval_batch",
                                           "train.eval_tokens", "train.eval_carry",    "train.eval_shards",
                                           "train.max_loss",    "train.on_divergence", "data.cache_dir",
                                           "data.threads",      "train.final_bleu",    "train.final_average"};
  for (const char* group : {"run.", "memory.", "checkpoint.", "stop.", "comm.", "metric.", "provenance"})
    if (path.starts_with(group)) return true;
  return exact.contains(path);
}

std::string lines_of(const std::vector<KeyDifference>& all) {
  std::string text;
  for (const KeyDifference& d : all) text += str("\n  ", d.key, ": ", d.there, " there, ", d.here, " here");
  return text;
}

constexpr const char* kChangeable =
    "optimizer.* and schedule.* (not their name, nor params of a rule), lr_rule.*, batch.*, clip, loss_scale.*, sync";

// The keys of the loss and of the model that they let change: {"loss.label_smoothing", "model.dropout", ...}.
std::vector<std::string> changeable_of_components(const Node& recipe) {
  std::vector<std::string> keys;
  const auto add = [&](const char* part, const std::string& names) {
    for (const std::string& name : config::split(names, ' '))
      if (!name.empty()) keys.push_back(config::join_path(part, name));
  };
  const Node *loss = recipe.find("loss"), *model = recipe.find("model");
  add("loss", loss_trait(loss ? *loss : Node(), "loss", trait::kChangeable));
  if (model) add("model", trait_of(PluginKind::model, *model, "model", trait::kChangeable));
  return keys;
}

// Returns whether `path` is `key` itself or a key below it.
bool covers(const std::string& key, const std::string& path) {
  return path == key || (path.starts_with(key) && path[key.size()] == '.');
}

bool is_named(const std::vector<std::string>& keys, const std::string& path) {
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return covers(key, path); });
}

// Returns whether `key` names an optimizer, a schedule or a rule of `optimizer` as a whole, or what determines the
// state that it has: the name, or the parameters of a rule.
bool determines_state(const std::string& key, const Node& recipe) {
  const std::string name = key.substr(key.rfind('.') + 1);
  const Node* node = recipe.at_path(key);
  return key.find('.') == std::string::npos || name == "name" || name == "params" ||
         (node && node->kind == Node::Kind::map && node->find("params"));
}

// Returns why a run cannot continue with another value of the key; "" if the checkpoint does not depend on the value.
std::string why_fixed(const std::string& key, const Node& recipe, const std::vector<std::string>& of_components) {
  const std::string group = key.substr(0, key.find('.'));
  if (group == "run") return "it continues in its own folder";
  if (key == "clip" || group == "lr_rule" || group == "batch" || group == "loss_scale") return "";
  if (is_named(of_components, key)) return "";
  if (group == "sync")
    return is_asynchronous(*recipe.find("sync"), "sync") || has_replicas(*recipe.find("sync"), "sync")
               ? "with this strategy ranks have separate values, which the checkpoint does not hold"
               : "";
  if (group == "optimizer" || group == "schedule")
    return !determines_state(key, recipe) ? "" : str("the checkpoint holds the state of the run's own ", group);
  if (group == "model" || group == "loss")
    return "the checkpoint's parameters have the shapes and the meaning of the run's own";
  if (group == "data" || group == "batcher") return "the run's place in its text is counted in its own batches";
  if (group == "seed") return "every random number of the run is drawn with it";
  return "the checkpoint holds what the run's own value has made";
}

// Shapes come first in a message, because a different shape says more than the keys that caused it.
std::string shape_difference(const Session& session, const StateDict& values) {
  for (const std::string& name : session.params.names()) {
    const auto found = values.find(name);
    const Shape& here = session.params.at(name).shape();
    if (found != values.end() && found->second.shape() != here)
      return str("\n  parameter ", name, " is ", found->second.shape(), " there, ", here, " here");
  }
  return {};
}

// Another strategy cannot continue with what ranks have kept for the run's own one: residuals, moments, or values.
void check_ranks_keep_nothing(const TrainState& state, const std::vector<KeyDifference>& changes) {
  const auto of_sync = [](const KeyDifference& d) { return d.key.starts_with("sync."); };
  const auto found = std::find_if(changes.begin(), changes.end(), of_sync);
  StateDict kept = with_prefix(state.train, kCommonState);
  for (const StateDict& rank : state.ranks) kept.insert(rank.begin(), rank.end());
  if (found == changes.end() || kept.empty()) return;
  throw UserError(str("[resume] --change ", found->key, ": the ranks have kept ", kept.begin()->first,
                      " for the run's own strategy of sync, which no other one continues with; a new run can start "
                      "from the weights with `init: {from: RUN}`"));
}

void check_steps_left(const Session& s, const Resumed& resumed) {
  const int64_t all = s.shared->total_steps;
  const bool changed = !resumed.changes.empty();
  if (changed ? resumed.at.step < all : resumed.at.step <= all) return;
  throw UserError(str("[resume] ", changed ? "with these changes " : "", "the run has ", all,
                      " steps in all, and it has made ", resumed.at.step,
                      "; give more train.steps or train.epochs as well"));
}

struct Loaded {
  TrainState state;
  std::string folder;
};

// The last of these checkpoints. If it is damaged and the start is unattended, the last one that is intact.
template <class Load>
Loaded load_last(const std::vector<CheckpointInfo>& all, bool unattended, const Load& load) {
  for (size_t i = all.size(); i-- > 0;) {
    try {
      return {load(all[i].folder), all[i].folder};
    } catch (const UserError& e) {
      if (!unattended || i == 0) throw;
      log_warn(str(e.what(), "; the run continues from ", all[i - 1].folder));
    }
  }
  return {};
}

// Ranks in one process read the checkpoint once and completely. A rank in a separate process reads only the part that
// it needs, of the checkpoint that rank 0 has read.
Loaded load_for(Session& s, const std::vector<CheckpointInfo>& all, bool unattended) {
  if (s.comm.shares_memory())
    return s.comm.once<Loaded>([&] {
      return load_last(all, unattended, [&](const std::string& folder) { return load_checkpoint(folder, s.ctx.host); });
    });
  const auto load = [&](const std::string& folder) {
    return load_checkpoint_of(folder, s.ctx.host, s.comm.rank(), s.comm.size());
  };
  if (!unattended) return load_last(all, false, load);
  Loaded loaded;
  if (s.leads()) loaded = load_last(all, true, load);
  const auto index = std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.folder == loaded.folder; });
  const double own[] = {static_cast<double>(index - all.begin())};
  const std::string& folder = all.at(static_cast<size_t>(s.comm.gather_numbers(own, "control")[0])).folder;
  if (!s.leads()) loaded = {load(folder), folder};
  return loaded;
}

// A recorded recipe is compared after the keys that are newer than it got their defaults. UserError: it has a key that
// this lmx does not have.
Node with_newer_keys(const Node& recorded) {
  return full_recipe(recorded, "");
}

// Returns whether the key names the place of the data. A run may continue at another place if the content is the same.
bool names_a_place(const std::string& key) {
  return key.starts_with("data.") && (key.ends_with("files") || key == "data.corpus" || key == "data.subword_model");
}

}  // namespace

std::string directory_to_resume(const std::string& resume, const Recipe& recipe) {
  if (resume.empty()) return {};
  if (resume == "auto") return newest_run(recipe.run.dir, recipe.name);
  if (!std::filesystem::exists(resume)) static_cast<void>(read_run_config(resume));  // throws its message
  return resume;
}

std::vector<KeyDifference> differences(const Node& before, const Node& now) {
  std::map<std::string, std::string> there, here;
  collect(before, "", there);
  collect(now, "", here);
  std::set<std::string> paths;
  for (const auto& [path, value] : there) paths.insert(path);
  for (const auto& [path, value] : here) paths.insert(path);
  std::vector<KeyDifference> found;
  for (const std::string& path : paths) {
    const auto a = there.find(path), b = here.find(path);
    const std::string left = a == there.end() ? "(absent)" : a->second,
                      right = b == here.end() ? "(absent)" : b->second;
    if (left != right && !may_differ(path)) found.push_back({path, left, right});
  }
  return found;
}

bool is_same_recipe(const std::string& recorded, const std::string& now) {
  if (recorded == now) return true;
  try {
    return to_yaml(with_newer_keys(parse_yaml(recorded, "recorded"))) == now;
  } catch (const UserError&) {
    return false;
  }
}

void check_changeable(const std::string& key, const Node& recipe) {
  if ((may_differ(key) && key != "run.dir") || names_a_place(key)) return;
  std::vector<std::string> keys = changeable_of_components(recipe);
  const std::string why = why_fixed(key, recipe, keys);
  if (why.empty()) return;
  keys.insert(keys.begin(), kChangeable);
  throw UserError(str("[resume] --change ", key, ": a resumed run keeps it, because ", why,
                      "; `init: {from: RUN}` starts a new run from the weights of another. Keys that may change: ",
                      config::join(keys), ", and keys that may differ without --change (train.steps, stop.*, ...)"));
}

BatchConfig batch_of_run(BatchConfig batch, const std::string& directory, const std::vector<std::string>& changed,
                         Communicator& comm) {
  std::vector<double> numbers;
  const Node config = comm.rank() == 0 ? read_run_config(directory) : Node();
  for (const char* key : {"batch.global", "batch.micro", "batch.micro_tokens"}) {
    const Node* node = config.at_path(key);
    numbers.push_back(node ? number_from_text(node->text) : 0);
  }
  const std::vector<double> first = comm.gather_numbers(numbers, "control");
  if (batch.global == 0) batch.global = std::llround(first[0]);
  if (!is_named(changed, "batch.micro")) batch.micro = std::llround(first[1]);
  if (!is_named(changed, "batch.micro_tokens")) batch.micro_tokens = std::llround(first[2]);
  return batch;
}

Node with_batch(Node full, const BatchConfig& batch) {
  Node& node = *full.find("batch");
  node.set("global", Node::scalar(std::to_string(batch.global)));
  node.set("micro", Node::scalar(std::to_string(batch.micro)));
  node.set("micro_tokens", Node::scalar(std::to_string(batch.micro_tokens)));
  return full;
}

Resumed resume_session(Session& session, const std::string& directory, const Node& full, const RunOptions& options) {
  Resumed resumed;
  std::vector<KeyDifference> other;
  const std::string recorded = recorded_data_hash(directory);
  const Node own = with_newer_keys(read_run_config(directory));
  for (KeyDifference& d : differences(own, full)) {
    if (recorded == session.data.hash && names_a_place(d.key)) continue;
    (is_named(options.changed_keys, d.key) ? resumed.changes : other).push_back(std::move(d));
  }
  const std::vector<CheckpointInfo> checkpoints = list_checkpoints(directory);
  if (checkpoints.empty() && other.empty()) {
    if (session.leads()) log_info(str("no checkpoint in ", directory, " yet; starting from step 0"));
    return resumed;
  }
  Loaded loaded;
  if (!checkpoints.empty()) loaded = load_for(session, checkpoints, options.resume == "auto" || is_supervised());
  const auto& [state, folder] = loaded;
  if (!other.empty())
    throw UserError(str("[resume] ", directory,
                        " was trained with another recipe:", shape_difference(session, state.model), lines_of(other),
                        "\nresume with that run's recipe and overrides, start a new run, or change a value on purpose "
                        "with --change KEY=VALUE"));
  if (!recorded.empty() && recorded != session.data.hash)
    throw UserError(str("[resume] the data of ", directory, " has changed: its hash was ", recorded, ", now it is ",
                        session.data.hash));
  check_vocabulary(get_mark(state.numbers), folder, session.data.vocabulary, directory);
  check_ranks_keep_nothing(state, resumed.changes);
  const bool same_batch = std::none_of(resumed.changes.begin(), resumed.changes.end(),
                                       [](const KeyDifference& d) { return d.key == "batch.global"; });
  resumed.at = unpack_state(session, state, folder, same_batch);
  check_steps_left(session, resumed);
  if (session.leads()) log_info(str("resumed from ", folder));
  return resumed;
}

}  // namespace lmx::app
