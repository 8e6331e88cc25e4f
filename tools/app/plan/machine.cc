#include "app/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lmx/error.h"
#include "recipe/sync_rules.h"

namespace lmx::app::plan {
namespace {

// Adds the keys of all values below `node` that are not the default of an absent one: 0, "", false and an empty list.
void add_keys(const Node& node, const std::string& path, std::vector<std::string>& keys) {
  for (const auto& [key, value] : node.entries) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.kind == Node::Kind::map)
      add_keys(value, inner, keys);
    else if (!value.items.empty() || (!value.text.empty() && value.text != "false" && parse_double(value.text) != 0.0))
      keys.push_back(inner);
  }
}

const char* precision_of(DType compute) {
  return compute == DType::bf16 ? "bf16" : compute == DType::f16 ? "fp16" : "fp32";
}

bool has_source(const Node& sources, std::string key) {
  while (!sources.find(key)) {
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return false;
    key.resize(dot);
  }
  return true;
}

// An override on the command line is the source of its value.
void add_sources(Node& machine) {
  std::vector<std::string> keys;
  for (const char* group : {"device", "links", "price"})
    if (const Node* values = machine.find(group)) add_keys(*values, group, keys);
  if (!machine.find("sources")) machine.set("sources", Node::map());
  Node& sources = *machine.find("sources");
  for (const std::string& key : keys) {
    const Mark& mark = machine.at_path(key)->mark;
    if (mark.line == 0 && !mark.file.empty() && !has_source(sources, key)) sources.set(key, Node::string(mark.file));
  }
}

}  // namespace

void ByPrecision::fields(Fields& f) {
  f.field("fp32", fp32, "in fp32", kNonNegative);
  f.field("bf16", bf16, "with bf16 operands", kNonNegative);
  f.field("fp16", fp16, "with fp16 operands", kNonNegative);
}

void DeviceConfig::fields(Fields& f) {
  f.field("name", name, "the processor of a rank");
  f.choice("kind", kind, {"gpu", "cpu"},
           "a CPU packs weights for products, and widens 16-bit operands to fp32 before it multiplies them");
  f.field("native_bf16", native_bf16,
          "kind cpu: bf16 operands are multiplied without widening them (AVX512-BF16, AMX)");
  f.field("memory_gb", memory_gb, "its memory, in 10^9 bytes", {0, 1e6, true});
  f.field("memory_gb_s", memory_gb_s, "bandwidth of that memory, in 10^9 bytes a second", {0, 1e9, true});
  f.group("peak_tflops", peak_tflops,
          "arithmetic peak, in 10^12 operations a second; 0: no products of this precision");
  f.group("efficiency", efficiency, "the part of the peak that large products reach");
  f.field("half_size", half_size, "a product whose smallest size is this reaches half of that rate", kNonNegative);
  f.field("launch_us", launch_us, "microseconds that each kernel takes at least, or, with replay_us, takes the host",
          kNonNegative);
  f.field("replay_us", replay_us,
          "a GPU with CUDA graphs, whose host runs ahead of it: microseconds that each kernel takes beside its bytes; "
          "0: the device waits for each launch",
          kNonNegative);
  f.field("product_us", product_us, "microseconds that a product takes beside its arithmetic and its bytes",
          kNonNegative);
  f.field("cores", cores, "cores of a CPU, each of which has the same share of its peak; 0: no CPU, or not known",
          kNonNegative);
  f.field("core_gb_s", core_gb_s,
          "bandwidth of the memory that one core reaches alone, in 10^9 bytes a second; 0: its share of memory_gb_s",
          kNonNegative);
  f.field("beside", beside,
          "part of a rank's own work on an exchange that delays a computation beside it; 0: it has a core of its own",
          {0, 1, false});
  f.subtree("products", products, "measured products: [{m: 640, n: 8192, k: 512, precision: fp32, us: 900}, ...]");
  f.subtree("exchanges", exchanges,
            "measured work of a rank on units of gradients: [{strategy: ..., ranks: 4, moved: 1e6, us: 900}, ...]");
  f.subtree("passes", passes,
            "measured passes: [{network: ..., tokens: 640, length: 20, forward_us: 900, backward_us: 1800}, ...]");
}

