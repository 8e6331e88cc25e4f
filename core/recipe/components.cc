#include "recipe/components.h"

#include <algorithm>
#include <cmath>

#include "comm/rank_device.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/tensor.h"
#include "nn/state_dict.h"
#include "recipe/planned_batcher.h"

namespace lmx {

double default_max_loss(int64_t vocab_size) {
  return std::log(static_cast<double>(vocab_size)) + kLossMargin;
}

void mark_frozen(std::vector<ParameterSpec>& specs, const InitConfig& init) {
  if (init.freeze.empty()) return;
  const std::vector<std::string> frozen = ParamPattern(init.freeze, init.freeze_place).select(names_of(specs));
  if (frozen.size() == specs.size())
    throw UserError(str(init.freeze_place, "'", init.freeze, "' names all ", specs.size(),
                        " parameters; nothing would be trained"));
  for (ParameterSpec& spec : specs) spec.frozen = std::find(frozen.begin(), frozen.end(), spec.name) != frozen.end();
}

Network make_network(const Recipe& recipe, int64_t vocab_size, const Vocabulary* vocabulary) {
  Network n;
  const PluginInfo& plugin = Registry::instance().find(PluginKind::model, recipe.model, "model");
  n.plugin = &plugin;
  n.model = create<ModelFactory>(plugin, recipe.model, "model", ModelEnv{vocab_size});
  const std::vector<ParameterSpec> specs = n.model->parameters();
  n.loss = make_loss(recipe.loss, "loss",
                     LossEnv{vocab_size, n.model->feature_size(), vocabulary, specs, n.model->output_table()});
  n.specs = all_parameters(specs, *n.loss);
  mark_frozen(n.specs, recipe.init);
  return n;
}

Var Network::forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state) const {
  return in_plugin(*plugin, "forward()", [&] { return model->forward(ctx, params, batch, state); });
}

ModelState Network::initial_state(Context& ctx, int64_t sequences) const {
  return in_plugin(*plugin, "initial_state()", [&] { return model->initial_state(ctx, sequences); });
}

std::string component_name(const Node& component) {
  const Node* name = component.find("name");
  return name ? name->text : std::string("?");
}

namespace {

// Names of the plugins of a kind whose default config satisfies `fits`; plugins for which the check fails with an error
// are left out.
template <class Fits>
std::string plugins_that(PluginKind kind, Fits&& fits) {
  std::vector<std::string> names;
  for (const PluginInfo& info : Registry::instance().list()) {
    if (info.kind != name_of(kind)) continue;
    try {
      Node node = Node::map();
      node.set("name", Node::string(info.name));
      if (fits(Registry::instance().find(kind, info.name), node)) names.push_back(info.name);
    } catch (const Error&) {
    }
  }
  return names.empty() ? "none is installed" : config::join(names);
}

bool takes_pairs(const Batcher& batcher) {
  return batcher.plan().items == Items::sub_batches;
}

std::string models_that_translate() {
  return plugins_that(PluginKind::model, [](const PluginInfo& info, const Node& node) {
    return create<ModelFactory>(info, node, "model", ModelEnv{1000})->translates();
  });
}

std::string models_that_separate() {
  return plugins_that(PluginKind::model, [](const PluginInfo& info, const Node& node) {
    return create<ModelFactory>(info, node, "model", ModelEnv{1000})->separates_documents();
  });
}

std::string batchers_of(bool pairs) {
  return plugins_that(PluginKind::batcher, [&](const PluginInfo&, const Node& node) {
    return takes_pairs(*planned_batcher(node)) == pairs;
  });
}

}  // namespace

void check_model_fits_data(const Recipe& recipe, const Model& model, const Dataset& data) {
  if (!model.translates() || data.train_pairs.size() > 0) return;
  throw UserError(str("[model] ", component_name(recipe.model), " as configured here translates, and data ",
                      component_name(recipe.data),
                      " is text of one language; choose parallel text (data: {name: parallel, ",
                      "...}), or a language model"));
}

void check_batcher_fits_model(const Recipe& recipe, const Batcher& batcher, const Model& model) {
  const bool pairs = takes_pairs(batcher);
  if (pairs && !model.translates())
    throw UserError(str(
        "[model] ", component_name(recipe.model), " does not translate, and batcher ", component_name(recipe.batcher),
        " takes pairs of sentences (its sequence_length() is 0); models that translate: ", models_that_translate(),
        "; batchers for a language model: ", batchers_of(false)));
  if (!pairs && model.translates())
    throw UserError(str("[batcher] ", component_name(recipe.batcher), " takes sequences of one language, and model ",
                        component_name(recipe.model), " translates; batchers of pairs: ", batchers_of(true)));
}

int32_t separator_of(const Recipe& recipe, const Batcher& batcher, const Model& model, const Dataset& data) {
  if (!batcher.separates_documents()) return -1;
  if (!model.separates_documents())
    throw UserError(str("[batcher] ", component_name(recipe.batcher), " as configured here separates documents, and ",
                        "model ", component_name(recipe.model), " reads each sequence as one text; models that ",
                        "separate documents: ", models_that_separate()));
  if (data.separator < 0)
    throw UserError(str("[batcher] ", component_name(recipe.batcher), " as configured here separates documents, and ",
                        "the data ", component_name(recipe.data), " has no token between them (the token for the end ",
                        "of a text or line)"));
  return data.separator;
}

