// Compares two sides, A and B: two runs, or two configurations with a run for each seed (`lmx compare`).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/records/half_interval.h"
#include "app/report/divergence.h"
#include "app/report/report.h"

namespace lmx_cli::reports {

// A value that is not the same on both sides; the values of a side's runs are joined: "1, 2, 3".
struct SideDifference {
  std::string name, a, b;
};

// A run of each side. The runs of several seeds are in pairs of equal seeds.
struct RunPair {
  std::string seed;  // "" if each side is one run
  std::string a, b;  // their folders
  RecordDivergence records;
  CheckpointDivergence checkpoints;
  // Whether no result differs. False as well if the runs have neither records nor checkpoints of equal steps.
  bool equal() const;
};

// The metric at a step at which every run of both sides has it.
struct CurvePoint {
  int64_t step = 0;
  std::vector<double> a, b;  // of each run; if the sides are paired, in the order of the seeds
  Difference difference;
};

struct Sides {
  std::vector<std::string> a, b;  // the folders of the runs
  std::vector<SideDifference> recipe;
  std::vector<SideDifference> provenance;  // data, build, machine and ranks, which are the usual reasons
  std::vector<RunPair> pairs;
  std::string metric;   // "valid nll_nat"
  bool paired = false;  // both sides have the same seeds, so that differences are those of pairs
  std::vector<CurvePoint> curve;
  bool several() const { return a.size() > 1 || b.size() > 1; }
  // Two runs: whether a result differs. Several: whether the metric differs beyond the noise between seeds at the last
  // step of the curve; true as well if that is not known.
  bool differ() const;
};

// `split` and `key`: the metric of the curve. UserError: runs of a side that differ in more than their seed, two runs
// of a side with the same seed, a damaged checkpoint.
Sides compare_sides(const std::vector<Report>& a, const std::vector<Report>& b, const std::string& split,
                    const std::string& key);

std::string text_of(const Sides& sides);             // for the terminal
nlohmann::ordered_json json_of(const Sides& sides);  // docs/json.md describes the keys

}  // namespace lmx_cli::reports