void MeasuredProduct::fields(Fields& f) {
  f.required("m", m, "rows of the first factor", kPositive);
  f.required("n", n, "columns of the second factor", kPositive);
  f.required("k", k, "inner size", kPositive);
  f.choice("precision", precision, {"fp32", "bf16", "fp16"}, "type of the factors");
  f.field("us", us, "microseconds", {0, 1e12, true});
  f.field("pack_us", pack_us, "microseconds to pack the second factor of a recurrence's products", kNonNegative);
}

void MeasuredPass::fields(Fields& f) {
  f.field("network", network, "model, loss and precision with their options");
  f.field("rules", rules, "the rules of sync that choose the rows of the loss");
  f.required("tokens", tokens, "target tokens", kPositive);
  f.required("length", length, "tokens of a sequence", kPositive);
  f.field("forward_us", forward_us, "microseconds of the forward pass", kNonNegative);
  f.field("backward_us", backward_us, "microseconds of the backward pass", kNonNegative);
}

void MeasuredExchange::fields(Fields& f) {
  f.field("strategy", strategy, "the strategy and its options");
  f.required("ranks", ranks, "ranks of the exchange", kPositive);
  f.field("moved", moved, "bytes of memory that the strategy states to read and write", kPositive);
  f.field("us", us, "microseconds of a rank's own work", kNonNegative);
}

namespace {

void add_settings(const Node& node, const std::string& path, std::string& text) {
  if (node.kind == Node::Kind::scalar) text += str(" ", path, "=", node.text);
  for (const auto& [key, value] : node.entries) add_settings(value, path.empty() ? key : path + "." + key, text);
  for (size_t i = 0; i < node.items.size(); ++i) add_settings(node.items[i], str(path, ".", i), text);
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(std::max<int64_t>(1, a)) / static_cast<double>(std::max<int64_t>(1, b));
}

// By which the larger of two sizes exceeds the other one, on a logarithmic scale.
double factor(int64_t a, int64_t b) {
  return std::abs(std::log(ratio(a, b)));
}

template <class T>
std::vector<T> read_list(const Node& list, const std::string& path) {
  std::vector<T> all;
  for (size_t i = 0; i < list.items.size(); ++i) all.push_back(read_config<T>(list.items[i], str(path, ".", i)));
  return all;
}

}  // namespace

std::string settings_text(const Node& component) {
  Node settings = component;
  settings.erase("name");
  const Node* name = component.find("name");
  std::string text = name ? name->text : "";
  add_settings(settings, "", text);
  return text;
}

std::string strategy_text(const Node& rule) {
  Node component = rule;
  component.erase("params");
  component.erase("strategy");
  component.set("name", *rule.find("strategy"));
  return settings_text(component);
}

std::string pass_text(const Recipe& recipe) {
  return str(settings_text(recipe.model), " ", settings_text(recipe.loss), " ", recipe.precision);
}

std::string rules_text(const Recipe& recipe) {
  std::string text;
  for (const auto& [name, rule] : full_sync_config(recipe.sync, "sync").entries)
    text += str(text.empty() ? "" : "; ", strategy_text(rule));
  return text;
}

void DeviceConfig::read_measured(const std::string& path) {
  measured_ = read_list<MeasuredProduct>(products, path + ".products");
  measured_exchanges_ = read_list<MeasuredExchange>(exchanges, path + ".exchanges");
  measured_passes_ = read_list<MeasuredPass>(passes, path + ".passes");
}

const MeasuredProduct* DeviceConfig::measured(int64_t m, int64_t n, int64_t k, DType compute) const {
  const char* precision = precision_of(compute);
  for (const MeasuredProduct& p : measured_)
    if (p.m == m && p.n == n && p.k == k && p.precision == precision) return &p;
  return nullptr;
}

double DeviceConfig::pack_s(int64_t m, int64_t n, int64_t k, DType compute) const {
  const MeasuredProduct* p = measured(m, n, k, compute);
  return p ? p->pack_us * 1e-6 : 0;
}

