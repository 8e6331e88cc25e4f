#include "app/plan/variants.h"

#include <algorithm>
#include <map>
#include <set>

#include "app/sweep/grid.h"
#include "config/error_collector.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"
#include "recipe/recipe.h"

namespace lmx::app::plan {
namespace {

using Overrides = std::vector<std::string>;

constexpr size_t kMostVariants = 1000;

bool is_file(const std::string& machine) {
  return machine.ends_with(".yaml") || machine.find('/') != std::string::npos;
}

// The key of an override, without the signs before it.
std::string key_of(const std::string& word) {
  const size_t begin = std::min(word.find_first_not_of("+~"), word.size());
  return word.substr(begin, word.find('=', begin) - begin);
}

ComposeOptions with_machine(const Request& request) {
  ComposeOptions options = request.compose;
  if (is_file(request.machine)) {
    for (const std::string& word : options.overrides)
      if (key_of(word).starts_with("machine"))
        throw UserError(str("[plan] '", word, "' changes a machine of the search path, and --machine ", request.machine,
                            " names a file; change the value in that file"));
    return options;
  }
  const std::string choice = "+machine=" + request.machine;
  const Mark mark{str("option '--machine ", request.machine, "'")};
  options.overrides.insert(options.overrides.begin(), choice);
  options.places[choice] = {mark, mark};
  return options;
}

bool sets_batch(const std::string& word) {
  const std::string key = key_of(word);
  return key == "batch" || key == "batch.global";
}

Algorithm algorithm_of(const Node& machine) {
  const Node* links = machine.find("links");
  const Node* name = links ? links->find("collectives") : nullptr;
  if (!name || name->text.empty()) return Algorithm::automatic;
  try {
    return algorithm_named(name->text);
  } catch (const UserError& e) {
    throw UserError(str(to_string(name->mark), ": machine.links.collectives: ", e.what()));
  }
}

// The numbers of ranks come from --ranks, for all variants; a rank's share of the batch follows from the recipe's own
// number.
void refuse_ranks(const std::vector<SweepAxis>& axes, const std::vector<Variant>& variants, const Request& request) {
  const int first = ranks_of(variants[0].tree);
  if (std::all_of(variants.begin(), variants.end(), [&](const Variant& v) { return ranks_of(v.tree) == first; }))
    return;
  for (const SweepAxis& axis : axes)
    if (axis.values.size() > 1 && (axis.key == "comm" || axis.key.starts_with("comm.")))
      throw UserError(str("[plan] the values of ", axis.key,
                          " have different numbers of ranks; --ranks N,... states the numbers, for all variants"));
  if (request.ranks.empty())
    throw UserError("[plan] the variants have different numbers of ranks; --ranks N,... states them for all variants");
}

// The axes of the command line, without those of the recipe's sweep.
std::vector<SweepAxis> own_axes(const std::string& recipe, const ComposeOptions& options, bool& swept) {
  std::vector<SweepAxis> axes = sweep_axes(recipe, options);
  swept = std::erase_if(axes, [](const SweepAxis& axis) { return !axis.key_mark.file.empty(); }) > 0;
  return axes;
}

Node compose_with(const std::string& recipe, ComposeOptions options, const Overrides& overrides) {
  options.overrides = overrides;
  return compose(recipe, options);
}

// Whether an axis sets a part of what another one chooses: sync.all.every, if sync has several values.
bool is_part_of_choice(const SweepAxis& axis, const std::vector<SweepAxis>& axes) {
  return std::any_of(axes.begin(), axes.end(), [&](const SweepAxis& choice) {
    return choice.values.size() > 1 && axis.key.starts_with(key_of(choice.key) + ".");
  });
}

// The recipes of the points with every default, without the parts of choices.
class WithoutParts {
 public:
  WithoutParts(const std::string& recipe, const ComposeOptions& options, const std::vector<SweepAxis>& axes)
      : recipe_(recipe), options_(options) {
    for (const SweepAxis& axis : axes) parts_.push_back(is_part_of_choice(axis, axes));
  }
  bool is_part(size_t axis) const { return parts_[axis]; }
  bool any() const { return std::find(parts_.begin(), parts_.end(), true) != parts_.end(); }
  const Node& of(const Overrides& point) {
    Overrides own;
    for (size_t a = 0; a < point.size(); ++a)
      if (!parts_[a]) own.push_back(point[a]);
    const auto [at, fresh] = trees_.try_emplace(own);
    if (fresh) {
      Node tree = compose_with(recipe_, options_, own);
      tree.erase("machine");
      at->second = full_recipe(tree, recipe_);
    }
    return at->second;
  }
  // UserError: none of the recipes has this key.
  void require(const std::string& key) const {
    const size_t dot = key.rfind('.');
    std::vector<std::string> names;
    for (const auto& [point, tree] : trees_) {
      if (tree.at_path(key)) return;
      if (const Node* parent = tree.at_path(key.substr(0, dot)))
        for (const auto& [name, value] : parent->entries) names.push_back(name);
    }
    throw UserError(str("[plan] no variant has the key ", key, did_you_mean(key.substr(dot + 1), names)));
  }

