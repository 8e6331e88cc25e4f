#include "data/tokenizer_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/files.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// The fields of a serialised message of protocol buffers, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  // Returns the number of the next field, and skips its value; nullopt at the end or if the message is damaged.
  std::optional<uint64_t> next() {
    const std::optional<uint64_t> key = number();
    if (!key) return {};
    constexpr uint64_t kNumber = 0, kEight = 1, kBytes = 2, kFour = 5;
    const uint64_t type = *key & 7;
    if (type == kNumber) return number() ? std::optional(*key >> 3) : std::nullopt;
    const std::optional<uint64_t> size = type == kBytes   ? number()
                                         : type == kEight ? std::optional<uint64_t>(8)
                                         : type == kFour  ? std::optional<uint64_t>(4)
                                                          : std::nullopt;
    if (!size || *size > rest_.size()) return {};
    rest_.remove_prefix(*size);
    return *key >> 3;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::optional<uint64_t> number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return {};
  }
  std::string_view rest_;
};

// Returns the number of pieces, field 1 of SentencePiece's ModelProto; 0 if the bytes are no such message.
int64_t pieces_of(std::string_view model) {
  Message message(model);
  int64_t pieces = 0;
  while (const auto field = message.next()) pieces += *field == 1;
  return message.done() ? pieces : 0;
}

// Returns 1 + the largest id of a tokenizer.json; 0 if it has no ids. A vocabulary without ids, such as that of a
// Unigram model, is counted, so that the refusal of the tokenizer names the kind of its model.
int64_t ids_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  int64_t ids = 0;
  try {
    const auto& vocab = json.at("model").at("vocab");
    if (vocab.is_array()) return std::ssize(vocab);
    for (const auto& [piece, id] : vocab.items()) ids = std::max(ids, id.get<int64_t>() + 1);
    if (json.contains("added_tokens"))
      for (const auto& token : json.at("added_tokens")) ids = std::max(ids, token.at("id").get<int64_t>() + 1);
  } catch (const nlohmann::json::exception&) {
    return 0;
  }
  return ids;
}

}  // namespace

int64_t tokenizer_entries(const std::string& path) {
  const std::string text = read_file(path);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  const int64_t entries = json ? ids_of(text) : pieces_of(text);
  if (entries > 0) return entries;
  throw UserError(str("[data] ", path, " is damaged, or neither a .model of SentencePiece nor a tokenizer.json"));
}

void check_entries(const std::string& path, int64_t vocab_size, const std::string& place) {
  const int64_t entries = path.empty() ? vocab_size : tokenizer_entries(path);
  if (entries == vocab_size) return;
  throw UserError(str(place, "vocab_size ", vocab_size, " differs from the ", entries, " entries of ", path,
                      "; leave vocab_size out"));
}

}  // namespace lmx
