// The table that `lmx plan` prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "app/plan/output.h"
#include "app/print/terminal.h"
#include "app/print/words.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::plan {
namespace {

constexpr size_t kMostCandidates = 20;  // rows of --find

std::string short_number(double value, const char* format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string optional(const std::optional<double>& value) {
  return value ? short_number(*value) : "-";
}

std::string memory_of(const Row& row) {
  return str(bytes_text(row.memory.total()), row.out_of_memory ? " (out of memory)" : "");
}

// The columns that only some plans have.
struct Columns {
  bool variants = false, fit = false, workers = false, prices = false;
};

std::vector<std::string> cells_of(const Row& row, const Columns& columns) {
  std::vector<std::string> cells;
  if (columns.variants) cells.push_back(row.variant);
  for (const std::string& cell : {std::to_string(row.ranks), count_text(row.batch)}) cells.push_back(cell);
  if (columns.fit)
    cells.insert(cells.end(), {row.fit ? row.fit->text() : "-", row.fit ? count_text(row.fit->passes) : "-"});
  for (const std::string& cell :
       {memory_of(row), bytes_text(row.node_bytes), bytes_text(row.network_bytes), seconds_text(row.time.compute_s),
        seconds_text(row.time.hidden_s()), seconds_text(row.time.exposed_s), seconds_text(row.time.step_s()),
        count_text(std::llround(row.tokens_s())), short_number(100 * row.efficiency, "%.0f") + " %",
        optional(row.epoch_hours), optional(row.total_hours)})
    cells.push_back(cell);
  if (columns.workers && row.workers)
    cells.insert(cells.end(), {short_number(row.workers->updates_s), short_number(row.workers->staleness),
                               short_number(row.workers->speedup)});
  else if (columns.workers)
    cells.insert(cells.end(), {"-", "-", "-"});
  if (columns.prices) cells.push_back(row.epoch_price ? short_number(*row.epoch_price, "%.0f") : "-");
  return cells;
}

std::string bandwidth_text(double gb_s) {
  const double gbit = 8 * gb_s;
  return gbit >= 1 ? short_number(gbit) + " Gbit/s" : short_number(1000 * gbit) + " Mbit/s";
}

// "pairwise", or the name for each variant; "" if all variants are asynchronous.
std::string collectives_of(const Plan& plan) {
  std::string all;
  std::set<std::string> names;
  for (const Row& row : plan.rows) {
    if (row.workers) continue;
    names.insert(name_of(row.algorithm));
    if (row.ranks == plan.rows[0].ranks)
      all += str(all.empty() ? "" : ", ", name_of(row.algorithm), row.variant.empty() ? "" : " with ", row.variant);
  }
  return names.size() == 1 ? *names.begin() : all;
}

// "plan of tiny on h100_node: 8 H100 ...".
std::string title_of(const Plan& plan) {
  return str("plan of ", plan.recipe, " on ", plan.machine_name, ": ", plan.machine.name, "\n");
}

std::string assumptions_of(const Plan& plan) {
  std::string text;
  for (const std::string& line : plan.speeds) text += line + "\n";
  if (const std::string names = collectives_of(plan); !names.empty()) text += "collectives: " + names + "\n";
  for (const std::string& note : plan.notes) text += "assumed: " + note + "\n";
  return text;
}

bool has_variants(const Plan& plan) {
  return !plan.rows.empty() && !plan.rows[0].variant.empty();
}

std::string goal_text(const Goal& goal, const std::string& currency) {
  std::string text = count_text(std::llround(goal.tokens)) + " tokens";
  if (goal.hours) text += " within " + short_number(*goal.hours, "%.6g") + " h";
  if (goal.price) text += str(goal.hours ? " and " : " for ", short_number(*goal.price, "%.6g"), " ", currency);
  return text;
}

std::string candidates_table(const Plan& plan, const std::vector<Candidate>& candidates) {
  const bool prices = candidates[0].price.has_value();
  std::vector<std::vector<std::string>> rows{{}};
  if (has_variants(plan)) rows[0].push_back("VARIANT");
  rows[0].insert(rows[0].end(), {"RANKS", "BATCH", "MEMORY", "SENT/STEP", "STEP", "STEPS", "HOURS", "NODE HOURS"});
  if (prices) rows[0].push_back(plan.machine.price.currency);
  for (const Candidate& c : candidates) {
    if (rows.size() > kMostCandidates) break;
    std::vector<std::string>& cells = rows.emplace_back();
    if (has_variants(plan)) cells.push_back(c.row.variant);
    cells.insert(cells.end(), {std::to_string(c.row.ranks), count_text(c.row.batch), memory_of(c.row),
                               bytes_text(c.row.sent_bytes), seconds_text(c.row.time.step_s()),
                               short_number(c.steps, "%.6g"), short_number(c.hours), short_number(c.node_hours)});
    if (prices) cells.push_back(short_number(c.price.value_or(0)));
  }
  return lmx_cli::table(rows);
}

// "3 are too slow, 2 are out of memory"; "" if all reach the goal.
std::string refused_text(const Found& found) {
  std::vector<std::string> reasons;
  for (const auto& [count, reason] : {std::pair{found.too_slow, "too slow"},
                                      {found.too_expensive, "too expensive"},
                                      {found.out_of_memory, "out of memory"}})
    if (count > 0) reasons.push_back(str(count, count == 1 ? " is " : " are ", reason));
  return lmx_cli::joined(reasons);
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 100) return short_number(seconds, "%.0f") + " s";
  return seconds >= 0.1 || seconds == 0 ? short_number(seconds) + " s" : short_number(1000 * seconds) + " ms";
}

std::string text_of(const Plan& plan, bool terminal) {
  const Columns columns{has_variants(plan),
                        std::any_of(plan.rows.begin(), plan.rows.end(), [](const Row& r) { return !!r.fit; }),
                        std::any_of(plan.rows.begin(), plan.rows.end(), [](const Row& r) { return !!r.workers; }),
                        plan.machine.price.node_hour > 0};
  std::vector<std::vector<std::string>> rows{{}};
  if (columns.variants) rows[0].push_back("VARIANT");
  rows[0].insert(rows[0].end(), {"RANKS", "BATCH"});
  if (columns.fit) rows[0].insert(rows[0].end(), {"PASS", "PASSES"});
  for (const char* head : {"MEMORY", "IN NODE", "NETWORK", "COMPUTE", "HIDDEN", "EXPOSED", "STEP", "TOKENS/S",
                           "EFFICIENCY", "HOURS/EPOCH", "HOURS"})
    rows[0].push_back(head);
  if (columns.workers) rows[0].insert(rows[0].end(), {"UPDATES/S", "STALENESS", "SPEED-UP"});
  if (columns.prices) rows[0].push_back(plan.machine.price.currency + "/EPOCH");
  for (const Row& row : plan.rows) rows.push_back(cells_of(row, columns));
  std::string text = title_of(plan) + (terminal ? lmx_cli::table(rows) : lmx_cli::table(rows, 0));
  for (const Winner& w : plan.winners)
    text +=
        str(w.ranks, w.ranks == 1 ? " rank: " : " ranks: ", w.variant, w.variant.empty() ? "" : ": ", w.reason, "\n");
  for (const Crossing& c : plan.crossings)
    text += str("on ", c.ranks, " ranks ", c.below, " pays below ", bandwidth_text(c.gb_s), " between nodes, ", c.above,
                " above\n");
  text += assumptions_of(plan);
  return terminal ? lmx_cli::fit(text) : text;
}

std::string text_of(const Plan& plan, const Found& found) {
  std::string text = title_of(plan);
  const std::string goal = goal_text(found.goal, plan.machine.price.currency), refused = refused_text(found);
  if (found.nearest) {
    const Candidate& c = *found.nearest;
    text += str("no plan of ", plan.rows.size(), " reaches ", goal, ": ", refused, "\nthe nearest one ",
                c.row.out_of_memory ? "needs the least memory" : "takes " + short_number(c.excess) + " times the limit",
                ":\n", candidates_table(plan, {c}));
  } else {
    text += str(found.met.size(), " of ", plan.rows.size(), " plans ", found.met.size() == 1 ? "reaches " : "reach ",
                goal, refused.empty() ? "" : "; ", refused, "\n", candidates_table(plan, found.met));
    if (found.met.size() > kMostCandidates)
      text += str("and ", found.met.size() - kMostCandidates, " more, which --json prints\n");
  }
  text += assumptions_of(plan);
  text +=
      "assumed: equal tokens are equal quality. They are not: with the same tokens, other methods, periods and batches "
      "reach other losses, as docs/experiments/beyond.md measured. Nothing was trained for this plan\n";
  return lmx_cli::fit(text);
}

}  // namespace lmx::plan
