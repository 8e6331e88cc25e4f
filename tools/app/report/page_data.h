// The page's data as JSON, which the scripts of page/ read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/records/json_number.h"
#include "app/report/compare.h"
#include "app/report/curves.h"
#include "app/report/page.h"

namespace lmx_cli::reports {

// The runs and points in the page: all of them, or the best.
struct Listed {
  std::vector<const Report*> runs;
  std::optional<SweepView> sweep;
  std::string best;  // "Of 9,000 points the 20 best are here."; "" if all are there
};

// Compares by the sweep's metric if there is a sweep, otherwise like compare(runs).
Comparison compare(const Listed& listed);

// Returns {key, values} for every key of the configurations; one value if it is the same in all runs.
Json config_table(const Listed& listed);

// Returns name, folder, state and perplexities of a run whose curves do not fit into the page.
Json brief_json(const Report& run);
// Returns brief_json(), and also curves of at most `most_points` points, memory, traffic and provenance.
Json run_json(const Report& run, const std::vector<Curve>& curves, size_t most_points);

// Returns the winner's number, the winner, and the groups of seeds.
Json comparison_json(const Listed& listed, const Comparison& c);

// Returns axes, points and the importance of each axis.
Json sweep_json(const SweepView& sweep);

}  // namespace lmx_cli::reports
