// lmx run --dry-run: the resources that a recipe needs, and whether its data and enough memory are available.
#include "app/run/dry_run.h"

#include <algorithm>
#include <memory>

#include "app/memory/batch_fit.h"
#include "app/memory/counted.h"
#include "app/memory/memory_check.h"
#include "app/run/run.h"
#include "base/text.h"
#include "config/error_collector.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/matmul.h"
#include "lmx/plugin.h"
#include "lmx/row_sampling.h"
#include "ops/losses/output_layer.h"
#include "recipe/comm_config.h"
#include "recipe/components.h"
#include "recipe/exchanger.h"
#include "train/evaluate.h"

namespace lmx::app {
namespace {

// Formats the number of parameters by the first part of their names, in order of declaration.
std::string parameter_lines(const Network& network, int64_t& total) {
  std::vector<std::pair<std::string, int64_t>> groups;
  int64_t gains = 0;
  const std::string* before = nullptr;
  for (const ParameterSpec& spec : network.specs) {
    const std::string group = spec.name.substr(0, spec.name.find('.'));
    if (groups.empty() || groups.back().first != group) groups.emplace_back(group, 0);
    groups.back().second += spec.shape.numel();
    total += spec.shape.numel();
    const std::string stem = spec.name.ends_with("_g") ? spec.name.substr(0, spec.name.size() - 2) : "";
    if (before && !stem.empty() && *before == stem + "_v") gains += spec.shape.numel();
    before = &spec.name;
  }
  std::string text;
  for (const auto& [group, count] : groups) text += str("  ", group, " ", count_text(count), "\n");
  if (gains > 0)
    text += str("  of these ", count_text(gains), " are gains of weight normalisation, ", count_text(total - gains),
                " the model's own\n");
  return text;
}

constexpr int64_t kShown = 10'000;  // bytes of a class that is worth a line

// The lines of the classes, and what the ranks of one process need together.
std::string class_lines(const MemoryCheck& check) {
  const RankMemory& m = check.rank;
  std::string lines;
  for (const auto& [name, bytes] : m.classes())
    if (bytes >= kShown || name == std::string("optimizer")) lines += str("  ", name, " ", bytes_text(bytes), "\n");
  lines += str("  total ", bytes_text(m.total()),
               ": less than the sum, because the classes reach their peaks at different times\n");
  if (check.in_turn)
    lines += str("  all ", check.ranks, " ranks in this process ", bytes_text(check.machine),
                 check.pairs > m.total()
                     ? str(", ", bytes_text(check.pairs), " of it for the messages between pairs of ranks")
                     : "",
                 "\n  blocks that are kept for reuse take up to half as much again\n");
  return lines;
}

// Returns a line that helps to distribute ranks over machines; "" if the ranks of this machine are known.
std::string machines_text(const Recipe& r, const MemoryCheck& check) {
  if (check.ranks == 1 || in_one_process(r.comm, "comm") || detect_launch().launcher != Launcher::none) return {};
  const int64_t rank = check.rank.total();
  std::string text = str("memory of a machine that holds k ranks: k times ", bytes_text(rank));
  if (const int64_t fit = check.there.bytes / std::max<int64_t>(rank, 1); fit > 0)
    text += str("; ", check.there_text(), ", enough for ",
                fit >= check.ranks ? str("all ", check.ranks) : str(fit, " of the ", check.ranks), " ranks");
  return text + "\n";
}

// Returns the owner of the memory (run or rank), the lines of the estimate, and a list of what they do not include.
std::string memory_text(const Recipe& r, const Exchanger& sync, const Shares& shares, const MemoryCheck& check) {
  if (shares.ranks == 1) {
    const bool open = comm_ranks(r.comm, "comm") == 0;
    return str("memory (estimate",
               open ? ", as one rank: how many there are the launcher says; comm.ranks=N plans for N" : "", ")\n",
               class_lines(check));
  }
  return str("memory of a rank (estimate), one of ", shares.ranks, " with ", shares.sequences, " of the ",
             r.batch.global, shares.pairs ? " sub-batches\n" : " sequences\n", class_lines(check), "  not counted: ",
             sync.servers().empty() ? ""
                                    : str(in_one_process(r.comm, "comm") ? "the server that workers share"
                                                                         : "the server's values in each process",
                                          ", about the parameters once more, and what is on its way; "),
             "the text, libraries and their buffers\n");
}

// The ranks that an estimate is made for: one, if only the launcher says how many there are.
int planned_ranks(const Recipe& r) {
  return static_cast<int>(std::max<int64_t>(1, comm_ranks(r.comm, "comm")));
}

MemoryPlanner planner_of(const Recipe& r) {
  const int ranks = planned_ranks(r);
  return {r, ranks, comm_nodes(r.comm, "comm", ranks).per_node()};
}

// Returns the errors that would end a run over this data before its first step.
std::vector<std::string> findings_of(const Recipe& r, const Network& network, const Dataset& data) {
  ErrorCollector wrong;
  wrong.keep([&] { check_validation(r, data); });
  wrong.keep([&] {
    check_model_fits_data(r, *network.model, data);
    const auto batcher = make_batcher(r, batcher_env(r, data, Allocator::cpu()));
    check_batcher_fits_model(r, *batcher, *network.model);
    static_cast<void>(separator_of(r, *batcher, *network.model, data));
  });
  return wrong.messages();
}

std::vector<std::string> missing_data(const Recipe& r, const Network& network, const Shares& shares,
                                      const DataCheck& check) {
  if (check.dataset) return findings_of(r, network, *check.dataset);
  std::vector<std::string> findings = check.findings;
  if (!shares.pairs && check.train_tokens &&
      *check.train_tokens <= shares.step_tokens)  // the last input needs a target after it
    findings.push_back(str("[batch] the train split is shorter than one batch: ", r.batch.global,
                           " sequences (batch.global) of ", shares.step_tokens / r.batch.global, " take ",
                           shares.step_tokens + 1, " tokens, it holds ", *check.train_tokens));
  return findings;
}

// The choice of `batch.fit`, as a run makes it before its probe.
struct Fitted {
  std::string text;      // a line about it; "": nothing was chosen
  std::string too_much;  // why nothing fits; "": something does
};
Fitted fit_batch(Recipe& r, const std::shared_ptr<const MemoryPlanner>& planner, DatasetChecks& checks) {
  if (r.batch.fit != "memory") return {};
  const int64_t tokens = r.batch.global == 0 ? checks.of(r.data).train_tokens.value_or(kUnknownTokens) : 0;
  const BatchFit fit(r, planner, tokens);
  const FitSizes& sizes = fit.sizes();
  const int64_t size = fit.allowed() > 0 ? fit.largest() : 0;
  r.batch = sizes.batch(size > 0 ? size : fit.allowed() > 0 ? fit.cheapest() : sizes.least());
  if (size > 0)
    return {str("batch.fit", comm_ranks(r.comm, "comm") == 0 ? ", as one rank: " : ": ",
                fit.text(size, fit.estimate(size)), "; a run chooses less if its probe does not fit\n"),
            ""};
  if (fit.allowed() > 0) return {"", fit.too_much()};
  return {
      "batch.fit: the memory of the recipe's device is unknown here, so the run chooses; below is the smallest "
      "batch\n",
      ""};
}

std::string preflight_line(const Recipe& r, const MemoryCheck& check) {
  if (r.batch.fit == "memory") return "preflight: the probe of batch.fit computes the largest batch of the epoch\n";
  const PreflightChoice choice = choose_preflight(r, check, r.train.steps, false);
  return str("preflight: ", choice.on ? "yes, because " : "no, because ", choice.why, "\n");
}

}  // namespace

int64_t parameters_of(const Node& composed, const std::string& name) {
  const Recipe r = read_recipe(composed, name);
  const MemoryPlanner planner = planner_of(r);
  const std::vector<ParameterSpec>& specs = planner.outline().network.specs;
  (void)take_parameters(r.init, specs, nullptr, nullptr);
  int64_t total = 0;
  for (const ParameterSpec& spec : specs) total += spec.shape.numel();
  return total;
}

int64_t process_bytes(const Node& composed, const std::string& name) {
  const Recipe r = read_recipe(composed, name);
  if (r.batch.fit == "memory") return 0;
  const MemoryPlanner planner = planner_of(r);
  try {
    return planner.check(r.batch).machine;
  } catch (const UserError&) {  // `lmx run --dry-run` reports it
    return 0;
  }
}

DryRun dry_run(const Node& composed, const std::string& name, DatasetChecks& checks) {
  Recipe r = read_recipe(composed, name);
  const int ranks = planned_ranks(r);
  const auto planner = std::make_shared<const MemoryPlanner>(r, ranks, comm_nodes(r.comm, "comm", ranks).per_node());
  const Fitted fitted = fit_batch(r, planner, checks);
  const Network& network = planner->outline().network;
  const Exchanger& sync = *planner->outline().sync;
  const Shares shares = planner->shares(r.batch);
  int64_t total = 0;
  const std::string parameters = parameter_lines(network, total);
  std::string text = str("recipe ", name, "\n", "parameters ", count_text(total), "\n", parameters);
  text += str("batch ", r.batch.global,
              shares.pairs ? " sub-batches = at most " : " sequences = ", count_text(shares.step_tokens),
              shares.pairs ? " target" : "", " tokens, vocabulary ", count_text(shares.vocab), "\n", fitted.text);
  const MemoryCheck memory = planner->check(r.batch);
  const std::string flops =
      format("%.3g", 1e-9 * planner->token_flops(r.batch, memory) * static_cast<double>(shares.step_tokens));
  text += str("arithmetic ", flops, " GFLOP a step, forward and backward, in matrix products",
              shares.pairs ? str(" (sentences of about ", kSentence, " tokens on both sides)") : "", "\n");
  text += memory_text(r, sync, shares, memory);
  for (const std::string& line : describe(take_parameters(r.init, network.specs, nullptr, nullptr)))
    text += line + "\n";
  for (const std::string& line : warnings_of(r, network, sync, ranks, planner->outline().batch))
    text += str("warning: ", line, "\n");
  text += memory.device_line + preflight_line(r, memory);
  const std::string over = fitted.too_much.empty() ? over_budget(r, memory) : fitted.too_much;
  DryRun result{std::move(text),
                count_text(total),
                bytes_text(memory.rank.total()),
                total,
                memory.rank.total(),
                missing_data(r, network, shares, checks.of(r.data)),
                over.empty() ? memory.missing() : over,
                memory.missing_device};
  result.text += machines_text(r, memory);
  result.text += memory.missing_device.empty() ? "" : str("device: not available: ", memory.missing_device, "\n");
  if (!result.missing_memory.empty())
    result.text +=
        str("memory: not enough: ", result.missing_memory, "\n  the largest items: ", memory.largest(), "\n");
  result.text += result.missing_data.empty() ? "data: available\n" : "data: not ready\n";
  for (const std::string& finding : result.missing_data) result.text += "  " + finding + "\n";
  return result;
}

}  // namespace lmx::app
