// Builds the request of a sweep from the command line and the recipe's own `sweep:`.
#include <algorithm>

#include "app/compose/compose.h"
#include "app/run/search_path.h"
#include "app/sweep/grid.h"
#include "app/sweep/plan.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::Node;
using lmx::str;
using lmx::UserError;

std::vector<std::string> split(const std::string& text, const char* separators) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// `sweep:` of a recipe. read_space() reads `params` together with the overrides.
struct SweepSection {
  Node params, seeds, halving;
  std::string metric = "valid.ppl";
  bool maximize = false;
  int64_t random = 0;
  void fields(lmx::Fields& f) {
    f.subtree("params", params, "axes: a key of the recipe and its values, as on the command line or as a list");
    f.subtree("seeds", seeds, "number of seeds for each configuration, or a list of seeds");
    f.field("metric", metric, "the value to compare: split.key of metrics.jsonl");
    f.field("maximize", maximize, "larger values of the metric are better");
    f.field("random", random, "points drawn at random; 0: every combination", lmx::kNonNegative);
    f.subtree("halving", halving, "{eta: 3, min: STEPS}: successive halving");
  }
};

// Converts a scalar or a list to the text of the command-line option.
std::string words_of(const Node& node) {
  if (node.kind == Node::Kind::scalar) return node.text;
  std::string text;
  for (const Node& item : node.items) text += item.text + ",";  // the comma keeps a list of one element a list
  return text;
}

std::string halving_text(const Node& node) {
  if (node.kind == Node::Kind::scalar) return node.text;
  std::string text;
  for (const auto& [key, value] : node.entries) text += (text.empty() ? "" : ",") + key + "=" + value.text;
  return text;
}

// Prefixes an error in a value of the recipe's section with the position of the value.
template <class Read>
auto placed(const Node& node, const Read& read) {
  try {
    return read();
  } catch (const UserError& e) {
    throw UserError(str(to_string(node.mark), ": ", e.what()));
  }
}

}  // namespace

lmx::SchemaPart sweep_schema() {
  return {"sweep", "", {}, lmx::describe_config<SweepSection>()};
}

Metric parse_metric(const std::string& text, bool maximize) {
  std::vector<std::string> parts = split(text, ". ");
  parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
  if (parts.size() == 1) parts.insert(parts.begin(), "valid");
  if (parts.size() != 2)
    throw UserError(str("[sweep] a metric is split.key, such as valid.ppl or train.nll_nat; got '", text, "'"));
  return {parts[0], parts[1], maximize};
}

Halving parse_halving(const std::string& text) {
  Halving halving;
  for (const std::string& part : split(text, ",")) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::vector<std::string> known{"eta", "min"};
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(str("[sweep] halving has the keys eta and min, as in eta=3,min=100; got '", name, "'",
                          lmx::did_you_mean(name, known)));
    const auto value = lmx::parse_int(equals == std::string::npos ? "" : part.substr(equals + 1));
    if (!value) throw UserError(str("[sweep] halving: ", name, " needs a whole number, as in eta=3,min=100"));
    (name == "eta" ? halving.eta : halving.min) = *value;
  }
  if (halving.eta == 0) halving.eta = 3;
  if (halving.eta < 2)
    throw UserError(
        str("[sweep] halving: eta is ", halving.eta, ", but 1 point of eta continues: eta must be at least 2"));
  if (halving.min < 1)
    throw UserError("[sweep] halving needs min, the steps after which the first are stopped, as in eta=3,min=100");
  return halving;
}

std::vector<int64_t> parse_seeds(const std::string& text) {
  std::vector<std::string> parts = split(text, ",");
  const bool list = parts.size() > 1;
  if (list && parts.back().empty()) parts.pop_back();
  std::vector<int64_t> seeds;
  for (const std::string& part : parts) {
    const auto seed = lmx::parse_int(part);
    if (!seed || (!list && *seed < 1))
      throw UserError(str("[sweep] seeds are a number of them, 3, or a list, 1,5,9; got '", text, "'"));
    if (std::find(seeds.begin(), seeds.end(), *seed) != seeds.end())
      throw UserError(str("[sweep] seed ", *seed, " is there twice"));
    seeds.push_back(*seed);
  }
  if (list) return seeds;
  const int64_t count = seeds[0];
  if (count > 10'000) throw UserError(str("[sweep] ", count, " seeds; a list of one is written ", count, ","));
  seeds.clear();
  for (int64_t seed = 1; seed <= count; ++seed) seeds.push_back(seed);
  return seeds;
}

lmx::ComposeOptions compose_options(const Request& request) {
  lmx::ComposeOptions options;
  options.overrides = request.overrides;
  options.search_path = request.config_dirs;
  return with_plugins(options);
}

Request make_request(Request base, const Given& given) {
  SweepSection section;
  const Node node = lmx::sweep_section(base.recipe, compose_options(base));
  if (node.kind != Node::Kind::null) section = lmx::read_config<SweepSection>(node, "sweep");
  base.random = given.random.value_or(section.random);
  const bool maximize = given.maximize.value_or(section.maximize);
  if (given.seeds)
    base.seeds = parse_seeds(*given.seeds);
  else if (section.seeds.kind != Node::Kind::null)
    base.seeds = placed(section.seeds, [&] { return parse_seeds(words_of(section.seeds)); });
  if (given.halving)
    base.halving = parse_halving(*given.halving);
  else if (section.halving.kind != Node::Kind::null)
    base.halving = placed(section.halving, [&] { return parse_halving(halving_text(section.halving)); });
  const auto read_metric = [&] {
    base.metric = parse_metric(given.metric.value_or(section.metric), maximize);
    check_metric(base.metric, base.halving);
  };
  const Node* named = given.metric ? nullptr : node.find("metric");
  named ? placed(*named, read_metric) : read_metric();
  return base;
}

}  // namespace lmx_cli::sweeps
