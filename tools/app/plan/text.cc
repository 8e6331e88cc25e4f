// The table that `lmx plan` prints.
#include <cmath>
#include <cstdio>

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

std::vector<std::string> cells_of(const Row& row, bool variants, bool prices) {
  std::vector<std::string> cells;
  if (variants) cells.push_back(row.variant);
  for (const std::string& cell :
       {std::to_string(row.ranks), count_text(row.batch), memory_of(row), bytes_text(row.node_bytes),
        bytes_text(row.network_bytes), seconds_text(row.time.compute_s), seconds_text(row.time.hidden_s()),
        seconds_text(row.time.exposed_s), seconds_text(row.time.step_s()), count_text(std::llround(row.tokens_s())),
        short_number(100 * row.efficiency, "%.0f") + " %", optional(row.epoch_hours), optional(row.total_hours)})
    cells.push_back(cell);
  if (prices) cells.push_back(row.epoch_price ? short_number(*row.epoch_price, "%.0f") : "-");
  return cells;
}

std::string bandwidth_text(double gb_s) {
  const double gbit = 8 * gb_s;
  return gbit >= 1 ? short_number(gbit) + " Gbit/s" : short_number(1000 * gbit) + " Mbit/s";
}

// "pairwise", or the name for each variant.
std::string collectives_of(const Plan& plan) {
  std::string all;
  bool equal = true;
  for (const Row& row : plan.rows) {
    equal = equal && row.algorithm == plan.rows[0].algorithm;
    if (row.ranks == plan.rows[0].ranks)
      all += str(all.empty() ? "" : ", ", name_of(row.algorithm), row.variant.empty() ? "" : " with ", row.variant);
  }
  return equal ? name_of(plan.rows[0].algorithm) : all;
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 100) return short_number(seconds, "%.0f") + " s";
  return seconds >= 0.1 || seconds == 0 ? short_number(seconds) + " s" : short_number(1000 * seconds) + " ms";
}

std::string text_of(const Plan& plan) {
  const bool variants = plan.rows.size() > 0 && !plan.rows[0].variant.empty(),
             prices = plan.machine.price.node_hour > 0;
  std::vector<std::vector<std::string>> rows{{}};
  if (variants) rows[0].push_back("VARIANT");
  for (const char* head : {"RANKS", "BATCH", "MEMORY", "IN NODE", "NETWORK", "COMPUTE", "HIDDEN", "EXPOSED", "STEP",
                           "TOKENS/S", "EFFICIENCY", "HOURS/EPOCH", "HOURS"})
    rows[0].push_back(head);
  if (prices) rows[0].push_back(plan.machine.price.currency + "/EPOCH");
  for (const Row& row : plan.rows) rows.push_back(cells_of(row, variants, prices));
  std::string text =
      str("plan of ", plan.recipe, " on ", plan.machine_name, ": ", plan.machine.name, "\n", lmx_cli::table(rows));
  for (const Winner& w : plan.winners)
    text +=
        str(w.ranks, w.ranks == 1 ? " rank: " : " ranks: ", w.variant, w.variant.empty() ? "" : ": ", w.reason, "\n");
  for (const Crossing& c : plan.crossings)
    text += str("on ", c.ranks, " ranks ", c.below, " pays below ", bandwidth_text(c.gb_s), " between nodes, ", c.above,
                " above\n");
  if (plan.speed != 1)
    text += str("computation takes ", short_number(plan.speed), " times as long as the machine's file says\n");
  text += "collectives: " + collectives_of(plan) + "\n";
  for (const std::string& note : plan.notes) text += "assumed: " + note + "\n";
  return text;
}

}  // namespace lmx::plan
