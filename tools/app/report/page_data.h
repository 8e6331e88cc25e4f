// The page's data as JSON: what the scripts of page/ read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report/compare.h"
#include "app/report/curves.h"
#include "app/report/page.h"

namespace lmx_cli::reports {

// The runs and points that the page shows: all of them, or the best.
struct Listed {
  std::vector<const Report*> runs;
  std::optional<SweepView> sweep;
  std::string best;  // "Of 9,000 points the 20 best are here."; "" if all are there
};

// By the sweep's metric, otherwise as compare(runs).
Comparison compare(const Listed& listed);

// {key, values} of every key of the configurations; one value if it is the same in all runs.
Json config_table(const Listed& listed);

// Name, place, state and perplexities of a run for whose curves there is no room.
Json brief_json(const Report& run);
// With curves of at most `most_points` points, memory, traffic and provenance.
Json run_json(const Report& run, const std::vector<Curve>& curves, size_t most_points);

// The winner's number, whose it is, and the groups of seeds.
Json comparison_json(const Listed& listed, const Comparison& c);

// Axes, points and the importance of each axis.
Json sweep_json(const SweepView& sweep);

}  // namespace lmx_cli::reports