bool DeviceConfig::measures_exchange(const std::string& strategy) const {
  return std::any_of(measured_exchanges_.begin(), measured_exchanges_.end(),
                     [&](const MeasuredExchange& e) { return e.strategy == strategy; });
}

double DeviceConfig::exchange_s(const std::string& strategy, int64_t ranks, int64_t moved) const {
  const MeasuredExchange* best = nullptr;
  const auto distance = [&](const MeasuredExchange& e) { return std::pair(e.ranks != ranks, factor(moved, e.moved)); };
  for (const MeasuredExchange& e : measured_exchanges_)
    if (e.strategy == strategy && (!best || distance(e) < distance(*best))) best = &e;
  if (!best) return memory_s(static_cast<double>(moved));
  return best->us * 1e-6 * ratio(moved, best->moved);
}

std::optional<MeasuredPass> DeviceConfig::pass(const std::string& network, const std::string& rules, int64_t tokens,
                                               int64_t length) const {
  const MeasuredPass* best = nullptr;
  const auto distance = [&](const MeasuredPass& p) { return std::pair(p.rules.empty(), factor(tokens, p.tokens)); };
  for (const MeasuredPass& p : measured_passes_) {
    if (p.network != network || p.length != length || !(p.rules.empty() || p.rules == rules)) continue;
    if (!best || distance(p) < distance(*best)) best = &p;
  }
  if (!best) return {};
  MeasuredPass scaled = *best;
  scaled.forward_us *= ratio(tokens, best->tokens);
  scaled.backward_us *= ratio(tokens, best->tokens);
  return scaled;
}

double DeviceConfig::product_s(int64_t m, int64_t n, int64_t k, DType compute, bool within) const {
  if (const MeasuredProduct* p = measured(m, n, k, compute)) return p->us * 1e-6;
  const double a = static_cast<double>(m), b = static_cast<double>(n), c = static_cast<double>(k);
  const double least = std::min({a, b, c}), element = compute == DType::f32 ? 4 : 2;
  const double rate = 1e12 * peak_tflops.of(compute) * efficiency.of(compute) * least / (least + half_size);
  return (within ? 0 : 1e-6 * product_us) + std::max(2 * a * b * c / rate, memory_s(element * (a * c + b * c + a * b)));
}

void DeviceConfig::use_cores(int64_t some) {
  if (cores == 0 || some >= cores) return;
  const double share = static_cast<double>(some) / static_cast<double>(cores);
  for (double* rate : {&peak_tflops.fp32, &peak_tflops.bf16, &peak_tflops.fp16}) *rate *= share;
  memory_gb_s = core_gb_s > 0 ? std::min(memory_gb_s, static_cast<double>(some) * core_gb_s) : memory_gb_s * share;
  cores = some;
}

void DeviceConfig::require_products(DType compute) const {
  if (peak_tflops.of(compute) > 0 && efficiency.of(compute) > 0) return;
  const char* precision = precision_of(compute);
  throw UserError(str("[plan] the machine has no rate of products with precision ", precision,
                      ": set machine.device.peak_tflops.", precision, " and machine.device.efficiency.", precision,
                      ", or choose another precision"));
}

void LinkConfig::fields(Fields& f) {
  f.field("gb_s", gb_s, "10^9 bytes a second in one direction", {1e-9, 1e6});
  f.field("overhead", overhead, "the part of that bandwidth which encoding and headers take", {0, 0.99, false});
  f.field("latency_us", latency_us, "microseconds from the call of one rank to the receipt by another", kNonNegative);
  f.field("delay_s_gb", delay_s_gb,
          "seconds by which sending 10^9 bytes delays a computation beside it; 0: the network does it alone",
          kNonNegative);
}

void LinksConfig::fields(Fields& f) {
  f.field("ranks_per_node", ranks_per_node, "ranks of a node", kPositive);
  f.group("node", node, "the link of a rank to the others of its node");
  f.field("shared", shared, "the ranks of a node share that link");
  f.group("network", network, "the link of a node to all others, which its ranks share");
  f.field("staged", staged,
          "data passes through the memory of hosts, so a rank's link is used to send it there and to receive it from "
          "there, one after the other and after the network");
  f.field("after_backward", after_backward, "gradients are exchanged after backward, not beside it");
  f.field("central_server", central_server,
          "a parameter server is no rank, so that no rank keeps a shard of it; otherwise all ranks do");
  f.field("collectives", collectives, "pairwise, ring, tree, hierarchical: what its library has; \"\": the fastest");
}

