// Subwords of a language pair (a byte-pair encoding that libsentencepiece trains or reads), and lines of one language
// converted to them and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/text/byte_pairs.h"
#include "app/text/moses.h"
#include "data/dataset.h"
#include "data/word_table.h"
#include "lmx/data.h"

namespace lmx::app {

struct SubwordTraining {
  int64_t vocab_size = 0;      // with <unk> and </s>
  bool split_scripts = false;  // no subword contains characters of two scripts, or digits and letters
  // The words are the pieces of count_pieces(): bytes for unknown characters, digits one by one, white space kept.
  bool text = false;
};

// Trains on words and their counts; the result is the same for any order of `words`. Returns the model's bytes.
// UserError: vocab_size is too small for the characters of the text, or larger than the number of subwords that it can
// give.
std::string train_subwords(const WordTable& words, const SubwordTraining& training);

// Thread-safe.
class Subwords {
 public:
  // UserError, with `path`: the file is missing or no model, or its ids are not those of lmx.
  static std::shared_ptr<const Subwords> load(const std::string& path);
  static void check_exists(const std::string& path);  // UserError
  ~Subwords();
  int64_t size() const;
  const std::string& piece(int32_t id) const;  // "\u2581the", "ing"
  // Appends the ids of words that are separated by spaces; without </s>.
  void encode(std::string_view words, std::vector<int32_t>& ids) const;
  // Returns the words, separated by one space. Stops at </s>; <unk> stands for unknown text.
  std::string decode(std::span<const int32_t> ids) const;
  const std::string& bytes() const;  // of the model, in its file format

 private:
  Subwords();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Encodes lines like Subwords::encode, but each distinct word only once: ten times as fast. Each thread needs its own
// object.
class WordEncoder {
 public:
  // REQUIRES: `subwords` is a byte-pair encoding whose pieces end at spaces, like those of train_subwords. Only then is
  // the encoding of a line the concatenation of its words' encodings.
  explicit WordEncoder(const Subwords& subwords) : subwords_(subwords) {}
  void encode(std::string_view words, std::vector<int32_t>& ids);

 private:
  const Subwords& subwords_;
  PieceCache words_;
};

// Converts lines of one language to subwords and back.

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

class SubwordTokenizer;

// Saves the codecs of a run in its folder, so that it can translate, or read and write text, without its data.
void save_text_codecs(const TextCodecs& codecs, const std::string& directory);
// The codecs of a translation run. UserError: a file is missing or damaged.
TextCodecs load_text_codecs(const std::string& directory);
// The tokenizer of a language model of subwords. `special_text`: data.special_text. UserError: as load_text_codecs().
std::shared_ptr<const SubwordTokenizer> load_text_tokenizer(const std::string& directory,
                                                            const std::string& special_text = "text");

}  // namespace lmx::app
