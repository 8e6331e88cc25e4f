// Lines of one language to subwords and back.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "app/text/moses.h"
#include "app/text/subwords.h"
#include "data/dataset.h"

namespace lmx::data {

// How a line becomes words, before subwords.
struct LineSettings {
  std::string language;
  bool moses = true;  // else at white space alone
  bool lower_case = false;
  bool escape = false;
  bool aggressive_dashes = false;
};

class LineTokenizer {
 public:
  explicit LineTokenizer(LineSettings settings);
  const LineSettings& settings() const { return settings_; }
  // Words with one space between them. REQUIRES: `line` is UTF-8.
  std::string words(std::string_view line) const;
  // The same for a line that is cut into such words already; `joiner` ("@@"), unless empty, marks where a word of it
  // was cut further, and is taken out.
  std::string ready_words(std::string_view line, std::string_view joiner) const;
  std::string text(std::string_view words) const;  // as it would be written

 private:
  LineSettings settings_;
  MosesTokenizer moses_;
};

std::shared_ptr<const TextCodec> make_codec(LineSettings settings, std::shared_ptr<const Subwords> subwords);

inline constexpr const char* kSubwordFile = "subwords.model";
inline constexpr const char* kCodecFile = "codecs.json";

}  // namespace lmx::data

namespace lmx {

// What a translation run keeps of its data to translate without it: files of the run's folder.
void save_text_codecs(const TextCodecs& codecs, const std::string& directory);
// UserError: a file is missing or damaged.
TextCodecs load_text_codecs(const std::string& directory);

}  // namespace lmx
