#include "app/text/subword_tokenizer.h"

#include <limits>

#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::app {

std::string unused_name(int64_t id) {
  return str("<no token ", id, ">");
}

std::vector<double> SubwordTokenizer::token_bytes() const {
  std::vector<double> bytes;
  for (int32_t id = 0; id < size(); ++id)
    bytes.push_back(id == unk() ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(text(id).size()));
  return bytes;
}

Vocabulary SubwordTokenizer::vocabulary(std::span<const int64_t> counts) const {
  std::vector<Vocabulary::Entry> entries;
  for (int32_t id = 0; id < size(); ++id) entries.push_back({name(id), counts[static_cast<size_t>(id)]});
  return Vocabulary(std::move(entries), {unk(), eos()});
}

std::vector<int32_t> SubwordTokenizer::encode(std::string_view text) const {
  const size_t bad = find_invalid_utf8(text);
  if (bad != kValidUtf8) refuse_invalid_utf8("input", 1, 0, text, bad);
  std::vector<int32_t> ids;
  encoder()->append(text, ids);
  return ids;
}

std::string SubwordTokenizer::decode(std::span<const int32_t> ids) const {
  std::string all;
  for (const int32_t id : ids) {
    if (id == eos()) break;
    if (id < size()) all += text(id);
  }
  return all;
}

std::string SubwordTokenizer::decode_tokens(std::span<const int32_t> ids) const {
  std::string names;
  for (const int32_t id : ids) names += (names.empty() ? "" : " ") + name(id);
  return names;
}

const std::string& SubwordTokenizer::language() const {
  static const std::string none;
  return none;
}

}  // namespace lmx::app