double LinksConfig::inside_s(double bytes, int64_t ranks) const {
  return node.seconds(bytes) * static_cast<double>(shared ? ranks : 1) * (staged ? 2 : 1);
}

double LinksConfig::across_s(double bytes, double own, int64_t ranks) const {
  return network.seconds(bytes) + (staged ? inside_s(own, ranks) : 0);
}

void PriceConfig::fields(Fields& f) {
  f.field("node_hour", node_hour, "price of a node for an hour; 0: unknown", kNonNegative);
  f.field("currency", currency, "of the price");
}

void KnownStep::fields(Fields& f) {
  f.required("recipe", recipe, "name of the recipe whose step was measured");
  f.field("overrides", overrides, "of the recipe");
  f.field("ranks", ranks, "number of ranks", kPositive);
  f.field("step_s", step_s, "seconds of a step", kNonNegative);
  f.field("tokens_per_s", tokens_per_s, "tokens a second of all ranks", kNonNegative);
  f.field("hours_per_epoch", hours_per_epoch, "hours of an epoch", kNonNegative);
  f.field("epoch_tokens", epoch_tokens, "tokens of the training text; 0: not stated", kNonNegative);
  f.field("types", types, "FACTOR,EXPONENT of the number of different words of that text; \"\": Zipf's law");
  f.field("spread", spread, "standard deviation of the time of a sub-batch, as a part of its mean", {0, 10, false});
  f.field("fill", fill, "the part of its token budget that a mean sub-batch holds", {0.01, 1, false});
}

std::vector<KnownStep> Machine::known_steps() const {
  auto steps = read_list<KnownStep>(known, "machine.known");
  for (size_t i = 0; i < steps.size(); ++i) {
    const KnownStep& s = steps[i];
    if ((s.step_s > 0) + (s.tokens_per_s > 0) + (s.hours_per_epoch > 0) != 1)
      throw UserError(str(to_string(known.items[i].mark), ": machine.known.", i,
                          ": give one of step_s, tokens_per_s and hours_per_epoch"));
    if (s.hours_per_epoch > 0 && s.epoch_tokens == 0)
      throw UserError(str(to_string(known.items[i].mark), ": machine.known.", i,
                          ": hours_per_epoch needs epoch_tokens, the tokens of the training text"));
  }
  return steps;
}

void Machine::fields(Fields& f) {
  f.field("title", name, "what the machine is");
  f.group("device", device, "the processor of a rank");
  f.group("links", links, "links between ranks");
  f.group("price", price, "the price of its use");
  f.subtree("known", known, "measured steps: [{recipe: NAME, ranks: 8, step_s: 0.35}, ...], what the device reaches");
  f.subtree("sources", sources, "the origin of each value, by key");
}

void Machine::check(const std::string& where) const {
  Node values = write_config(*this);
  for (const char* key : {"title", "sources"}) values.erase(key);
  std::vector<std::string> keys;
  add_keys(values, "", keys);
  for (const std::string& key : keys)
    if (key != "device.name" && key != "device.kind" && key != "price.currency" && !has_source(sources, key))
      throw UserError(
          str(where, ": no source of ", key, "; state where the value comes from in sources: {", key, ": \"...\"}"));
  for (const auto& [key, rate] : {std::pair{"device.memory_gb", device.memory_gb},
                                  {"device.memory_gb_s", device.memory_gb_s},
                                  {"links.node.gb_s", links.node.gb_s},
                                  {"links.network.gb_s", links.network.gb_s}})
    if (rate <= 0) throw UserError(str(where, ": ", key, " is missing"));
}

Machine read_machine(Node node) {
  add_sources(node);
  auto machine = read_config<Machine>(node, "machine");
  machine.device.read_measured("machine.device");
  return machine;
}

}  // namespace lmx::app::plan
