#include "app/prepare/token_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "lmx/error.h"

namespace lmx::app {
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

TokenArray::Part llmc_part(const std::string& path, int64_t bytes) {
  const std::string header = first_bytes(path, kHeaderBytes);
  int32_t numbers[3] = {};
  std::memcpy(numbers, header.data(), std::min(header.size(), sizeof numbers));
  for (const LlmcFormat& f : kLlmcFormats) {
    if (std::ssize(header) < kHeaderBytes || numbers[0] != f.magic) continue;
    if (numbers[1] != f.version)
      throw UserError(str("[data] ", path, " has version ", numbers[1], " of llm.c's format ", f.magic,
                          "; lmx reads version ", f.version));
    const int64_t expected = kHeaderBytes + int64_t{f.width} * numbers[2];
    if (numbers[2] < 0 || bytes != expected)
      throw UserError(str("[data] ", path, " has ", bytes, " bytes, but its header states ", numbers[2],
                          " ids, which are ", expected, " bytes"));
    return {path, kHeaderBytes, numbers[2], f.width};
  }
  throw UserError(str("[data] ", path,
                      " has no header of llm.c (magic number 20240520 or 20240801); data.format raw16 ",
                      "or raw32 reads files without a header"));
}

TokenArray::Part raw_part(const std::string& path, int64_t bytes, int width) {
  if (bytes % width != 0)
    throw UserError(str("[data] ", path, " has ", bytes, " bytes, which is no multiple of ", width));
  return {path, 0, bytes / width, width};
}

}  // namespace

TokenArray::Part token_part(const std::string& path, int64_t bytes, const std::string& format) {
  return format == "llmc" ? llmc_part(path, bytes) : raw_part(path, bytes, format == "raw16" ? 2 : 4);
}

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

std::string token_hash(const TokenArray::Part& part) {
  std::vector<int32_t> middle(static_cast<size_t>(std::min(kHashed, part.count)));
  TokenArray::map_parts({&part, 1}).copy((part.count - std::ssize(middle)) / 2, middle);
  const std::string_view bytes(reinterpret_cast<const char*>(middle.data()), middle.size() * sizeof(int32_t));
  return str(part.width, " ", part.count, " ", hash_text(first_bytes(part.path, part.offset)), " ", hash_text(bytes));
}

}  // namespace lmx::app
