// Subwords of a language pair: a byte-pair encoding that libsentencepiece trains or reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/word_table.h"
#include "lmx/data.h"

namespace lmx::data {

struct SubwordTraining {
  int64_t vocab_size = 0;      // with <unk> and </s>
  bool split_scripts = false;  // no subword contains characters of two scripts, or digits and letters
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
  WordTable words_;
  std::vector<int32_t> ids_;     // of all words, concatenated
  std::vector<size_t> ends_{0};  // word i has the ids in [ends_[i], ends_[i + 1])
};

}  // namespace lmx::data
