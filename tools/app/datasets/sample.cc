#include "app/datasets/sample.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/datasets/open.h"
#include "app/pairs/parallel.h"
#include "app/prepare/cache.h"
#include "app/prepare/text.h"
#include "base/files.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "data/data_config.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using data::SourceFile;

constexpr size_t kParts = 4, kPart = 1 << 20;
constexpr double kSubword = 4;  // bytes

double bytes_of(const std::vector<SourceFile>& files) {
  double bytes = 0;
  for (const SourceFile& file : files) bytes += static_cast<double>(file.bytes);
  return bytes;
}

// The first part of a file; "" if it is empty.
std::string first_part(const SourceFile& file) {
  const std::vector<SourceFile> files{file};  // the reader refers to it
  data::ChunkReader reader(files, kPart, "");
  data::Chunk chunk;
  return reader.next(chunk) ? std::move(chunk.text) : "";
}

// Copies the first part of up to kParts of the files to `folder`, under names with their endings.
std::vector<SourceFile> copy_parts(const std::vector<SourceFile>& files, const std::string& folder) {
  std::vector<SourceFile> copies;
  const size_t parts = std::min(kParts, files.size());
  for (size_t i = 0; i < parts; ++i) {
    SourceFile copy = files[i * files.size() / parts];
    const std::string text = first_part(copy);
    copy.path = str(folder, "/", i, std::filesystem::path(copy.path).extension().string());
    copy.bytes = static_cast<int64_t>(text.size());
    write_file(copy.path, text);
    copies.push_back(std::move(copy));
  }
  return copies;
}

// `data` with these files in place of its corpus or its own.
Node with_files(const Node& data, const data::TextSources& sources, const std::vector<SourceFile>& files) {
  Node changed = data;
  std::vector<Node> paths;
  for (const SourceFile& file : files) paths.push_back(Node::string(file.path));
  for (const char* key : {"corpus", "valid_files", "test_files"}) changed.erase(key);
  changed.set("files", Node::list(paths));
  if (sources.corpus && !sources.corpus->field.empty()) changed.set("field", Node::string(sources.corpus->field));
  const Node* tokens = data.find("tokens");
  if (!tokens || tokens->text == "words")
    changed.set("tokenizer", Node::string(sources.whitespace_only ? "whitespace" : "rules"));
  if (!tokens || tokens->text != "bytes") changed.set("vocab_size", Node::scalar("3"));
  return changed;
}

std::optional<int64_t> tokens_of_text(const Node& node) {
  const data::TextConfig text = data::text_config(node);
  const data::TextSources sources = data::find_text(text, config::at(node.mark, "data"));
  std::vector<SourceFile> files = sources.files;
  std::erase_if(files,
                [](const SourceFile& f) { return f.split == data::Split::valid || f.split == data::Split::test; });
  const auto packed = [](const SourceFile& f) { return is_compressed(f.path); };
  if (files.empty() || std::any_of(files.begin(), files.end(), packed)) return {};
  if (text.tokens == "subwords") return std::llround(bytes_of(files) / kSubword);
  const data::TemporaryDirectory folder;
  const std::vector<SourceFile> parts = copy_parts(files, folder.path());
  const DataCheck sample = check_dataset(with_files(node, sources, parts));
  if (!sample.train_tokens) return {};
  return std::llround(static_cast<double>(*sample.train_tokens) * bytes_of(files) / bytes_of(parts));
}

// The main part alone: an epoch reads the pairs of the others in proportion.
std::optional<int64_t> tokens_of_pairs(const Node& node) {
  const data::ParallelConfig config = data::parallel_config(node);
  const data::ParallelSources sources = data::find_parallel(config, config::at(node.mark, "data"));
  double bytes = 0, lines = 0, sampled = 0, all_ratios = 0;
  for (const data::PairFiles& pair : sources.files[0]) {
    const SourceFile& file = pair.tsv() ? pair.source : pair.target;
    if (is_compressed(file.path)) return {};
    bytes += static_cast<double>(file.bytes) / (pair.tsv() ? 2 : 1);
    const std::string text = first_part(file);
    sampled += static_cast<double>(text.size()) / (pair.tsv() ? 2 : 1);
    lines += static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  }
  if (lines == 0) return {};
  double pairs = bytes * lines / sampled;
  if (!sources.range.all()) pairs = std::min(pairs, static_cast<double>(sources.range.last - sources.range.first + 1));
  for (const data::MixPart& part : config.mix.parts) all_ratios += part.ratio;
  if (!config.mix.parts.empty()) pairs *= all_ratios / config.mix.parts[config.mix.epoch_of].ratio;
  return std::llround(pairs * (sampled / lines / kSubword + 1));  // and </s>
}

}  // namespace

std::optional<int64_t> sampled_train_tokens(const Node& data) {
  try {
    if (data::kind_of(data) == data::Kind::text) return tokens_of_text(data);
    if (data::kind_of(data) == data::Kind::parallel) return tokens_of_pairs(data);
  } catch (const UserError&) {  // the check of the data reports it
  }
  return {};
}

}  // namespace lmx