void check_patterns(const Recipe& recipe, const std::vector<ParameterSpec>& specs) {
  const std::vector<std::string> names = names_of(specs);
  check_clip(read_clip(recipe.clip, "clip"), names);
  if (recipe.train.ema > 0) static_cast<void>(ema_pattern(recipe).select(names));
}

ParamPattern ema_pattern(const Recipe& recipe) {
  return ParamPattern(recipe.train.ema_params, recipe.train.ema_params_place);
}

ForwardShape forward_shape(const Recipe& recipe, int ranks, const BatchPlan& plan) {
  if (plan.items == Items::sub_batches) return {1, 0};
  const int64_t share = (recipe.batch.global + ranks - 1) / ranks;
  return {recipe.batch.micro > 0 ? std::min(recipe.batch.micro, share) : share, plan.item_tokens};
}

std::vector<std::string> warnings_of(const Recipe& recipe, const Network& network, const Exchanger& sync, int ranks,
                                     const BatchPlan& plan) {
  std::vector<std::string> lines;
  if (ranks > 1) lines = sync.warnings(recipe.precision == "fp16");  // a single rank encodes nothing
  for (std::string& line : network.model->warnings(forward_shape(recipe, ranks, plan)))
    lines.push_back(std::move(line));
  return lines;
}

BatcherEnv batcher_env(const Recipe& r, const Dataset& data, std::shared_ptr<Allocator> allocator) {
  if (r.batch.global == 0)
    throw UserError("[batch] batch.fit chooses batch.global when a run begins; give a number (batch.global=N) here");
  BatcherEnv env{data.train, r.batch.global, RandomKey(static_cast<uint64_t>(r.seed)).fold("batcher"),
                 std::move(allocator), "train"};
  env.pairs = data.train_pairs;
  env.parts = data.train_parts;
  env.strings = data.train_strings;
  return env;
}

std::unique_ptr<Batcher> make_batcher(const Recipe& r, const BatcherEnv& env) {
  const PluginInfo& plugin = Registry::instance().find(PluginKind::batcher, r.batcher, "batcher");
  std::unique_ptr<Batcher> batcher = create<BatcherFactory>(plugin, r.batcher, "batcher", env);
  if (!env.parts.empty() && !takes_pairs(*batcher))
    throw UserError(str("[batcher] ", plugin.name, " does not mix texts by a ratio (data.parts); batchers of pairs ",
                        "do: ", batchers_of(true)));
  return batcher;
}

DType compute_of(const Recipe& recipe) {
  return recipe.precision == "bf16" ? DType::bf16 : recipe.precision == "fp16" ? DType::f16 : DType::f32;
}

F32Products products_named(const std::string& name) {
  return name == "tf32" ? F32Products::tf32 : name == "bf16x3" ? F32Products::bf16x3 : F32Products::exact;
}

void check_products(const Recipe& recipe, Device device) {
  if (recipe.products == "exact" || device.kind == Device::Kind::cuda) return;
  throw UserError(str(recipe.products_place, recipe.products,
                      " runs on the tensor cores of a GPU, and this run computes on the CPU (device: ", recipe.device,
                      "); set products to exact, or device to cuda"));
}

Context make_context(const Recipe& recipe, Communicator& comm, const std::optional<Device>& device) {
  Context ctx = comm::rank_context(comm);
  ctx.key = RandomKey(static_cast<uint64_t>(recipe.seed));
  ctx.compute = compute_of(recipe);
  ctx.products = products_named(recipe.products);
  comm::compute_with_ranks_on(ctx, device ? *device : comm::device_of_rank(recipe.device, recipe.device_place, comm));
  return ctx;
}

void add_parameters(Context& ctx, ParameterStore& params, const Network& network, int64_t seed) {
  const RandomKey key = RandomKey(static_cast<uint64_t>(seed)).fold("init");
  for (const ParameterSpec& spec : network.specs) params.add(ctx, spec, key);
}

namespace {

constexpr int64_t kLeast = int64_t{1} << 12, kMost = int64_t{1} << 24;  // tokens of the artificial text

// One sequence a step, from an artificial text of `tokens` tokens, in strings of 64 tokens and sentences of one.
BatcherEnv artificial(int64_t tokens) {
  constexpr int64_t kString = 64, kPairs = 256;
  const auto sentences = TokenArray::of(std::vector<int32_t>(kPairs, Vocabulary::kEos));
  BatcherEnv env{TokenArray::of(std::vector<int32_t>(static_cast<size_t>(tokens), Vocabulary::kEos)), 1, RandomKey(),
                 Allocator::cpu()};
  env.pairs = PairArray(sentences, sentences);
  env.cost =
      env.macs = [](int64_t n, int64_t source, int64_t target) { return static_cast<double>(n * (source + target)); };
  env.strings = TextStrings(TokenArray::of(std::vector<int32_t>(static_cast<size_t>(tokens / kString), kString)));
  return env;
}

}  // namespace

std::unique_ptr<Batcher> planned_batcher(const Node& batcher) {
  const PluginInfo& plugin = Registry::instance().find(PluginKind::batcher, batcher, "batcher");
  for (int64_t tokens = kLeast;; tokens *= 8) {
    try {
      return create<BatcherFactory>(plugin, batcher, "batcher", artificial(tokens));
    } catch (const UserError&) {
      if (tokens * 8 > kMost) throw;
    }
  }
}

}  // namespace lmx
