// Compares two sides, A and B: two runs, or two configurations with a run for each seed (`lmx compare`).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/records/half_interval.h"
#include "app/records/records.h"
#include "app/report/report.h"

namespace lmx::app::report {

// The first place at which two runs differ: in their records, and in their checkpoints.

struct FieldDifference {
  std::string name;     // "nll_nat"
  double a = 0, b = 0;  // they may be NaN or infinite
};

struct RecordDivergence {
  size_t compared = 0;                  // records that both runs have
  std::optional<int64_t> equal_until;   // the last step of a record before the first difference
  int64_t step = 0;                     // of the first record with a difference
  std::string split;                    // likewise
  std::vector<FieldDifference> fields;  // of that record, by name; empty: all records are equal
};

// Compares the records of training, validation and test that cover the same steps, with the fields that both have.
// Measured times, and bytes of communication, are not results and are not compared. Numbers are equal if all their bits
// are, and NaN is equal to NaN.
RecordDivergence record_divergence(const std::vector<RunRecord>& a, const std::vector<RunRecord>& b);

struct TensorDifference {
  std::string name;              // of a parameter, "train_state: optimizer/..." or "rank-0: ..."
  std::string shape_a, shape_b;  // "(60, 12) f32"
  // The rest is for tensors of equal shape and type.
  std::vector<int64_t> index;  // of the first element whose bits differ
  double a = 0, b = 0;         // its values
  int64_t elements = 0;        // number of elements whose bits differ
  double max_abs = 0;          // the largest |a - b|; infinite if an element is NaN in one of them only
  double relative = 0;         // |a - b| / |a|, Euclidean norms over all elements; NaN if both are 0
};

struct CheckpointDivergence {
  std::vector<int64_t> equal;   // steps of checkpoints that are equal bit by bit, before the first difference
  std::optional<int64_t> step;  // of the first checkpoints that differ; none: no difference
  size_t tensors = 0;           // that both of these have
  std::vector<TensorDifference> different;
  std::vector<std::string> only_a, only_b;  // names of tensors that one of them lacks
};

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

}  // namespace lmx::app::report
