// Builds the request of a sweep from the command line and the recipe's own `sweep:`.
#include "app/sweep/plan.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/compose/compose.h"
#include "app/compose/override.h"
#include "app/records/records.h"
#include "app/run/dry_run.h"
#include "app/run/shipped.h"
#include "app/sweep/grid.h"
#include "config/error_collector.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "recipe/recipe.h"

namespace lmx::app::sweep {
namespace {

// `sweep:` of a recipe. read_space() reads `params` together with the overrides.
struct SweepSection {
  Node params, seeds, halving;
  std::string metric = "valid.ppl";
  bool maximize = false;
  int64_t random = 0;
  void fields(Fields& f) {
    f.subtree("params", params, "axes: a key of the recipe and its values, as on the command line or as a list");
    f.subtree("seeds", seeds, "number of seeds for each configuration, or a list of seeds");
    f.field("metric", metric, "the value to compare: split.key of metrics.jsonl");
    f.field("maximize", maximize, "larger values of the metric are better");
    f.field("random", random, "points drawn at random; 0: every combination", kNonNegative);
    f.subtree("halving", halving, "{eta: 3, min: STEPS}: successive halving");
  }
};

bool is_scalar(const Node& node) {
  return node.kind == Node::Kind::scalar;
}

std::string written(const Node& node) {
  return is_scalar(node) ? node.text : value_text(node);
}

// Converts a list of scalars to the text of the command-line option.
std::string words_of(const Node& node) {
  if (node.items.empty() || !std::all_of(node.items.begin(), node.items.end(), is_scalar)) return written(node);
  std::string text;
  for (const Node& item : node.items) text += item.text + ",";  // the comma keeps a list of one element a list
  return text;
}

void set_halving(Halving& halving, const std::string& name, const std::string& value) {
  const std::vector<std::string> known{"eta", "min"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw UserError(str("[sweep] halving has the keys eta and min, as in eta=3,min=100; got '", name, "'",
                        did_you_mean(name, known)));
  const auto number = parse_int(value);
  if (!number)
    throw UserError(str("[sweep] halving: ", name, " needs a whole number, as in eta=3,min=100; got '", value, "'"));
  (name == "eta" ? halving.eta : halving.min) = *number;
}

constexpr Halving kHalving{3, 0};  // what a request changes

Halving read_halving(const Node& node) {
  if (is_scalar(node)) return parse_halving(node.text);
  if (node.kind != Node::Kind::map)
    throw UserError(str("[sweep] halving has the keys eta and min, as in {eta: 3, min: 100}; got ", value_text(node)));
  Halving halving = kHalving;
  for (const auto& [key, value] : node.entries) set_halving(halving, key, written(value));
  check_halving(halving);
  return halving;
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

SchemaPart sweep_schema() {
  return {"sweep", "", {}, describe_config<SweepSection>()};
}

Metric parse_metric(const std::string& text, bool maximize) {
  // The names of parameters in keys contain further dots.
  const size_t end = text.find_first_of(". ");
  const size_t begin = end == std::string::npos ? 0 : std::min(text.find_first_not_of(' ', end + 1), text.size());
  const Metric metric{end == std::string::npos ? "valid" : text.substr(0, end), text.substr(begin), maximize};
  if (metric.split.empty() || metric.key.empty())
    throw UserError(str("a metric is split.key, such as valid.ppl or train.nll_nat; got '", text, "'"));
  return metric;
}

Halving parse_halving(const std::string& text) {
  Halving halving = kHalving;
  for (const std::string& part : config::split(text, ',')) {
    const size_t equals = part.find('=');
    set_halving(halving, part.substr(0, equals), equals == std::string::npos ? "" : part.substr(equals + 1));
  }
  check_halving(halving);
  return halving;
}

void check_halving(const Halving& halving) {
  if (halving.eta < 2)
    throw UserError(
        str("[sweep] halving: eta is ", halving.eta, ", but 1 point of eta continues: eta must be at least 2"));
  if (halving.min < 1)
    throw UserError(str("[sweep] halving needs min, the steps after which the first are stopped, as in eta=3,min=100",
                        halving.min == 0 ? "" : str("; got ", halving.min)));
}

std::vector<int64_t> parse_seeds(const std::string& text) {
  std::vector<std::string> parts = config::split(text, ',');
  const bool list = parts.size() > 1;
  if (list && parts.back().empty()) parts.pop_back();
  std::vector<int64_t> seeds;
  for (const std::string& part : parts) {
    const auto seed = parse_int(part);
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

ComposeOptions compose_options(const Request& request) {
  ComposeOptions options;
  options.overrides = request.overrides;
  options.search_path = request.config_dirs;
  return with_plugins(options);
}

Request make_request(Request base, const Given& given) {
  SweepSection section;
  const Node node = sweep_section(base.recipe, compose_options(base));
  if (node.kind != Node::Kind::null) section = read_config<SweepSection>(node, "sweep");
  base.random = given.random.value_or(section.random);
  const bool maximize = given.maximize.value_or(section.maximize);
  if (given.seeds)
    base.seeds = parse_seeds(*given.seeds);
  else if (section.seeds.kind != Node::Kind::null)
    base.seeds = placed(section.seeds, [&] { return parse_seeds(words_of(section.seeds)); });
  if (given.halving)
    base.halving = parse_halving(*given.halving);
  else if (section.halving.kind != Node::Kind::null)
    base.halving = placed(section.halving, [&] { return read_halving(section.halving); });
  const auto read_metric = [&] {
    base.metric = parse_metric(given.metric.value_or(section.metric), maximize);
    check_metric(base.metric, base.halving);
  };
  const Node* named = given.metric ? nullptr : node.find("metric");
  named ? placed(*named, read_metric) : read_metric();
  return base;
}

namespace {

constexpr const char* kRanksAxis = "ranks";  // of several --ranks; no key of a recipe has this name

// Makes a short name that is safe as a file name and in a shell.
std::string file_name(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.=";
  std::string name;
  for (const char c : text)
    if (std::string_view(kPlain).find(c) != std::string_view::npos)
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  constexpr size_t kLongest = 100;
  return name.substr(0, kLongest);
}

std::string id_of(const Plan& plan, size_t number, const Place& place) {
  const std::string digits = std::to_string(plan.points.size() - 1);
  std::string id = std::to_string(number);
  id.insert(0, digits.size() - id.size(), '0');
  std::string name;
  for (size_t a = 0; a < place.size(); ++a) {
    const std::string key = plan.axes[a].name.substr(plan.axes[a].name.find_first_not_of("+"));
    name += "-" + key.substr(key.rfind('.') + 1) + "=" + place[a];
  }
  return id + file_name(name);
}

std::vector<Axis> axes_with_seeds(std::vector<Axis> axes, const std::vector<int64_t>& seeds) {
  if (seeds.empty()) return axes;
  Axis seed{"seed", {}, {}, false};
  for (const int64_t s : seeds) seed.values.push_back(std::to_string(s));
  axes.push_back(std::move(seed));
  return axes;
}

// "+seed" (add) and "++seed" (set) refer to the same key.
std::string bare_key(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('+'), name.size()));
}

// Appends the axis of several numbers of virtual ranks.
std::vector<Axis> axes_with_ranks(std::vector<Axis> axes, const std::vector<int64_t>& ranks) {
  if (ranks.size() < 2) return axes;
  Axis axis{kRanksAxis, {}, {}, false};
  for (const int64_t n : ranks) {
    const std::string text = std::to_string(n);
    if (std::find(axis.values.begin(), axis.values.end(), text) != axis.values.end())
      throw UserError(str("[sweep] --ranks ", text, " is there twice"));
    axis.values.push_back(text);
  }
  axes.push_back(std::move(axis));
  return axes;
}

// Refuses overrides that would have no effect.
void check_keys(const Space& space, bool seeds) {
  const auto check = [seeds](const std::string& key, const std::string& text) {
    if (key == "seed" && seeds)
      throw UserError(str("[sweep] ", text, " and seeds both say which seeds to run; leave one of them out"));
    if (key == "run.dir")
      throw UserError(str("[sweep] ", text, ": the run of each point has its own folder inside that of the sweep, ",
                          "which --out DIR chooses; leave run.dir out"));
  };
  for (const Axis& axis : space.axes) check(bare_key(axis.name), axis.name + "=...");
  for (const std::string& fixed : space.fixed) check(bare_key(fixed.substr(0, fixed.find('='))), fixed);
  for (size_t i = 0; i < space.axes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (bare_key(space.axes[i].name) == bare_key(space.axes[j].name))
        throw UserError(str("[sweep] ", space.axes[j].name, "=... and ", space.axes[i].name,
                            "=... vary the same key, of which the last one counts; leave one of them out"));
}

void make_points(Plan& plan, const Space& space) {
  const Request& r = plan.request;
  check_keys(space, plan.has_seeds());
  const std::vector<Place> places = r.random > 0 ? draw(space.axes, r.random, r.random_seed) : grid(space.axes);
  if (places.size() * std::max<size_t>(1, r.seeds.size()) > kMostPoints)
    throw UserError(str("[sweep] ", places.size(), " configurations with ", r.seeds.size(),
                        " seeds each are more than ", kMostPoints, " points; --random N draws some configurations"));
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t s = 0; s < std::max<size_t>(1, r.seeds.size()); ++s) {
      Point point;
      point.place = places[i];
      point.configuration = i;
      if (!r.seeds.empty()) point.place.push_back(std::to_string(r.seeds[s]));
      plan.points.push_back(std::move(point));
    }
  }
  for (size_t i = 0; i < plan.points.size(); ++i) plan.points[i].id = id_of(plan, i, plan.points[i].place);
}

void add_once(std::vector<std::string>& lines, const std::string& line) {
  if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
}

// How a point is composed.
struct Composition {
  ComposeOptions options;
  int64_t ranks = 0;
};
Composition composition_of(const Plan& plan, const Point& point, const Space& space) {
  Composition made{compose_options(plan.request), plan.request.ranks.size() == 1 ? plan.request.ranks[0] : 0};
  ComposeOptions& options = made.options;
  options.overrides = space.fixed;
  options.places = space.places;
  for (size_t a = 0; a < plan.axes.size(); ++a) {
    if (plan.axes[a].name == kRanksAxis) {
      made.ranks = parse_int(point.place[a]).value();
      continue;
    }
    options.overrides.push_back(plan.axes[a].name + "=" + point.place[a]);
    const auto drawn = space.places.find(plan.axes[a].name);
    if (drawn != space.places.end()) options.places[options.overrides.back()] = drawn->second;
  }
  return made;
}

void compose_point(Plan& plan, size_t number, const Space& space, DatasetChecks& checks) {
  Point& point = plan.points[number];
  const Composition how = composition_of(plan, point, space);
  const Node composed =
      compose_on_ranks(plan.request.recipe, how.options, how.ranks, {plan.name, static_cast<int64_t>(number)});
  if (number == 0) plan.environment = environment_values(plan.request.recipe, how.options);
  const std::string yaml = to_yaml(full_recipe(composed, point.id));
  const DryRun dry = dry_run(composed, point.id, checks);
  point.yaml = yaml;  // "" marks a point with an error
  read_resources(point, point.id);
  point.parameters = dry.parameters;
  point.memory = dry.memory;
  point.parameter_count = dry.parameter_count;
  point.memory_bytes = dry.memory_bytes;
  for (const std::string& line : dry.missing_data) add_once(plan.missing_data, line);
  if (!dry.missing_memory.empty()) add_once(plan.missing_memory, str("point ", point.id, ": ", dry.missing_memory));
  if (!dry.missing_device.empty()) add_once(plan.missing_device, dry.missing_device);
}

// Example: "optimizer.lr=-1, 4 points: message".
std::string finding(const Plan& plan, const std::string& message, const std::vector<size_t>& points) {
  if (points.size() == plan.points.size()) return message;
  std::string where;
  for (size_t a = 0; a < plan.axes.size(); ++a) {
    const std::string& value = plan.points[points[0]].place[a];
    const bool same =
        std::all_of(points.begin(), points.end(), [&](size_t p) { return plan.points[p].place[a] == value; });
    if (same) where += (where.empty() ? "" : " ") + plan.axes[a].name + "=" + value;
  }
  return str(where, where.empty() ? "" : ", ", plural(points.size(), "point"), ": ", message);
}

}  // namespace

void read_resources(Point& point, const std::string& file) {
  const Node full = parse_yaml(point.yaml, file);
  if (full.kind != Node::Kind::map)
    throw UserError(str("[sweep] ", file, " is no recipe: expected keys with their values, got ", value_text(full)));
  point.steps = static_cast<int64_t>(number_at(full, "train.steps"));
  point.epochs = text_at(full, "train.epochs");
  point.demand = jobs::demand_of(full);
  point.length = jobs::length_of(full);
  point.translates = text_at(full, "train.final_bleu") != "none";
}

std::string Plan::text_of(const Point& point) const {
  std::string text;
  for (size_t a = 0; a < axes.size(); ++a) text += (a ? " " : "") + axes[a].name + "=" + point.place[a];
  return text.empty() ? "the recipe without changes" : text;
}

Plan make_plan(const Request& request, std::vector<std::string>* findings) {
  Plan plan;
  plan.request = request;
  plan.name = std::filesystem::path(request.recipe).stem().string();
  std::error_code unknown;
  plan.directory = std::filesystem::current_path(unknown).string();
  Space space = read_space(request.recipe, compose_options(request));
  space.axes = axes_with_ranks(std::move(space.axes), request.ranks);
  plan.axes = axes_with_seeds(space.axes, request.seeds);
  make_points(plan, space);
  std::map<std::string, std::vector<size_t>> errors;
  std::vector<std::string> order;
  DatasetChecks checks;
  for (size_t i = 0; i < plan.points.size(); ++i) {
    progress_line(str("[sweep] checked ", i, " of ", plan.points.size(), " points"));
    try {
      compose_point(plan, i, space, checks);
    } catch (const UserError& e) {
      for (const std::string& message : messages_of(e)) {
        std::vector<size_t>& points = errors[message];
        if (points.empty()) order.push_back(message);
        if (points.empty() || points.back() != i) points.push_back(i);
      }
    }
  }
  progress_line("");
  std::vector<std::string> found;
  for (const std::string& message : order) found.push_back(finding(plan, message, errors[message]));
  if (!findings && !found.empty()) fail_together(found, "mistakes");
  if (findings) *findings = found;
  return plan;
}

}  // namespace lmx::app::sweep
