// The keys of a recipe, and the check of the whole tree against all components that it names.
#include "recipe/recipe.h"

#include "config/error_collector.h"
#include "config/messages.h"
#include "data/data_config.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/plugin.h"
#include "recipe/comm_config.h"
#include "recipe/components.h"
#include "recipe/metrics.h"
#include "recipe/optimizer.h"
#include "recipe/stop_rule.h"
#include "recipe/sync_rules.h"

namespace lmx {

namespace {

constexpr Range kBatch{0, 1 << 24};  // sequences, or tokens of a pass

}  // namespace

void BatchConfig::fields(Fields& f) {
  f.field("global", global,
          "sequences of a step over all ranks; for parallel text sub-batches, each for one forward pass of a rank. 0, "
          "the default with fit: memory: as many as fit into one forward and backward pass of every rank",
          kBatch);
  f.field("micro", micro, "sequences of one forward and backward pass on a rank; 0: all sequences of the rank", kBatch);
  f.field("micro_tokens", micro_tokens,
          "parallel text: target tokens of one forward and backward pass on a rank, into which its sub-batches are "
          "joined or divided; 0: each sub-batch is one pass",
          kBatch);
  f.choice(
      "fit", fit, {"none", "memory"},
      "none; memory: micro (parallel text: micro_tokens) becomes the largest value that the estimate of the memory "
      "and a probe step allow, at most its own value unless that is 0");
}

void TrainConfig::fields(Fields& f) {
  f.field("steps", steps, "number of steps, including those without an update; 0: the number follows from epochs",
          kNonNegative);
  f.field("epochs", epochs, "passes over the training split, if steps is 0", {0, 1e9, true});
  f.field("log_every", log_every, "steps between two records of metrics.jsonl", kPositive);
  f.field("eval_every", eval_every,
          "steps between two validations; 0: after each epoch. There is always one at the end", kNonNegative);
  f.field("eval_batch", eval_batch, "sequences of a validation batch", {1, kBatch.max});
  f.field("eval_tokens", eval_tokens, "tokens of the validation split used while training; 0: all", {0, 9e18});
  f.field("eval_carry", eval_carry,
          "validation carries the recurrent state through the split; false: each window starts from zero");
  f.field("eval_shards", eval_shards,
          "validation reads the strings of characters and bytes in random order as eval_batch shards, each from a zero "
          "state (Puri 2018); false: eval_batch parts of the text in its own order");
  f.field("max_loss", max_loss,
          "training loss in nats per token above which a run counts as diverged (NaN and infinity always do); 0: "
          "ln(vocabulary) + 50, .inf: no limit",
          {0, std::numeric_limits<double>::infinity(), false, true});
  f.choice(
      "on_divergence", on_divergence, {"stop", "skip", "lower_lr"},
      "stop (exit code 1), skip (make no update), lower_lr (make no update, and halve the learning rate from then on)");
  f.choice("preflight", preflight, {"auto", "true", "false"},
           "compute the largest batch of the epoch once before training, without any effect but its memory and time: "
           "true, false, auto (a new run of at least 100 steps whose estimate is above a quarter of the memory)");
  f.field("ema", ema, "decay of the parameters' moving average, which validation then uses; 0: none", {0, 0.9999999});
  f.field("ema_params", ema_params,
          "pattern that is searched for in parameter names (.*: all); those that it matches are averaged");
  f.choice(
      "final_bleu", final_bleu, {"none", "valid", "test"},
      "the split that the last parameters translate when training is done, for its BLEU (beam 4, penalty fairseq:0.6)");
  f.field("final_average", final_average,
          "number of last checkpoints whose mean translates for final_bleu and is stored as mean.safetensors; 1: "
          "the last parameters translate",
          kPositive);
}

void StopConfig::fields(Fields& f) {
  f.field("when", when,
          "end as soon as a validation meets this condition: valid.nll_nat, valid.nll_bit, valid.bpc, valid.bpb or "
          "valid.ppl, a "
          "comparison, a number (\"valid.nll_bit <= 2.11\"); empty: train to the last step");
  f.field("patience", patience,
          "end after this number of successive validations without a new lowest perplexity; 0: no limit", kNonNegative);
}

void InitConfig::fields(Fields& f) {
  f.field("from", from,
          "a run, a checkpoint's folder or a safetensors file with initial values for parameters of the same name and "
          "shape; empty: all parameters have the random initial values of the model");
  f.field("checkpoint", checkpoint, "checkpoint of a run: last, best or a step");
  f.field("params", params,
          "pattern that is searched for in parameter names; those that it matches get values of `from`");
  f.field("freeze", freeze,
          "pattern that is searched for in parameter names; those that it matches are never updated; empty: none");
}

void CheckpointConfig::fields(Fields& f) {
  f.field("every", every, "steps between two checkpoints; 0: at each validation. There is always one at the end",
          kNonNegative);
  f.field("keep_last", keep_last, "checkpoints that are kept", {1, 1e6});
  f.field("keep_best", keep_best, "also keep the one with the lowest validation perplexity");
}

void MemoryConfig::fields(Fields& f) {
  f.field("budget", budget,
          "GB that the ranks on this machine may take: a run whose estimate is larger is refused; 0: no limit, with a "
          "warning if the machine or the device has less",
          kNonNegative);
}

void RunConfig::fields(Fields& f) {
  f.field("dir", dir, "folder of the run; empty: runs/<recipe>/<date-time>");
  f.field("tensorboard", tensorboard, "write TensorBoard event files, in addition to metrics.jsonl");
}

void Recipe::fields(Fields& f) {
  f.field("seed", seed, "seed of every random number of the run", kNonNegative);
  f.field(
      "deterministic", deterministic,
      "true: the same number of ranks gives the same bits as threads (virtual) and as processes (mpi), and each rank "
      "has one thread unless `threads` is higher. false: processes divide the cores of a host, so the bits depend on "
      "the number of cores");
  f.choice("precision", precision, {"fp32", "bf16", "fp16"},
           "type of the inputs of matrix products; parameters, sums and states stay fp32. fp16 scales the loss "
           "(loss_scale)");
  f.choice(
      "products", products, {"exact", "tf32", "bf16x3"},
      "how a GPU multiplies with precision fp32. exact: in fp32; on tensor cores, faster and less exact: tf32 (the "
      "inputs are rounded to TF32) or bf16x3 (each input is the sum of two numbers in bf16)");
  f.field("device", device,
          "where ops compute: cpu, cuda (the first GPU; ranks that are processes take the GPUs of their host in turn), "
          "cuda:N, or auto (as cuda if there is a GPU, else the CPU)");
  f.field("threads", threads,
          "threads of a rank, which may change the bits; 0: all cores with one rank (comm self), otherwise see "
          "deterministic",
          {0, 4096});
  f.group("batch", batch, "number of sequences of a step");
  f.group("train", train, "length of the training, records, validation, averages");
  f.group("stop", stop, "conditions that end the run before its last step");
  f.group("init", init, "initial values of parameters, and parameters that are never updated");
  f.group("loss_scale", loss_scale, "the factor of the loss with precision fp16");
  f.group("checkpoint", checkpoint, "checkpoints: how often, and how many are kept");
  f.subtree("comm", comm, "the group of ranks (plugin; self: one rank)");
  f.group("run", run, "the files of the run");
  f.group("memory", memory, "the memory of the run");
  f.subtree("data", data, "the corpus");
  f.subtree("batcher", batcher, "chooses the tokens of each step (plugin)");
  f.subtree("model", model, "computes features from tokens (plugin)");
  f.subtree("loss", loss, "output layer and likelihood");
  f.subtree("optimizer", optimizer, "updates the parameters");
  f.subtree("schedule", schedule, "learning rate as a function of the updates");
  f.group("lr_rule", lr_rule, "scales the learning rate with the batch or the number of nodes");
  f.subtree("clip", clip, "limits for the norm of gradients");
  f.subtree("sync", sync, "rules: how ranks exchange the gradients of each parameter");
  f.subtree("metric", metric, "what validations compute beside the likelihood, by label (plugins)");
  f.subtree("provenance", provenance, "free form: the source of values, and assumptions");
}

namespace {

Node named(const char* name) {
  Node node = Node::map();
  node.set("name", Node::string(name));
  return node;
}

// Sets the components that a recipe may leave out.
void fill_defaults(Recipe& r) {
  if (r.loss.kind == Node::Kind::null) r.loss = named("full_softmax");
  if (r.schedule.kind == Node::Kind::null) r.schedule = named("constant");
  if (r.sync.kind == Node::Kind::null) {
    Node rule = Node::map();
    rule.set("params", Node::string(".*"));
    rule.set("strategy", Node::string("allreduce"));
    r.sync = Node::map();
    r.sync.set("rest", rule);
  }
  if (r.comm.kind == Node::Kind::null) r.comm = named("self");
  if (r.provenance.kind == Node::Kind::null) r.provenance = Node::map();
}

// UserError: a part that every recipe has is absent, or empty (`model:` with nothing below it). The errors that were
// found before come first, because a misspelt key may be the cause.
void require_parts(const Recipe& r, const Node& composed, ErrorCollector& errors) {
  const std::pair<const char*, const Node*> parts[] = {
      {"data", &r.data}, {"batcher", &r.batcher}, {"model", &r.model}, {"optimizer", &r.optimizer}};
  std::string missing;
  for (const auto& [name, node] : parts) {
    if (node->kind != Node::Kind::null) continue;
    errors.throw_any();
    if (const Node* empty = composed.find(name))
      throw UserError(str(config::at(empty->mark, name),
                          "is empty, which removes the part; write its keys below it, or "
                          "leave this line out"));
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (!missing.empty())
    throw UserError(str(config::at(composed.mark), "the recipe has no ", missing, "; each is a map with a `name`"));
}

// Single invalid values are reported by the fields; this checks values that contradict each other.
template <class MarkOf>
void check_loss_scale(const Recipe& r, const MarkOf& mark) {
  const LossScaleConfig c = r.loss_scale.resolved();
  if (c.factor <= 1)
    throw UserError(
        str(mark("loss_scale.factor"), c.factor, " would not lower the scale; it must be above 1, such as 2"));
  if (c.min > c.init)
    throw UserError(str(mark("loss_scale.min"), "the least scale, ", c.min, ", is above the first, ", c.init,
                        " (loss_scale.init)"));
}

// A device that is chosen when the run begins is checked there.
template <class MarkOf>
void check_products_of(const Recipe& r, const MarkOf& mark) {
  if (r.products != "exact" && r.precision != "fp32")
    throw UserError(str(mark("products"), r.products,
                        " says how products of precision fp32 are computed, and precision is ", r.precision,
                        "; set products to exact"));
  if (r.device == "cpu") check_products(r, Device());
}

// Does not check that the source exists: the run checks that, because a config.yaml may exist longer than the source.
template <class MarkOf>
void check_init(const Recipe& r, const MarkOf& mark) {
  static_cast<void>(ParamPattern(r.init.params, mark("init.params")));
  static_cast<void>(ParamPattern(r.init.freeze, mark("init.freeze")));
  const InitConfig usual;
  if (r.init.from.empty() && (r.init.params != usual.params || r.init.checkpoint != usual.checkpoint)) {
    const char* path = r.init.params != usual.params ? "init.params" : "init.checkpoint";
    throw UserError(str(mark(path), "it says what is read of init.from, which is not set"));
  }
}

// UserError: a metric that this kind of data does not have.
template <class MarkOf>
void check_stop(const Recipe& r, const Node& tree, const MarkOf& mark) {
  const Node* when = tree.at_path("stop.when");
  const StopRule rule(r.stop.when, when ? when->mark : tree.mark);
  const auto text = [&](const char* path) {
    const Node* node = tree.at_path(path);
    return node ? node->text : "";
  };
  const std::string tokens = text("data.tokens");
  if (rule.of_characters() && tokens != "chars" && tokens != "bytes")
    throw UserError(str(mark("stop.when"), "valid.bpc is of data.tokens chars or bytes; of words it is valid.nll_bit"));
  if (rule.of_bytes() && tokens != "subwords" && text("data.name") != "tokens")
    throw UserError(str(mark("stop.when"),
                        "valid.bpb is of data.tokens subwords; of chars and bytes it is valid.bpc, of words "
                        "valid.nll_bit"));
}

void check_values(const Recipe& r, const Node& tree) {
  const auto mark = [&](const char* path) {
    const Node* node = tree.at_path(path);
    return config::at(node ? node->mark : tree.mark, path);
  };
  if (r.batch.global == 0 && r.batch.fit == "none")
    throw UserError(str(mark("batch.global"), "must be >= 1, got 0, which lets batch.fit=memory choose the batch"));
  if (r.batch.global > 0 && r.batch.micro > r.batch.global)
    throw UserError(str(mark("batch.micro"), r.batch.micro, " sequences of a forward are more than batch.global, ",
                        r.batch.global));
  if (r.lr_rule.name == "linear" || r.lr_rule.name == "sqrt") {
    if (r.lr_rule.reference_batch <= 0)
      throw UserError(str(mark("lr_rule.reference_batch"), "the rule ", r.lr_rule.name,
                          " needs the batch for which optimizer.lr was found"));
  }
  if (r.train.final_bleu != "none" && r.train.final_average > r.checkpoint.keep_last)
    throw UserError(str(mark("train.final_average"), "the mean of ", r.train.final_average,
                        " checkpoints needs as many: checkpoint.keep_last is ", r.checkpoint.keep_last));
  check_stop(r, tree, mark);
  check_loss_scale(r, mark);
  check_products_of(r, mark);
  check_init(r, mark);
  static_cast<void>(ParamPattern(r.train.ema_params, r.train.ema_params_place));
}

// `servers`: ranks are asynchronous; otherwise they have their own values between synchronisations.
void check_average(const Recipe& r, bool servers) {
  if (r.train.ema > 0)
    throw UserError(str(r.train.ema_place, r.train.ema,
                        " averages the parameters after each step of all ranks, and under ",
                        servers ? "an asynchronous rule of sync there is no such step"
                                : "this rule of sync ranks have their own values",
                        "; set train.ema to 0"));
}

// UserError: sums whose order is not fixed, in a run that must be deterministic.
void check_order(const Recipe& r) {
  const std::string key = unordered_sums(r.comm, "comm");
  if (!r.deterministic || key.empty()) return;
  const Node& value = *r.comm.find(key);
  throw UserError(str(config::at(value.mark, "comm." + key), value.text,
                      " adds gradients in an order that is not fixed, and deterministic: true requires equal bits in "
                      "every run; set deterministic to false, or leave comm.",
                      key, " out"));
}

// The subtree of every component, checked and with its defaults. A subtree with errors is returned unchanged.
Recipe full_components(const Recipe& given, ErrorCollector& errors) {
  Recipe full = given;
  errors.keep([&] { full.data = full_data_config(given.data); });
  errors.keep([&] { full.model = full_component(PluginKind::model, given.model, "model"); });
  errors.keep([&] { full.batcher = full_component(PluginKind::batcher, given.batcher, "batcher"); });
  errors.keep([&] { full.loss = full_loss_config(given.loss, "loss"); });
  const bool updates = errors.keep([&] { full.optimizer = full_optimizer_config(given.optimizer, "optimizer"); });
  errors.keep([&] {
    full.schedule = full_schedule_config(given.schedule, "schedule");
    if (updates) check_averages(given.optimizer, "optimizer", given.schedule, given.train.ema);
  });
  errors.keep([&] {
    full.comm = full_comm_config(given.comm, "comm");
    check_order(given);
  });
  errors.keep([&] {
    full.sync = full_sync_config(given.sync, "sync");
    const bool servers = is_asynchronous(given.sync, "sync"), replicas = has_replicas(given.sync, "sync");
    if (!servers && !replicas && !has_shards(given.sync, "sync")) return;
    if (servers || replicas) check_average(given, servers);
    const ApartRanks ranks = servers ? ApartRanks::servers : replicas ? ApartRanks::replicas : ApartRanks::shards;
    if (updates) check_optimizer_of_ranks(given.optimizer, "optimizer", ranks);
  });
  errors.keep([&] { static_cast<void>(read_clip(given.clip, "clip")); });
  errors.keep([&] { full.metric = full_metric_config(given.metric, "metric"); });
  full.loss_scale = given.loss_scale.resolved();
  if (full.clip.kind == Node::Kind::null) full.clip = Node::list({});
  return full;
}

struct ReadRecipe {
  Recipe given, full;
};
ReadRecipe read_and_check(const Node& composed, const std::string& name) {
  check_missing(composed);
  ErrorCollector errors;
  ReadRecipe r;
  ConfigReader reader(composed, "");
  r.given.fields(reader.fields());
  const bool known = errors.keep([&] { reader.finish(); });
  r.given.name = name;
  const auto place = [&](const char* path) {
    const Node* node = composed.at_path(path);
    return config::at(node ? node->mark : composed.mark, path);
  };
  r.given.device_place = place("device");
  r.given.products_place = place("products");
  r.given.init.from_place = place("init.from");
  r.given.init.params_place = place("init.params");
  r.given.init.freeze_place = place("init.freeze");
  r.given.train.ema_place = place("train.ema");
  r.given.train.ema_params_place = place("train.ema_params");
  fill_defaults(r.given);
  if (r.given.batch.fit == "memory" && !composed.at_path("batch.global")) r.given.batch.global = 0;
  require_parts(r.given, composed, errors);
  // After an unknown key, the defaults would be checked instead of the intended values.
  if (known) errors.keep([&] { check_values(r.given, composed); });
  r.full = full_components(r.given, errors);
  errors.throw_any();
  return r;
}

}  // namespace

Recipe read_recipe(const Node& composed, const std::string& name) {
  return read_and_check(composed, name).given;
}

Node full_recipe(const Node& composed, const std::string& name) {
  return write_config(read_and_check(composed, name).full);
}

CheckedRecipe check_recipe(const Node& composed, const std::string& name) {
  ReadRecipe read = read_and_check(composed, name);
  return {std::move(read.given), write_config(std::move(read.full))};
}

}  // namespace lmx
