// lmx features: a model's state after the last token of a text, and one unit's values at each token.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "app/corpora/sources.h"
#include "app/inference/generate.h"
#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/probe/transfer.h"
#include "app/runs/run_directory.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "runfiles/checkpoint.h"

namespace lmx::app {
namespace {

constexpr int64_t kWindow = 256;  // tokens per forward pass

using Ids = std::vector<int32_t>;

// Returns tokens [offset, offset + length) of the texts `rows`. All of these texts are long enough.
Batch batch_of(const std::vector<Ids>& texts, std::span<const size_t> rows, int64_t offset, int64_t length,
               const Context& ctx) {
  Batch batch;
  batch.inputs = Tensor::empty(ctx.host, {static_cast<int64_t>(rows.size()), length}, DType::i32);
  int32_t* to = batch.inputs.data<int32_t>();
  for (const size_t row : rows) {
    std::copy_n(texts[row].begin() + offset, length, to);
    to += length;
    batch.slots.push_back(static_cast<int64_t>(batch.slots.size()));
  }
  batch.targets = batch.inputs;
  batch.fresh.assign(rows.size(), offset == 0);
  return batch;
}

// Returns the state without its first `gone` sequences.
ModelState without(const ModelState& state, int64_t gone) {
  ModelState rest;
  for (const auto& [name, tensor] : state) rest[name] = tensor.slice(gone, tensor.dim(0)).clone();
  return rest;
}

// Reads the texts `rows`, which are ordered by length, shortest first, in one batch. Each text leaves the batch at its
// end.
void read_texts(SavedRun& run, const std::vector<Ids>& texts, std::span<const size_t> rows, const std::string& name,
                FeatureMatrix& out) {
  ModelState state = run.network.initial_state(run.ctx, static_cast<int64_t>(rows.size()));
  for (int64_t offset = 0; !rows.empty();) {
    const auto shortest = static_cast<int64_t>(texts[rows[0]].size());
    const int64_t length = std::min(kWindow, shortest - offset);
    static_cast<void>(run.network.forward(run.ctx, run.params, batch_of(texts, rows, offset, length, run.ctx), state));
    offset += length;
    size_t done = 0;
    const auto values = run.ctx.read<float>(state.at(name));
    for (; done < rows.size() && static_cast<int64_t>(texts[rows[done]].size()) == offset; ++done)
      std::copy_n(values.get().data() + static_cast<int64_t>(done) * out.columns, out.columns,
                  out.values.begin() + static_cast<int64_t>(rows[done]) * out.columns);
    if (done == 0) continue;
    rows = rows.subspan(done);
    state = without(state, static_cast<int64_t>(done));
  }
}

void require_strings(const RunText& text, const char* part) {
  if (text.unit() == Unit::word)
    throw UserError(
        str("[", part, "] this run's model reads words; texts are read by models of chars or bytes ", "(data.tokens)"));
}

}  // namespace

FeatureMatrix text_features(const std::string& directory, const LabelledTexts& texts, const FeatureOptions& options) {
  if (options.batch < 1) throw UserError(str("[features] the batch must hold at least 1 text, got ", options.batch));
  const Recipe recipe = recipe_of_run(directory, options.device);
  const Vocabulary vocabulary = load_vocabulary(directory);
  RunText run_text(recipe, vocabulary, directory);
  require_strings(run_text, "features");
  std::vector<Ids> ids;
  for (size_t i = 0; i < texts.texts.size(); ++i)
    ids.push_back(run_text.whole(texts.texts[i],
                                 str("[features] ", texts.places.empty() ? str("text ", i + 1) : texts.places[i])));
  run_text.warn_of_losses("[features] the texts");
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  const ModelState first = run.network.initial_state(run.ctx, 1);
  const std::string name = state_name(first, options.state);
  FeatureMatrix out;
  out.rows = static_cast<int64_t>(ids.size());
  out.columns = state_units(first, name);
  out.values.resize(static_cast<size_t>(out.rows * out.columns));
  out.labels = texts.labels;
  out.note = str("state ", name, " after the last ", run_text.unit() == Unit::byte ? "byte" : "character", ", ",
                 run.origin(), " of ", directory);
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });
  for (size_t at = 0; at < order.size(); at += static_cast<size_t>(options.batch)) {
    const size_t count = std::min(order.size() - at, static_cast<size_t>(options.batch));
    read_texts(run, ids, std::span<const size_t>(order).subspan(at, count), name, out);
    progress_line(str("[features] ", at + count, " of ", order.size(), " texts"));
  }
  progress_line("");
  return out;
}

FeatureMatrix byte_counts(const LabelledTexts& texts) {
  FeatureMatrix out;
  out.rows = static_cast<int64_t>(texts.texts.size());
  out.columns = 256;
  out.values.resize(texts.texts.size() * 256);
  out.labels = texts.labels;
  out.note = "bytes of each text, divided by its length";
  for (size_t i = 0; i < texts.texts.size(); ++i)
    for (const char c : texts.texts[i])
      out.values[i * 256 + static_cast<unsigned char>(c)] += 1.0F / static_cast<float>(texts.texts[i].size());
  return out;
}

UnitTrace trace_unit(const std::string& directory, const std::string& text, const StateUnit& unit,
                     const std::string& checkpoint, const std::string& device) {
  const Recipe recipe = recipe_of_run(directory, device);
  const Vocabulary vocabulary = load_vocabulary(directory);
  RunText run_text(recipe, vocabulary, directory);
  require_strings(run_text, "features");
  const std::vector<Ids> ids{run_text.whole(text, "[features] the text")};
  run_text.warn_of_losses("[features] the text");
  SavedRun run(directory, recipe, vocabulary, checkpoint);
  ModelState state = run.network.initial_state(run.ctx, 1);
  const std::string name = state_name(state, unit.state);
  static_cast<void>(state_units(state, name, unit.unit));
  UnitTrace trace;
  trace.note = str("unit ", unit.unit, " of ", name, ", ", run.origin(), " of ", directory);
  const size_t row = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(ids[0].size()); ++i) {
    static_cast<void>(run.network.forward(run.ctx, run.params, batch_of(ids, {&row, 1}, i, 1, run.ctx), state));
    trace.tokens.push_back(run_text.token_of(ids[0][static_cast<size_t>(i)]));
    const auto values = run.ctx.read<float>(state.at(name));
    trace.values.push_back(static_cast<double>(values.get()[static_cast<size_t>(unit.unit)]));
  }
  return trace;
}

// Writes features to files and reads them.

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
  CsvReader reader(text);
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
      if (std::abs(*value) > std::numeric_limits<float>::max()) fail(str("'", fields[i], "' is too large for fp32"));
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

}  // namespace lmx::app
