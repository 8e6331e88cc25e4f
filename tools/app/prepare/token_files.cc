#include "app/prepare/token_files.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "app/text/subword_tokenizer.h"
#include "base/files.h"
#include "data/tokenizer_file.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

constexpr int64_t kBlock = 4096;      // ids that are checked at once
constexpr int64_t kSampled = 64;      // one of so many blocks is checked when the data is opened
constexpr int64_t kHashed = 1 << 18;  // ids in the middle of a file that its hash covers

// The header of a file of llm.c: 256 integers of 4 bytes. The magic number decides the width of an id.
constexpr int64_t kHeaderBytes = 1024;
struct LlmcFormat {
  int32_t magic, version;
  int width;
};
constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};  // GPT-2, Llama 3

std::string first_bytes(const std::string& path, int64_t bytes) {
  InputFile file(path, Content::bytes);
  std::string part(static_cast<size_t>(bytes), '\0');
  part.resize(file.read(part.data(), part.size()));
  return part;
}

TokenArray::Part llmc_part(const SourceFile& file) {
  const std::string header = first_bytes(file.path, kHeaderBytes);
  int32_t numbers[3] = {};
  std::memcpy(numbers, header.data(), std::min(header.size(), sizeof numbers));
  for (const LlmcFormat& f : kLlmcFormats) {
    if (std::ssize(header) < kHeaderBytes || numbers[0] != f.magic) continue;
    if (numbers[1] != f.version)
      throw UserError(str("[data] ", file.path, " has version ", numbers[1], " of llm.c's format ", f.magic,
                          "; lmx reads version ", f.version));
    const int64_t expected = kHeaderBytes + int64_t{f.width} * numbers[2];
    if (numbers[2] < 0 || file.bytes != expected)
      throw UserError(str("[data] ", file.path, " has ", file.bytes, " bytes, but its header states ", numbers[2],
                          " ids, which are ", expected, " bytes"));
    return {file.path, kHeaderBytes, numbers[2], f.width};
  }
  throw UserError(str("[data] ", file.path,
                      " has no header of llm.c (magic number 20240520 or 20240801); data.format raw16 ",
                      "or raw32 reads files without a header"));
}

TokenArray::Part raw_part(const SourceFile& file, int width) {
  if (file.bytes % width != 0)
    throw UserError(str("[data] ", file.path, " has ", file.bytes, " bytes, which is no multiple of ", width));
  return {file.path, 0, file.bytes / width, width};
}

// The number of ids, the header and the ids in the middle of each file: a hash of all bytes would take minutes for 20
// GB.
std::string hash_of(const TokenFiles& files) {
  std::string text;
  for (size_t s = 0; s < files.size(); ++s)
    for (const TokenArray::Part& part : files[s]) {
      std::vector<int32_t> middle(static_cast<size_t>(std::min(kHashed, part.count)));
      TokenArray::map_parts({&part, 1}).copy((part.count - std::ssize(middle)) / 2, middle);
      const std::string_view bytes(reinterpret_cast<const char*>(middle.data()), middle.size() * sizeof(int32_t));
      text += str(kSplitNames[s], " ", part.width, " ", part.count, " ", hash_text(first_bytes(part.path, part.offset)),
                  " ", hash_text(bytes), "\n");
    }
  return hash_text(text);
}

// Checks the blocks of a file; `all`: each of them, otherwise a sample.
void check_ids(const TokenArray::Part& part, int64_t vocabulary, bool all) {
  const TokenArray tokens = TokenArray::map_parts({&part, 1});
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kBlock, part.count)));
  const auto check = [&](int64_t first) {
    tokens.copy(first, ids);
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= vocabulary)
        throw UserError(str("[data] ", part.path, ": id ", ids[i], " at position ", first + static_cast<int64_t>(i),
                            " is not below the vocabulary, ", vocabulary, " (data.vocab_size, data.tokenizer_file)"));
  };
  const int64_t last = part.count - std::ssize(ids);
  for (int64_t first = 0; first < last; first += all ? kBlock : kBlock * kSampled) check(first);
  check(last);
}

// Names for ids whose tokenizer is unknown.
Vocabulary numbered(int64_t size) {
  std::vector<Vocabulary::Entry> entries;
  for (int64_t id = 0; id < size; ++id) entries.push_back({str("<", id, ">"), 1});
  return Vocabulary(std::move(entries), {-1, -1});
}

void set_tokenizer(Dataset& dataset, const TokensConfig& config) {
  if (config.tokenizer_file.empty()) {
    dataset.vocabulary = numbered(config.vocab_size);
    return;
  }
  const auto tokenizer = make_tokenizer({read_file(config.tokenizer_file), config.tokenizer_file});
  const std::vector<int64_t> counts(static_cast<size_t>(tokenizer->size()), 1);
  dataset.vocabulary = tokenizer->vocabulary(counts);
  dataset.token_bytes = tokenizer->token_bytes();
  dataset.codecs.target = tokenizer;
}

}  // namespace

TokenFiles find_token_files(const TokensConfig& config, const std::string& place) {
  if (config.train.empty() || config.valid.empty())
    throw UserError(str(place, "needs `train` and `valid`, files or globs of ids"));
  check_entries(config.tokenizer_file, config.vocab_size, place);
  const std::vector<std::string>* patterns[kSplits] = {&config.train, &config.valid, &config.test};
  TokenFiles files;
  for (size_t s = 0; s < kSplits; ++s)
    for (const SourceFile& file : find_sources(*patterns[s], static_cast<Split>(s)))
      files[s].push_back(config.format == "llmc" ? llmc_part(file) : raw_part(file, config.format == "raw16" ? 2 : 4));
  return files;
}

Dataset open_token_files(const TokensConfig& config, const std::string& place) {
  const TokenFiles files = find_token_files(config, place);
  for (const auto& split : files)
    for (const TokenArray::Part& part : split) check_ids(part, config.vocab_size, false);
  Dataset dataset;
  dataset.train = TokenArray::map_parts(files[0]);
  dataset.valid = TokenArray::map_parts(files[1]);
  dataset.test = TokenArray::map_parts(files[2]);
  dataset.unit = "subword";
  dataset.hash = hash_of(files);
  set_tokenizer(dataset, config);
  dataset.separator = dataset.vocabulary.eos();
  const size_t count = files[0].size() + files[1].size() + files[2].size();
  dataset.source_note = str(count, " files of ids, ", config.format);
  dataset.report = str("vocabulary: ", config.vocab_size, " entries",
                       config.tokenizer_file.empty() ? "; their tokenizer is not known" : "", "\n");
  return dataset;
}

void check_all_ids(const TokensConfig& config, const std::string& place) {
  for (const auto& split : find_token_files(config, place))
    for (const TokenArray::Part& part : split) check_ids(part, config.vocab_size, true);
}

}  // namespace lmx::data
