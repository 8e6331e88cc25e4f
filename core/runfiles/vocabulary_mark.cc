#include "runfiles/vocabulary_mark.h"

#include "base/files.h"
#include "lmx/config.h"

namespace lmx {
namespace {

constexpr const char* kEntries = "vocabulary.entries";
constexpr const char* kHash = "vocabulary.sha256";

}  // namespace

VocabularyMark mark_of(const Vocabulary& vocabulary) {
  std::string words;
  for (int32_t i = 0; i < vocabulary.size(); ++i) words += vocabulary.word(i) + '\n';
  return {vocabulary.size(), sha256_of_text(words)};
}

void put_mark(std::map<std::string, std::string>& values, const VocabularyMark& mark) {
  if (mark.sha256.empty()) return;
  values[kEntries] = std::to_string(mark.entries);
  values[kHash] = mark.sha256;
}

VocabularyMark get_mark(const std::map<std::string, std::string>& values) {
  const auto entries = values.find(kEntries), hash = values.find(kHash);
  if (entries == values.end() || hash == values.end()) return {};
  return {parse_int(entries->second).value_or(0), hash->second};
}

}  // namespace lmx
