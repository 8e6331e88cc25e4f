// Converts lines of one language to subwords and back.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "app/text/moses.h"
#include "app/text/subwords.h"
#include "data/dataset.h"

namespace lmx::data {

// The conversion of a line to words, before subwords.
struct LineSettings {
  std::string language;
  bool moses = true;  // false: split only at white space
  bool lower_case = false;
  bool escape = false;
  bool aggressive_dashes = false;
};

class LineTokenizer {
 public:
  explicit LineTokenizer(LineSettings settings);
  const LineSettings& settings() const { return settings_; }
  // Returns the words, separated by one space. REQUIRES: `line` is UTF-8.
  std::string words(std::string_view line) const;
  // The same for a line that is already tokenized. If `joiner` ("@@") is not empty, it marks where a word was split
  // into subwords, and is removed.
  std::string ready_words(std::string_view line, std::string_view joiner) const;
  std::string text(std::string_view words) const;  // detokenized

 private:
  LineSettings settings_;
  MosesTokenizer moses_;
};

std::shared_ptr<const TextCodec> make_codec(LineSettings settings, std::shared_ptr<const Subwords> subwords);

inline constexpr const char* kSubwordFile = "subwords.model";
inline constexpr const char* kCodecFile = "codecs.json";

}  // namespace lmx::data

namespace lmx {

// Saves the codecs of a translation run in its folder, so that it can translate without its data.
void save_text_codecs(const TextCodecs& codecs, const std::string& directory);
// UserError: a file is missing or damaged.
TextCodecs load_text_codecs(const std::string& directory);

}  // namespace lmx
