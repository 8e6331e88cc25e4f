// Writes features to files and reads them.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/corpora/formats.h"
#include "app/probe/transfer.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx {
namespace {

std::string csv_of(const FeatureMatrix& f) {
  std::string text = f.labels.empty() ? "" : "label,";
  for (int64_t c = 0; c < f.columns; ++c) text += str(c ? "," : "", "f", c);
  text += '\n';
  char number[32];
  for (int64_t r = 0; r < f.rows; ++r) {
    if (!f.labels.empty()) text += str(f.labels[static_cast<size_t>(r)], ",");
    for (int64_t c = 0; c < f.columns; ++c) {
      if (c) text += ',';
      const auto end = std::to_chars(number, number + sizeof number, f.values[static_cast<size_t>(r * f.columns + c)]);
      text.append(number, end.ptr);
    }
    text += '\n';
  }
  return text;
}

FeatureMatrix from_csv(const std::string& path) {
  const std::string text = read_file(path);
  data::CsvReader reader(text);
  std::vector<std::string> fields;
  FeatureMatrix f;
  if (!reader.next(fields)) throw UserError(str("[probe] ", path, " is empty"));
  const bool labelled = fields[0] == "label";
  f.columns = static_cast<int64_t>(fields.size()) - labelled;
  const size_t width = fields.size();
  while (reader.next(fields)) {
    const auto fail = [&](const std::string& why) {
      throw UserError(str("[probe] ", path, ":", reader.line() + 1, ": ", why));
    };
    if (fields.size() != width) fail(str(fields.size(), " fields, the first line has ", width));
    if (labelled && fields[0] != "0" && fields[0] != "1") fail(str("label '", fields[0], "' is no 0 or 1"));
    if (labelled) f.labels.push_back(fields[0] == "1");
    for (size_t i = labelled; i < width; ++i) {
      const std::optional<double> value = parse_double(fields[i]);
      if (!value || !std::isfinite(*value)) fail(str("'", fields[i], "' is no number"));
      f.values.push_back(static_cast<float>(*value));
    }
    ++f.rows;
  }
  return f;
}

std::vector<int> labels_of(const Tensor& tensor, const std::string& path) {
  const auto fail = [&](const std::string& why) { throw UserError(str("[probe] ", path, ", labels: ", why)); };
  if (tensor.dtype() != DType::i32) fail(str("wanted i32, 0 or 1 a text; they are ", name_of(tensor.dtype())));
  const auto ids = tensor.values<int32_t>();
  const auto odd = std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id != 0 && id != 1; });
  if (odd != ids.end()) fail(str("row ", odd - ids.begin(), " is ", *odd, ", no 0 or 1"));
  return {ids.begin(), ids.end()};
}

}  // namespace

void save_features(const FeatureMatrix& f, const std::string& path) {
  if (path.ends_with(".csv")) return write_file(path, csv_of(f));
  const auto allocator = Allocator::cpu();
  StateDict tensors;
  tensors["features"] = Tensor::from<float>(allocator, {f.rows, f.columns}, f.values);
  if (!f.labels.empty())
    tensors["labels"] =
        Tensor::from<int32_t>(allocator, {f.rows}, std::vector<int32_t>(f.labels.begin(), f.labels.end()));
  save_safetensors(path, tensors, {{"what", f.note}});
}

FeatureMatrix load_features(const std::string& path) {
  if (path.ends_with(".csv")) return from_csv(path);
  const StateDict tensors = load_safetensors(path, Allocator::cpu());
  const auto found = tensors.find("features");
  if (found == tensors.end() || found->second.rank() != 2 || found->second.dtype() != DType::f32)
    throw UserError(str("[probe] ", path, " holds no features (f32, texts x units); `lmx features` writes them"));
  FeatureMatrix f;
  f.rows = found->second.dim(0);
  f.columns = found->second.dim(1);
  const auto values = found->second.values<float>();
  f.values.assign(values.begin(), values.end());
  const auto odd = std::find_if(f.values.begin(), f.values.end(), [](float v) { return !std::isfinite(v); });
  if (odd != f.values.end())
    throw UserError(str("[probe] ", path, ", row ", (odd - f.values.begin()) / f.columns, ": unit ",
                        (odd - f.values.begin()) % f.columns, " is ", *odd, ", no number"));
  if (const auto labels = tensors.find("labels"); labels != tensors.end()) f.labels = labels_of(labels->second, path);
  if (!f.labels.empty() && static_cast<int64_t>(f.labels.size()) != f.rows)
    throw UserError(str("[probe] ", path, " holds ", f.rows, " texts and ", f.labels.size(), " labels"));
  return f;
}

}  // namespace lmx
