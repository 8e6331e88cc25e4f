// The table that `lmx plan` prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "app/plan/output.h"
#include "app/print/terminal.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::plan {
namespace {

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

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 100) return short_number(seconds, "%.0f") + " s";
  return seconds >= 0.1 || seconds == 0 ? short_number(seconds) + " s" : short_number(1000 * seconds) + " ms";
}

std::string text_of(const Plan& plan, bool terminal) {
  const Columns columns{plan.rows.size() > 0 && !plan.rows[0].variant.empty(),
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
  std::string text = str("plan of ", plan.recipe, " on ", plan.machine_name, ": ", plan.machine.name, "\n",
                         terminal ? lmx_cli::table(rows) : lmx_cli::table(rows, 0));
  for (const Winner& w : plan.winners)
    text +=
        str(w.ranks, w.ranks == 1 ? " rank: " : " ranks: ", w.variant, w.variant.empty() ? "" : ": ", w.reason, "\n");
  for (const Crossing& c : plan.crossings)
    text += str("on ", c.ranks, " ranks ", c.below, " pays below ", bandwidth_text(c.gb_s), " between nodes, ", c.above,
                " above\n");
  for (const std::string& line : plan.speeds) text += line + "\n";
  if (const std::string names = collectives_of(plan); !names.empty()) text += "collectives: " + names + "\n";
  for (const std::string& note : plan.notes) text += "assumed: " + note + "\n";
  return terminal ? lmx_cli::fit(text) : text;
}

}  // namespace lmx::plan