 private:
  std::string recipe_;
  ComposeOptions options_;
  std::vector<bool> parts_;  // by axis
  std::map<Overrides, Node> trees_;
};

// The values of each variant that differ between variants.
std::vector<std::string> labels_of(const std::vector<SweepAxis>& axes, const std::vector<Overrides>& points) {
  std::vector<std::string> labels;
  for (const Overrides& overrides : points) {
    std::string& label = labels.emplace_back();
    for (size_t a = 0; a < axes.size(); ++a)
      if (axes[a].values.size() > 1 && !overrides[a].empty()) label += str(label.empty() ? "" : " ", overrides[a]);
  }
  return labels;
}

// The overrides of each variant, by axis. A part of a choice is "" for the variants that do not have its key, so that
// sync=allreduce,diloco sync.all.every=10,50 are three variants.
std::vector<Overrides> points_of(const std::string& recipe, const ComposeOptions& options,
                                 const std::vector<SweepAxis>& axes) {
  std::vector<Overrides> points = sweep_grid(axes, kMostVariants);
  WithoutParts without(recipe, options, axes);
  if (!without.any()) return points;
  for_variants(labels_of(axes, points), [&](size_t v) {
    const Node& tree = without.of(points[v]);
    for (size_t a = 0; a < axes.size(); ++a)
      if (without.is_part(a) && !tree.at_path(axes[a].key)) points[v][a].clear();
  });
  for (size_t a = 0; a < axes.size(); ++a)
    if (without.is_part(a)) without.require(axes[a].key);
  std::set<Overrides> seen;
  std::erase_if(points, [&](const Overrides& point) { return !seen.insert(point).second; });
  return points;
}

Overrides without_empty(Overrides overrides) {
  std::erase(overrides, "");
  return overrides;
}

Variant make_variant(const Request& request, const ComposeOptions& options, const Overrides& overrides) {
  Variant v;
  v.keeps_batch = std::any_of(overrides.begin(), overrides.end(), sets_batch);
  v.tree = compose_with(request.recipe, options, without_empty(overrides));
  if (is_file(request.machine)) v.tree.set("machine", parse_yaml_file(request.machine));
  v.machine = read_machine(*v.tree.find("machine"));
  const Algorithm own = algorithm_of(*v.tree.find("machine"));
  v.algorithm = request.algorithm.value_or(own);
  v.tree.erase("machine");
  return v;
}

// The message of the UserError that `make` throws; "" if it throws none.
std::string error_of(const std::function<void()>& make) {
  try {
    make();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

void for_variants(const std::vector<std::string>& labels, const std::function<void(size_t)>& make) {
  for (size_t v = 0; v < labels.size(); ++v) {
    try {
      make(v);
    } catch (const UserError& e) {
      size_t same = 0;
      while (same < labels.size() && error_of([&] { make(same); }) == e.what()) ++same;
      if (same == labels.size()) throw;
      std::vector<std::string> messages;
      for (const std::string& message : messages_of(e)) messages.push_back(labels[v] + ": " + message);
      fail_together(messages, "mistakes");
    }
  }
}

int ranks_of(const Node& tree) {
  const Node* comm = tree.find("comm");
  return comm ? static_cast<int>(std::max<int64_t>(1, comm_ranks(*comm, "comm"))) : 1;
}

std::vector<Node> variant_trees(const std::string& recipe, const ComposeOptions& options) {
  bool swept = false;
  const std::vector<SweepAxis> axes = own_axes(recipe, options, swept);
  const std::vector<Overrides> points = points_of(recipe, options, axes);
  std::vector<Node> trees(points.size());
  for_variants(labels_of(axes, points),
               [&](size_t v) { trees[v] = compose_with(recipe, options, without_empty(points[v])); });
  return trees;
}

std::vector<Variant> variants_of(const Request& request, bool& swept) {
  const ComposeOptions options = with_machine(request);
  const std::vector<SweepAxis> axes = own_axes(request.recipe, options, swept);
  const std::vector<Overrides> points = points_of(request.recipe, options, axes);
  const std::vector<std::string> labels = labels_of(axes, points);
  std::vector<Variant> variants(points.size());
  for_variants(labels, [&](size_t v) {
    variants[v] = make_variant(request, options, points[v]);
    variants[v].label = labels[v];
  });
  refuse_ranks(axes, variants, request);
  return variants;
}

}  // namespace lmx::app::plan
