// Machines on which a training can be planned: recipes/machine/NAME.yaml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/memory/counted.h"
#include "lmx/config.h"
#include "lmx/dtype.h"
#include "recipe/recipe.h"
#include "tensor/planned_products.h"

namespace lmx::app::plan {

// A value for each `precision` of a recipe.
struct ByPrecision {
  double fp32 = 0, bf16 = 0, fp16 = 0;
  void fields(Fields& f);
  double of(DType compute) const { return compute == DType::bf16 ? bf16 : compute == DType::f16 ? fp16 : fp32; }
  double& of(DType compute) { return compute == DType::bf16 ? bf16 : compute == DType::f16 ? fp16 : fp32; }
};

// A measured product (m, k) (k, n) with operands of one type.
struct MeasuredProduct {
  int64_t m = 0, n = 0, k = 0;
  std::string precision;  // fp32, bf16, fp16
  double us = 0;          // microseconds
  double pack_us = 0;     // to pack the second factor, once for all products of a recurrence
  void fields(Fields& f);
};

// A forward and a backward pass of a model and its loss.
struct MeasuredPass {
  std::string network;             // pass_text() of the recipe
  std::string rules;               // rules_text() if strategies choose the rows of the loss, else ""
  int64_t tokens = 0, length = 0;  // of the pass; of a sequence
  double forward_us = 0, backward_us = 0;
  void fields(Fields& f);
};

// A rank's own work on the exchange of a unit: to encode, add, decode, sort and copy, without the links.
struct MeasuredExchange {
  std::string strategy;  // strategy_text() of the rule of the unit
  int64_t ranks = 0;
  int64_t moved = 0;  // UnitBytes::moved
  double us = 0;      // microseconds
  void fields(Fields& f);
};
// The settings of a rule of `sync:`, without the pattern of its parameters: "unique codec.kind=fp16 codec.scale=1024
// gather=unique". `rule`: as full_sync_config() returns it.
std::string strategy_text(const Node& rule);
// The settings of a component in one line, its name first: "lstm cells=2048 embedding=512".
std::string settings_text(const Node& component);
// The settings of a recipe's passes: of its model, its loss and its precision.
std::string pass_text(const Recipe& recipe);
// strategy_text() of all rules, for strategies that choose the rows of which a loss computes gradients.
std::string rules_text(const Recipe& recipe);

// The processor of one rank.
struct DeviceConfig {
  std::string name, kind = "gpu";
  bool native_bf16 = false;
  double memory_gb = 0, memory_gb_s = 0;
  ByPrecision peak_tflops, efficiency;
  double half_size = 0;
  double launch_us = 0;
  double replay_us = 0, product_us = 0;  // see fields()
  int64_t cores = 0;                     // see fields()
  double core_gb_s = 0;                  // see fields()
  double beside = 0;                     // see fields()
  Node products = Node::list({});        // of MeasuredProduct, which product_s() returns where the sizes are equal
  Node exchanges = Node::list({});       // of MeasuredExchange, for exchange_s()
  Node passes = Node::list({});          // of MeasuredPass, for pass()
  void fields(Fields& f);
  // Reads `products`, `exchanges` and `passes`. UserError: not lists of measurements.
  void read_measured(const std::string& path);
  // Seconds of a product (m, k) (k, n). With d, the smallest of the three sizes, the rate is
  //
  //   peak efficiency d / (d + half_size)
  //
  // (Hockney and Jesshope 1988, section 1.3: a rate that is half of its maximum at `half_size`), but the product takes
  // at least the time in which memory delivers its operands and takes its result. A product that is a kernel by itself
  // takes product_us more; one `within` another kernel does not.
  double product_s(int64_t m, int64_t n, int64_t k, DType compute, bool within = false) const;
  // Seconds to pack the second factor of such a product; 0: not measured.
  double pack_s(int64_t m, int64_t n, int64_t k, DType compute) const;
  // Seconds of a rank's own work on the exchange of a unit. From the measured exchange of the same strategy whose size
  // is nearest, in proportion to `moved`; exchanges of as many ranks come first. Without one: memory_s(moved).
  double exchange_s(const std::string& strategy, int64_t ranks, int64_t moved) const;
  bool measures_exchange(const std::string& strategy) const;
  // The measured pass of the same network and length over the nearest number of tokens, in proportion to `tokens`. A
  // pass with the same rules comes before one that does not depend on rules. Empty: none was measured.
  std::optional<MeasuredPass> pass(const std::string& network, const std::string& rules, int64_t tokens,
                                   int64_t length) const;
  // Reduces peak and bandwidth to those of this many cores; without effect on a device whose cores are not stated.
  void use_cores(int64_t some);
  double memory_s(double bytes) const { return bytes / (memory_gb_s * 1e9); }
  // Whether loops are replayed as CUDA graphs, and the host starts kernels while the device computes.
  bool replays() const { return replay_us > 0; }
  ProductSupport support() const { return {kind == "gpu", native_bf16}; }
  // UserError: the device has no rate of products of this type.
  void require_products(DType compute) const;

