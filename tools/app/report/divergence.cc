#include "app/report/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "app/report/report.h"
#include "lmx/error.h"
#include "lmx/tensor.h"
#include "runfiles/checkpoint.h"

namespace lmx_cli::reports {
namespace {

using lmx::Tensor;

// By step, split and the number of steps that a training record covers: records with the same name have means over the
// same steps.
using RecordName = std::tuple<int64_t, std::string, int64_t>;

std::map<RecordName, const RunRecord*> named(const std::vector<RunRecord>& records) {
  const std::vector<double> steps = window_steps(records);
  std::map<RecordName, const RunRecord*> names;
  size_t window = 0;
  for (const RunRecord& r : records) {
    const int64_t covered = r.split == "train" ? std::llround(steps[window++]) : 0;
    if (r.split != "rank" && r.split != "change") names[{r.step, r.split, covered}] = &r;
  }
  return names;
}

bool is_result(const std::string& field) {
  return !field.starts_with("comm_") && !field.ends_with("_s") && field != "step_spread";
}

std::vector<FieldDifference> differing_fields(const RunRecord& a, const RunRecord& b) {
  std::vector<FieldDifference> fields;
  for (const auto& [name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end() || !is_result(name)) continue;
    const bool equal = value == other->second || (std::isnan(value) && std::isnan(other->second));
    if (!equal) fields.push_back({name, value, other->second});
  }
  return fields;
}

}  // namespace

RecordDivergence record_divergence(const std::vector<RunRecord>& a, const std::vector<RunRecord>& b) {
  RecordDivergence found;
  const std::map<RecordName, const RunRecord*> others = named(b);
  for (const auto& [name, record] : named(a)) {
    const auto other = others.find(name);
    if (other == others.end()) continue;
    ++found.compared;
    if (!found.fields.empty()) continue;
    found.fields = differing_fields(*record, *other->second);
    found.step = record->step;
    found.split = record->split;
    if (found.fields.empty()) found.equal_until = record->step;
  }
  return found;
}

namespace {

// The tensors of a checkpoint by file and name; the parameters come first.
using Tensors = std::map<std::pair<std::string, std::string>, Tensor>;

Tensors tensors_of(const std::string& folder) {
  Tensors tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".safetensors") continue;
    const std::string file = path.stem() == "model" ? "" : path.stem().string() + ": ";
    for (auto& [name, tensor] : lmx::map_safetensors(path.string(), lmx::Allocator::cpu()))
      tensors[{file, name}] = std::move(tensor);
  }
  return tensors;
}

double element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case lmx::DType::f64:
      return t.data<double>()[i];
    case lmx::DType::f32:
      return t.data<float>()[i];
    case lmx::DType::bf16:
      return static_cast<float>(t.data<lmx::bfloat16>()[i]);
    case lmx::DType::f16:
      return static_cast<float>(t.data<lmx::float16>()[i]);
    case lmx::DType::i32:
      return t.data<int32_t>()[i];
    case lmx::DType::i64:
      return static_cast<double>(t.data<int64_t>()[i]);
    case lmx::DType::u8:
      return t.data<uint8_t>()[i];
  }
  throw lmx::InternalError("[compare] a tensor of an unknown type");
}

std::vector<int64_t> index_in(const lmx::Shape& shape, int64_t place) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (size_t d = index.size(); d-- > 0; place /= shape.dims()[d]) index[d] = place % shape.dims()[d];
  return index;
}

bool same_bits(const Tensor& a, const Tensor& b, int64_t i) {
  const size_t size = size_of(a.dtype()), at = static_cast<size_t>(i) * size;
  return std::memcmp(static_cast<const char*>(a.raw()) + at, static_cast<const char*>(b.raw()) + at, size) == 0;
}

// REQUIRES: equal shapes and types, and not all bits are equal.
void measure(const Tensor& a, const Tensor& b, TensorDifference& d) {
  double squares = 0, squares_a = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = element(a, i), y = element(b, i);
    squares_a += x * x;
    if (same_bits(a, b, i)) continue;
    if (d.elements++ == 0) {
      d.index = index_in(a.shape(), i);
      d.a = x;
      d.b = y;
    }
    const double distance = x == y || (std::isnan(x) && std::isnan(y)) ? 0 : std::fabs(x - y);
    d.max_abs = std::max(d.max_abs, std::isnan(distance) ? INFINITY : distance);
    squares += distance * distance;
  }
  d.relative = std::sqrt(squares) / std::sqrt(squares_a);
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

TensorDifference difference_of(const std::string& name, const Tensor& a, const Tensor& b) {
  TensorDifference d;
  d.name = name;
  d.shape_a = describe(a);
  d.shape_b = describe(b);
  if (d.shape_a == d.shape_b) measure(a, b, d);
  return d;
}

// Fills everything but `equal` and `step`. Returns whether the checkpoints are equal.
bool compare_checkpoints(const std::string& folder_a, const std::string& folder_b, CheckpointDivergence& found) {
  const Tensors a = tensors_of(folder_a), b = tensors_of(folder_b);
  for (const auto& [key, tensor] : a) {
    const std::string name = key.first + key.second;
    const auto other = b.find(key);
    if (other == b.end()) {
      found.only_a.push_back(name);
      continue;
    }
    ++found.tensors;
    if (!are_equal(tensor, other->second)) found.different.push_back(difference_of(name, tensor, other->second));
  }
  for (const auto& [key, tensor] : b)
    if (!a.contains(key)) found.only_b.push_back(key.first + key.second);
  return found.different.empty() && found.only_a.empty() && found.only_b.empty();
}

}  // namespace

CheckpointDivergence checkpoint_divergence(const std::string& run_a, const std::string& run_b) {
  CheckpointDivergence found;
  const std::vector<lmx::CheckpointInfo> others = lmx::list_checkpoints(run_b);
  for (const lmx::CheckpointInfo& own : lmx::list_checkpoints(run_a)) {
    const auto other = std::find_if(others.begin(), others.end(), [&](const auto& o) { return o.step == own.step; });
    if (other == others.end()) continue;
    found.tensors = 0;
    if (!compare_checkpoints(own.folder, other->folder, found)) {
      found.step = own.step;
      return found;
    }
    found.equal.push_back(own.step);
  }
  return found;
}

}  // namespace lmx_cli::reports
