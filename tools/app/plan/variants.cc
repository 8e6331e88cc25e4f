#include "app/plan/variants.h"

#include <algorithm>

#include "app/sweep/grid.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"

namespace lmx::plan {
namespace {

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

// The numbers of ranks come from --ranks; a rank's share of the batch follows from the recipe's own number.
void refuse_ranks(const std::vector<SweepAxis>& axes, const std::vector<Variant>& variants, const Request& request) {
  if (request.ranks.empty()) return;
  const int first = ranks_of(variants[0].tree);
  const bool differ =
      std::any_of(variants.begin(), variants.end(), [&](const Variant& v) { return ranks_of(v.tree) != first; });
  for (const SweepAxis& axis : axes)
    if (differ && axis.values.size() > 1 && (axis.key == "comm" || axis.key.starts_with("comm.")))
      throw UserError(str("[plan] the values of ", axis.key,
                          " have different numbers of ranks, and --ranks states the numbers; leave out one of them"));
}

// The axes of the command line, without those of the recipe's sweep.
std::vector<SweepAxis> own_axes(const std::string& recipe, const ComposeOptions& options, bool& swept) {
  std::vector<SweepAxis> axes = sweep_axes(recipe, options);
  swept = std::erase_if(axes, [](const SweepAxis& axis) { return !axis.key_mark.file.empty(); }) > 0;
  return axes;
}

Node compose_with(const std::string& recipe, ComposeOptions options, const std::vector<std::string>& overrides) {
  options.overrides = overrides;
  return compose(recipe, options);
}

}  // namespace

int ranks_of(const Node& tree) {
  const Node* comm = tree.find("comm");
  return comm ? static_cast<int>(std::max<int64_t>(1, train::comm_ranks(*comm, "comm"))) : 1;
}

std::vector<Node> variant_trees(const std::string& recipe, const ComposeOptions& options) {
  bool swept = false;
  std::vector<Node> trees;
  for (const std::vector<std::string>& overrides : sweep_grid(own_axes(recipe, options, swept), kMostVariants))
    trees.push_back(compose_with(recipe, options, overrides));
  return trees;
}

std::vector<Variant> variants_of(const Request& request, bool& swept) {
  const ComposeOptions options = with_machine(request);
  const std::vector<SweepAxis> axes = own_axes(request.recipe, options, swept);
  std::vector<Variant> variants;
  for (const std::vector<std::string>& overrides : sweep_grid(axes, kMostVariants)) {
    Variant v;
    for (size_t a = 0; a < axes.size(); ++a)
      if (axes[a].values.size() > 1) v.label += str(v.label.empty() ? "" : " ", overrides[a]);
    v.keeps_batch = std::any_of(overrides.begin(), overrides.end(), sets_batch);
    v.tree = compose_with(request.recipe, options, overrides);
    if (is_file(request.machine)) v.tree.set("machine", parse_yaml_file(request.machine));
    v.machine = read_machine(*v.tree.find("machine"));
    const Algorithm own = algorithm_of(*v.tree.find("machine"));
    v.algorithm = request.algorithm.value_or(own);
    v.tree.erase("machine");
    variants.push_back(std::move(v));
  }
  refuse_ranks(axes, variants, request);
  return variants;
}

}  // namespace lmx::plan
