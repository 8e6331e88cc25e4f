// The first place at which two runs differ: in their records, and in their checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/records/records.h"

namespace lmx_cli::reports {

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

// Compares the tensors of all checkpoints whose step is that of a checkpoint of the other run, by ascending step up to
// the first difference. The files are mapped, so that large ones need little memory. UserError: a damaged file.
CheckpointDivergence checkpoint_divergence(const std::string& run_a, const std::string& run_b);

}  // namespace lmx_cli::reports
