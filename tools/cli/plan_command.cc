// lmx plan
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/calibration/calibrate.h"
#include "app/corpora/zipf.h"
#include "app/plan/output.h"
#include "app/plan/plan.h"
#include "app/plan/variants.h"
#include "app/run/outputs.h"
#include "app/run/shipped.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "recipe/comm_config.h"

namespace lmx::app::cli {
namespace {

struct PlanFlags {
  PluginDirectories directories;
  plan::Request request;
  std::string collectives, types, counts, anchor, out, calibrate;
  double epoch_tokens = 0;
  std::optional<double> within;
  std::optional<plan::Goal> goal;
  bool no_overlap = false, json = false, memory = false;
};

// The command line with which further ranks are started.
std::vector<std::string> command_line(const PlanFlags& o) {
  std::vector<std::string> words{"lmx", "plan", o.request.recipe};
  words.insert(words.end(), o.request.compose.overrides.begin(), o.request.compose.overrides.end());
  words.insert(words.end(), {"--calibrate", o.calibrate});
  for (const std::string& folder : o.request.compose.search_path) words.insert(words.end(), {"--config-dir", folder});
  for (const std::string& folder : o.directories.directories) words.insert(words.end(), {"--plugin-dir", folder});
  return words;
}

// The recipes of a calibration, with each combination of the values of its overrides. Further recipes are among the
// overrides, as words without a value.
std::vector<Recipe> calibrated_recipes(const PlanFlags& o) {
  ComposeOptions options = with_plugins(o.request.compose);
  std::vector<std::string> files{o.request.recipe};
  std::erase_if(options.overrides, [&](const std::string& word) {
    const bool file = word.ends_with(".yaml") && word.find('=') == std::string::npos;
    if (file) files.push_back(word);
    return file;
  });
  std::vector<Recipe> recipes;
  for (const std::string& file : files)
    for (const Node& tree : plan::variant_trees(file, options)) {
      app::require_no_loss("--calibrate", o.calibrate, tree);
      recipes.push_back(read_recipe(tree, std::filesystem::path(file).stem().string()));
    }
  for (const Recipe& other : recipes) {
    if (to_yaml(other.comm) != to_yaml(recipes[0].comm))
      throw UserError("[plan] --calibrate measures the links of one group of ranks; give one value of comm");
    if (other.device != recipes[0].device)
      throw UserError(str("[plan] --calibrate measures one device, and these recipes have ", recipes[0].device, " and ",
                          other.device, "; give one value of device"));
  }
  return recipes;
}

void calibrate(Command command, const PlanFlags& o) {
  if (!o.calibrate.ends_with(".yaml"))
    throw UserError(str("[plan] --calibrate ", o.calibrate, ": a machine is a file that ends in .yaml"));
  refuse_given(command, {"--machine", "--ranks", "--out", "--anchor", "--from", "--json", "--find"},
               "with --calibrate");
  const std::vector<Recipe> recipes = calibrated_recipes(o);
  const Recipe& recipe = recipes[0];
  if (comm_ranks(recipe.comm, "comm") > 1 && in_one_process(recipe.comm, "comm"))
    throw UserError(
        "[plan] --calibrate measures ranks that are processes, and those of this recipe are threads of one: set "
        "comm=self, or comm=mpi or comm=gloo with comm.ranks=N");
  const auto group = make_comm_group(recipe.comm, "comm", comm_env(recipe, command_line(o)));
  group->run([&](Communicator& comm) {
    const plan::Machine machine = calibration::calibrate(recipes, comm, detect_launch().local_size);
    if (comm.rank() != 0) return;
    write_file(o.calibrate, to_yaml(write_config(machine)));
    std::cout << "machine " << o.calibrate << ": " << machine.name << "\n";
  });
}

// RECIPE is the folder of a run.
void compare(Command command, PlanFlags o) {
  refuse_given(command,
               {"--ranks", "--out", "--anchor", "--from", "--calibrate", "--find", "--types", "--counts",
                "--collectives", "--spread", "--fill", "--epoch-tokens", "--no-overlap"},
               "with --memory");
  if (!o.request.compose.overrides.empty())
    throw UserError(str("[plan] --memory plans the recipe of the run, unchanged; leave out '",
                        o.request.compose.overrides[0], "'"));
  o.directories.load();
  std::optional<plan::Machine> machine;
  if (!o.request.machine.empty()) {
    plan::Request request;
    request.recipe = o.request.recipe + "/config.yaml";
    request.machine = o.request.machine;
    request.compose = with_plugins(o.request.compose);
    bool swept = false;
    machine = plan::variants_of(request, swept)[0].machine;
  }
  const calibration::ComparedMemory compared = calibration::compare_memory(o.request.recipe, machine);
  if (o.json)
    print_json(calibration::json_of(compared));
  else
    std::cout << calibration::text_of(compared);
  if (o.within && std::abs(compared.total_error()) > *o.within) throw ExitCode(3);
}

void require_no_loss(const PlanFlags& o) {
  bool swept = false;
  if (o.out.empty()) return;
  for (const plan::Variant& variant : plan::variants_of(o.request, swept))
    app::require_no_loss("--out", o.out, variant.tree);
}

// The winners and the bandwidths of a plan are not needed.
void find(const PlanFlags& o) {
  plan::Planner planner(o.request);
  const plan::Plan plan = planner.rows(planner.speed());
  const plan::Found found = plan::find(plan, *o.goal);
  if (o.json) return print_json(plan::json_of(found));
  std::cout << plan::text_of(plan, found);
}

void plan(Command command, PlanFlags o) {
  if (o.memory) return compare(command, o);
  refuse_given(command, {"--within"}, "without --memory");
  if (!o.calibrate.empty()) {
    o.directories.load();
    return calibrate(command, o);
  }
  if (o.request.machine.empty())
    throw UserError("[plan] --machine NAME is missing: a file of a folder `machine` of recipes, or the path of one");
  if (!o.out.empty()) plan::check_ending(o.out);
  o.directories.load();
  o.request.compose = with_plugins(o.request.compose);
  if (!o.collectives.empty()) o.request.algorithm = plan::algorithm_named(o.collectives);
  if (!o.types.empty()) o.request.law = plan::parse_law(o.types);
  if (!o.counts.empty()) o.request.law = law_of_counts(o.counts);
  if (!o.anchor.empty()) o.request.anchor = plan::parse_anchor(o.anchor);
  if (o.epoch_tokens > 0) o.request.epoch_tokens = o.epoch_tokens;
  if (o.no_overlap) o.request.overlap = false;
  require_no_loss(o);
  if (o.goal) return find(o);
  const plan::Plan plan = plan::make_plan(o.request);
  if (!o.out.empty()) write_file(o.out, plan::file_of(plan, o.out));
  if (o.json) return print_json(plan::json_of(plan));
  std::cout << plan::text_of(plan);
}

void add_assumptions(Command command, const std::shared_ptr<PlanFlags>& o) {
  command.add_option(
      "--collectives NAME", o->collectives,
      "how collectives move data: auto (the fastest for each message; default, unless the machine's file "
      "names one), pairwise (lmx's own over mpi and gloo), ring, tree, hierarchical");
  command.add_flag("--no-overlap", o->no_overlap, "gradients are exchanged after backward, not beside it");
  command
      .add_option("--spread X", o->request.spread,
                  "standard deviation of the time of a sub-batch, as a part of its mean: ranks wait for the slowest")
      .number_in(0.0, 10.0);
  command
      .add_option("--fill X", o->request.fill, "the part of its token budget that a mean sub-batch of sentences holds")
      .number_in(0.01, 1.0);
  command.add_option("--epoch-tokens N", o->epoch_tokens, "tokens of the training text, if the corpus is not here")
      .positive();
  command.add_option("--types A,B", o->types,
                     "different words in N tokens: FACTOR,EXPONENT of FACTOR N^EXPONENT (default: Zipf's law)");
  command
      .add_option("--counts FILE", o->counts,
                  "counts of the words of the text, one a line, alone or after the word (vocab.tsv of prepared text)")
      .excludes("--types");
  command.add_option(
      "--anchor RANKS:SECONDS", o->anchor,
      "a measured step that sets the speed of the device: the first variant on RANKS ranks takes SECONDS");
  command
      .add_option("--from RUN", o->request.from,
                  "a run of one rank or of processes, whose records set the speed of the device, the number of "
                  "different words, and --spread")
      .excludes("--anchor");
}

}  // namespace

void add_plan(Command app) {
  const Command command =
      app.add_subcommand("plan", "estimate time, memory, bytes and price of a training on a machine, without it");
  set_examples(
      command,
      {{"lmx plan recipes/patwary_word_1b.yaml --machine patwary_titanx --ranks 8,16,24,32,64 "
        "sync=allgather_dense,unique_seeded_fp16",
        "two strategies on one to eight nodes of the paper's cluster"},
       {"lmx plan recipes/puri_amazon_4096.yaml --machine h100_node --ranks 8,64 --out plan.html",
        "as a page with charts"},
       {"lmx plan A.yaml B.yaml --calibrate here.yaml device=cuda comm=self precision=bf16",
        "measures the GPU of this machine with the products and passes of two recipes"},
       {"lmx plan RECIPE --machine a100_node --ranks 64 machine.links.network.gb_s=12.5", "with another network"},
       {"lmx plan RECIPE --machine h100_node --ranks 8,64 batch.fit=memory",
        "with the largest passes that the memory of a GPU allows"},
       {"lmx plan RECIPE --machine h100_node --ranks 8,16,32 sync=allreduce,diloco sync.all.every=10,50 "
        "--find tokens=2e9,hours=24",
        "which method, period and number of ranks make a deadline, the cheapest first"},
       {"lmx plan runs/word --memory --machine ./here.yaml --within 0.03",
        "the planned memory of a run beside the recorded one"},
       {"lmx plan RECIPE --machine ott_v100 --ranks 128 --anchor 8:0.176",
        "the speed of the device from a measured step"}});
  const auto o = std::make_shared<PlanFlags>();
  command.add_option("RECIPE", o->request.recipe, "a recipe, a YAML file").recipe().required();
  command.add_option("OVERRIDES", o->request.compose.overrides,
                     "key=value; key=a,b plans a variant for each value. machine.KEY=VALUE changes the machine. With "
                     "--calibrate also further recipes");
  command.add_option(
      "--machine NAME|FILE", o->request.machine,
      "a file of a folder `machine` of recipes (patwary_titanx, h100_node, ...), or the path of such a file");
  command
      .add_option("--calibrate FILE.yaml", o->calibrate,
                  "measure this machine, or its GPU (device=cuda), with the recipes' products and passes and the "
                  "links between its ranks (comm=...), and write it as a machine for --machine; trains nothing")
      .output_file();
  command
      .add_option("--ranks N,...", o->request.ranks,
                  "numbers of ranks, such as 8,16,32 (default: the recipe's); each rank keeps its share of the batch, "
                  "unless batch.global is set")
      .separated_by_commas()
      .repeatable()
      .integer_in(1, plan::kMostRanks);
  command.add_option_function(
      "--find GOAL", [o](const std::string& goal) { o->goal = plan::parse_goal(goal); },
      "tokens=N,hours=N,price=N: which variants and numbers of ranks train N target tokens within a time "
      "and a price (each may be absent), the cheapest first");
  command.add_flag("--memory", o->memory,
                   "RECIPE is the folder of a run: compare the memory that is planned for its recipe with the memory "
                   "that it has recorded. A calibrated --machine has measured passes");
  command.add_option("--within X", o->within, "with --memory: exit code 3 if the total differs by more than this part")
      .number_in(0.0, 1.0);
  add_assumptions(command, o);
  command.add_option("--config-dir DIR", o->request.compose.search_path, "another folder of config groups (repeatable)")
      .repeatable();
  command.add_option("--out FILE", o->out, "also write a file: .json, .csv, .svg, .html")
      .output_file()
      .excludes("--find");
  add_json(command, o->json);
  o->directories.add_to(command);
  command.callback([command, o] { plan(command, *o); });
}

}  // namespace lmx::app::cli
