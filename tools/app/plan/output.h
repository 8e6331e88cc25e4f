// A plan as text, and as a file for other programs or for a browser.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/plan/find.h"
#include "app/plan/plan.h"

namespace lmx::app::plan {

// Three digits with a unit: "17 ms", "0.348 s", "2040 s".
std::string seconds_text(double seconds);
// The lines that `lmx plan` prints, folded to the width of the terminal or, for a file, not folded.
std::string text_of(const Plan& plan, bool terminal = true);
// The lines of --find for the terminal. `found`: of this plan.
std::string text_of(const Plan& plan, const Found& found);

// A list with one object for each row: variant, ranks, batch, step_tokens, memory_bytes, memory (by class),
// out_of_memory, sent_bytes, node_bytes, network_bytes, compute_s, wait_s, comm_s, hidden_s, exposed_s, step_s,
// tokens_per_s, efficiency, with batch.fit micro or micro_tokens, and passes, and, where they are known,
// hours_per_epoch, hours, price_per_epoch. Rows of asynchronous workers also have updates_per_s, staleness_mean,
// staleness_max, speedup.
nlohmann::ordered_json json_of(const Plan& plan);
// tokens, met, out_of_memory, too_slow, too_expensive and, where they are known, hours, price, nearest. A candidate has
// steps, hours, node_hours, price if it is known, and plan: its row.
nlohmann::ordered_json json_of(const Found& found);

// The content of a file of this name, by its ending: .json, .csv, .svg, .html. UserError: another ending.
std::string file_of(const Plan& plan, const std::string& path);
void check_ending(const std::string& path);  // UserError: another ending

}  // namespace lmx::app::plan