 private:
  const MeasuredProduct* measured(int64_t m, int64_t n, int64_t k, DType compute) const;
  std::vector<MeasuredProduct> measured_;
  std::vector<MeasuredExchange> measured_exchanges_;
  std::vector<MeasuredPass> measured_passes_;
};

// A link, in one direction.
struct LinkConfig {
  double gb_s = 0, latency_us = 0;
  double overhead = 0;    // see fields()
  double delay_s_gb = 0;  // see fields()
  void fields(Fields& f);
  double seconds(double bytes) const { return bytes / (gb_s * (1 - overhead) * 1e9); }
  double latency_s() const { return latency_us * 1e-6; }
  double delay_s(double bytes) const { return bytes * 1e-9 * delay_s_gb; }
};

struct LinksConfig {
  int64_t ranks_per_node = 1;
  LinkConfig node;      // of a rank, to the other ranks of its node
  bool shared = false;  // the ranks of a node share one such link: a bus, the memory of the host
  LinkConfig network;   // of a node, to all other nodes; its ranks share it
  // Devices cannot reach each other's memory: data is copied to the memory of the host, over the network if the
  // receiver is on another node, and to the other device, one after the other.
  bool staged = false;
  bool after_backward = false;  // units are exchanged when backward has ended, not beside it
  bool central_server = false;  // a parameter server that is no rank; otherwise its shards are divided among the ranks
  std::string collectives;      // the algorithm that the machine's library has; "": the fastest
  void fields(Fields& f);
  // Seconds in which each rank of a node sends `bytes` to another rank of it; `ranks`: those that share the link.
  double inside_s(double bytes, int64_t ranks) const;
  // Seconds in which a node sends `bytes`, of which one rank sends `own`, to other nodes.
  double across_s(double bytes, double own, int64_t ranks) const;
};

struct PriceConfig {
  double node_hour = 0;  // 0: unknown
  std::string currency = "USD";
  void fields(Fields& f);
};

// A step that was measured on the machine: what its device is known to reach. See measured.h.
struct KnownStep {
  std::string recipe;                  // "patwary_word_1b"
  std::vector<std::string> overrides;  // of that recipe
  int64_t ranks = 1;
  double step_s = 0, tokens_per_s = 0, hours_per_epoch = 0;  // one of them is given
  double epoch_tokens = 0, spread = 0, fill = 1;             // as in Request; 0, 0, 1: not stated
  std::string types;                                         // likewise, "8.17,0.64"; "": not stated
  void fields(Fields& f);
};

struct Machine {
  std::string name;
  DeviceConfig device;
  LinksConfig links;
  PriceConfig price;
  Node known = Node::list({});  // of KnownStep
  Node sources;  // by key ("device.memory_gb", or "device.peak_tflops" for all below it): the origin of the value
  void fields(Fields& f);
  // UserError: not a list of known steps.
  std::vector<KnownStep> known_steps() const;
  // UserError: a rate that is missing, a value without a source. `where` begins the message.
  void check(const std::string& where) const;
};

// `node`: the value of the group `machine` in a composed recipe, or the content of such a file. An override is the
// source of its value.
Machine read_machine(Node node);

}  // namespace lmx::app::plan
