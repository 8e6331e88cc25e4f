// The recipe as a tree that stores the place of each value, typed configs that are read from it, and patterns of
// parameter names.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lmx/api.h"
#include "lmx/error.h"

namespace lmx {

// The origin of a value: a place in a file or, with line 0, something without lines: "override 'a.b=3'".
struct Mark {
  std::string file;
  int line = 0, column = 0;  // 1-based; 0 if unknown
};
LMX_API std::string to_string(const Mark& mark);  // "recipes/x.yaml:12:3", "override 'a.b=3'"

// A node of the composed recipe. Maps keep the order in which keys were written.
class LMX_API Node {
 public:
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;                                   // scalar: as written, quotes removed
  bool quoted = false;                                // scalar: written in quotes, hence always a string
  Mark mark;                                          // place of the value
  Mark key_mark;                                      // place of its key; no file: a list item, or created by lmx
  std::vector<Node> items;                            // list
  std::vector<std::pair<std::string, Node>> entries;  // map

  // Defined outside the class: clang needs a complete Node to define functions that use `entries`.
  Node();
  Node(const Node& other);
  Node(Node&& other) noexcept;
  Node& operator=(const Node& other);
  Node& operator=(Node&& other) noexcept;
  ~Node();
  static Node scalar(std::string text, Mark mark = {});  // its text determines its type
  static Node string(std::string text, Mark mark = {});  // a quoted scalar
  static Node list(std::vector<Node> items, Mark mark = {});
  static Node map(Mark mark = {});
  const Node* find(std::string_view key) const;  // null if this is not a map or has no such key
  Node* find(std::string_view key);
  // The node at "a.b.c" or "a.0.b"; null if it does not exist.
  const Node* at_path(std::string_view path) const;
  Node* at_path(std::string_view path);
  Node& set(std::string_view key, Node value);  // replaces or appends
  bool erase(std::string_view key);
  std::vector<std::string> keys() const;
};

// Parses one YAML document (UserError with file:line:column: syntax, duplicate keys, merge keys, tabs, several
// documents).
LMX_API Node parse_yaml(std::string_view text, const std::string& file);
LMX_API Node parse_yaml_file(const std::string& path);
// Parses the value of a command-line option like the value of an override: {cells: 8, feedback: no}, [1, 2]. `option`
// ("--config") begins each message about it.
LMX_API Node parse_option(std::string_view value, const std::string& option);
// YAML that parse_yaml reads back to the same values. A string keeps its quotes only if it would be read as another
// type without them.
LMX_API std::string to_yaml(const Node& node);
LMX_API std::string to_json(const Node& node);  // one line; infinities and NaN, which JSON does not have, as strings

// One field of a typed config, as `lmx plugins info` prints it.
struct FieldInfo {
  std::string name, type, default_text, range, help;  // range: ">= 1", "one of a, b", or ""
};

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open_min = false;  // min itself is excluded
  bool infinite = false;  // the number .inf is a value, too
};
// Integers are at most 2^53 in any case, so that a double holds each of them.
inline constexpr Range kPositive{1, std::numeric_limits<double>::infinity()};
inline constexpr Range kNonNegative{0, std::numeric_limits<double>::infinity()};
inline constexpr Range kFraction{0, 1};
// A size of a model, whose products with others must fit into 64 bits, and the same where 0 means that there is none.
inline constexpr Range kSize{1, 1 << 20};
inline constexpr Range kSizeOrNone{0, 1 << 20};
// A number of layers, of which each is an object.
inline constexpr Range kLayers{1, 10'000};

// Visits the fields of a config. A config type lists each field once, in
//     void fields(Fields& f) { f.field("cells", cells, "LSTM cells of a layer", kPositive); ... }
// and that list is used to read, check, print and document it. The member's initial value is the default.
class LMX_API Fields {
 public:
  // A field as a config states it, with the address of its value.
  struct Field {
    const char* name;
    std::variant<int64_t*, double*, bool*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, Node*>
        value;
    const char* help;
    Range range = {};                                   // of a number, or of each number of a list
    bool required = false;                              // has no default: `???` and a missing key are errors
    const std::vector<std::string>* choices = nullptr;  // of a text; null: any text
  };

  virtual ~Fields();
  void field(const char* name, int64_t& value, const char* help, Range range = {}) {
    visit({name, &value, help, range});
  }
  void field(const char* name, double& value, const char* help, Range range = {}) {
    visit({name, &value, help, range});
  }
  void field(const char* name, bool& value, const char* help) { visit({name, &value, help}); }
  void field(const char* name, std::string& value, const char* help) { visit({name, &value, help}); }
  // A path or name without a default.
  void required(const char* name, std::string& value, const char* help) { visit({name, &value, help, {}, true}); }
  void required(const char* name, int64_t& value, const char* help, Range range = {}) {
    visit({name, &value, help, range, true});
  }
  void choice(const char* name, std::string& value, const std::vector<std::string>& allowed, const char* help) {
    visit({name, &value, help, {}, false, &allowed});
  }
  void field(const char* name, std::vector<int64_t>& value, const char* help, Range range = {}) {
    visit({name, &value, help, range});
  }
  void field(const char* name, std::vector<double>& value, const char* help, Range range = {}) {
    visit({name, &value, help, range});
  }
  void field(const char* name, std::vector<std::string>& value, const char* help) { visit({name, &value, help}); }
  // A subtree that another component reads (its `name` key chooses the component); it is stored unchanged.
  void subtree(const char* name, Node& value, const char* help) { visit({name, &value, help}); }
  // The fields of a component that another key of this map names: all keys that were not visited before. `complete`
  // gets the map without changes, those keys over the ones of `value`, and the map's place; it checks them, and
  // returns them with all defaults.
  using Complete = std::function<Node(const Node& map, const Node& rest, const std::string& path)>;
  virtual void rest(Node& value, const Complete& complete) = 0;
  // A group of fields under one key: f.group("batch", batch, "...") visits batch.fields(f).
  template <class Config>
  void group(const char* name, Config& config, const char*) {
    enter(name);
    config.fields(*this);
    leave();
  }

 protected:
  virtual void visit(const Field& field) = 0;
  virtual void enter(const char* name) = 0;
  virtual void leave() = 0;
};

// Reads a map into `config`. Every problem is a UserError: unknown key (with the nearest known one), wrong type,
// out of range, missing required key. `path` is the node's place in the recipe ("model"), for messages.
// The key "name" of a component's map is skipped.
class LMX_API ConfigReader {
 public:
  ConfigReader(const Node& node, std::string path);
  ~ConfigReader();
  Fields& fields();
  void finish();  // reports unknown keys; to be called after fields() was used

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The beginning of a message about several values of `node`. If overrides set some of these values, it names the
// overrides, because they were applied after the files; otherwise it names the place of `node`. `path` follows.
LMX_API std::string place_of_values(const Node& node, const std::string& path);

// The place of `key` of `node`, or of `node` if it has no such key, for the beginning of a message:
// "recipes/x.yaml:4:8: loss.tie: ". `path` is the place of `node`.
LMX_API std::string place_of_key(const Node& node, const std::string& path, const std::string& key);

template <class Config>
Config read_config(const Node& node, const std::string& path) {
  Config config;
  ConfigReader reader(node, path);
  config.fields(reader.fields());
  reader.finish();
  // Conditions that involve several values: `void check(const std::string& where) const` throws a UserError that begins
  // with `where`, the config's place in the recipe.
  if constexpr (requires { config.check(path); }) config.check(place_of_values(node, path));
  return config;
}

// The config as a map with every field, defaults included.
class LMX_API ConfigWriter {
 public:
  ConfigWriter();
  ~ConfigWriter();
  Fields& fields();
  Node take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
template <class Config>
Node write_config(Config config) {
  ConfigWriter writer;
  config.fields(writer.fields());
  return writer.take();
}

class LMX_API ConfigDescriber {
 public:
  ConfigDescriber();
  ~ConfigDescriber();
  Fields& fields();
  std::vector<FieldInfo> take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
template <class Config>
std::vector<FieldInfo> describe_config() {
  Config config;
  ConfigDescriber describer;
  config.fields(describer.fields());
  return describer.take();
}

// UserError that lists every `???` of the tree with its place, if there are any.
LMX_API void check_missing(const Node& tree);

// Scalar conversions with YAML 1.2 core rules; nullopt if `text` is not of that type. `_` may group digits. A number
// with a leading zero, hexadecimal and octal numbers are not accepted, because YAML readers interpret them differently.
LMX_API std::optional<int64_t> parse_int(std::string_view text);
LMX_API std::optional<double> parse_double(std::string_view text);
LMX_API std::optional<bool> parse_bool(std::string_view text);

// Facts about a component that follow from its config alone, before an object is made from it.
//
// A plugin's config states them by `Traits traits() const`; the core asks for them by these names, and for nothing else
// in the config. A name that is absent has the usual meaning that is given here.
using Traits = std::map<std::string, std::string>;
// The value of a trait that is a number: the shortest text that parse_double() reads back to the same value.
LMX_API std::string trait_value(double value);

namespace trait {

// Communicators. "true": the ranks are threads of one process, and exchange gradients after the backward pass. Absent:
// each rank is a process.
inline constexpr const char* kOneProcess = "one_process";
// Communicators. The key of the config that lets sums be computed in an order that is not fixed, so that the bits of
// two runs may differ. Absent: sums are computed in rank order.
inline constexpr const char* kUnorderedSums = "unordered_sums";
// Sync strategies. Describes the clock of asynchronous workers, which must be equal in all rules of a recipe. Absent:
// the strategy is synchronous.
inline constexpr const char* kWorkerClock = "worker_clock";
// Sync strategies. "true": ranks have their own values of the rule's parameters between synchronisations
// (lmx/replica_strategy.h). Absent: these values are equal after each step, or on a server.
inline constexpr const char* kReplicas = "replicas";
// Sync strategies. "true": each rank updates its part of the parameters (lmx/shard_strategy.h). Absent: each rank makes
// the whole update.
inline constexpr const char* kShards = "shards";
// Optimizers, required: the learning rate before `lr_rule` and the schedule are applied, as trait_value() writes it. An
// optimizer that has no learning rate states "1"; the schedule then determines the factor of its updates.
inline constexpr const char* kLearningRate = "learning_rate";
// Optimizers. "true": validations and what a run stores for use have averages of the parameters, by
// Optimizer::evaluate(). The average takes the place of a decreasing learning rate, so the schedule must be `constant`.
// Absent: they have the parameters themselves.
inline constexpr const char* kAverages = "averages";
// Models and losses. The keys of the config, separated by spaces, that a resumed run may change, because neither the
// shapes nor the meaning of the parameters depend on them. Absent: none.
inline constexpr const char* kChangeable = "changeable";
// Models. The architecture: "lstm", "mlstm", "rhn", "transformer" or "gpt". A model that states it has the parameters
// of the model of lmx with this name, by the same names and with the same meaning (docs/models.md), and states the
// numbers below; for "gpt" all fields of that model, by their names. Absent: `lmx export` knows no format for it.
inline constexpr const char* kArchitecture = "architecture";
// Recurrent models: number of layers, size of a word's vector, cells of a layer. LSTM: size of the projection, "0" if
// it has none. RHN: highway layers of each step; "true" or "false", whether its carry gate is 1 - transform gate.
inline constexpr const char* kLayers = "layers";
inline constexpr const char* kEmbedding = "embedding";
inline constexpr const char* kCells = "cells";
inline constexpr const char* kProjection = "projection";
inline constexpr const char* kDepth = "depth";
inline constexpr const char* kCoupled = "coupled";
// Recurrent models. Constants that are added to the pre-activation of the forget gate or of the transform gate.
inline constexpr const char* kForgetBias = "forget_bias";
inline constexpr const char* kTransformBias = "transform_bias";
// Transformers: layers of both sides ("0" layers of the encoder: a language model), size of a word's vector and of each
// layer's output, units of a feed-forward sub-layer, heads of an attention.
inline constexpr const char* kEncoderLayers = "encoder_layers";
inline constexpr const char* kDecoderLayers = "decoder_layers";
inline constexpr const char* kWidth = "width";
inline constexpr const char* kFeedForward = "feed_forward";
inline constexpr const char* kHeads = "heads";
// Transformers. Probabilities of dropout: of elements of the residual stream, of attention weights, and of units of a
// feed-forward sub-layer.
inline constexpr const char* kDropout = "dropout";
inline constexpr const char* kAttentionDropout = "attention_dropout";
inline constexpr const char* kFeedForwardDropout = "feed_forward_dropout";
// Transformers. "post": layer normalisation after each sum. "pre": before each sub-layer, and once at the end.
inline constexpr const char* kNorm = "norm";
// Transformers. One table for source words, target words and output layer ("all"), for the last two ("decoder"), or
// three tables ("none").
inline constexpr const char* kSharedTables = "shared_tables";

}  // namespace trait

// A pattern of parameter names in recipes: sync.RULE.params, clip.N.params, train.ema_params, model.weight_norm and the
// patterns of sampled_rows. All of them have the same meaning.
//
// A regular expression that is searched for in a name: "softmax" matches "softmax.weight" and "softmax.bias";
// "^embedding" matches names that begin with it, "\.bias$" names that end with it, ".*" all names. The syntax is RE2's:
// Perl's without look-ahead and back-references. The time of a match is linear in the name's length.
class LMX_API ParamPattern {
 public:
  // The longest pattern, in bytes.
  static constexpr size_t kLongest = 4096;

  // `place` begins the messages: "recipes/my.yaml:4:11: clip.0.params: ". UserError: `text` is not a regular
  // expression, is too long, or compiles to more than 8 MiB.
  explicit ParamPattern(std::string text, std::string place = "");

  bool matches(std::string_view name) const;
  // The elements of `names` that match, in their order. UserError at the pattern's place if none does.
  std::vector<std::string> select(const std::vector<std::string>& names) const;

  const std::string& text() const { return text_; }
  const std::string& place() const { return place_; }

 private:
  struct Compiled;
  std::string text_, place_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace lmx
