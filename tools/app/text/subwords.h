// Subwords of a language pair: a byte-pair encoding trained or read by libsentencepiece.
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
  bool split_scripts = false;  // no subword holds characters of two scripts, or digits beside letters
};

// Trains on words and their counts; the result is the same for any order of `words`. Returns the model's bytes.
// UserError: vocab_size is too small for the characters of the text, or more than its words have merges.
std::string train_subwords(const WordTable& words, const SubwordTraining& training);

// Thread-safe.
class Subwords {
 public:
  // UserError names `path`: missing, no model, or ids that are not lmx's.
  static std::shared_ptr<const Subwords> load(const std::string& path);
  static void check_exists(const std::string& path);  // UserError
  ~Subwords();
  int64_t size() const;
  const std::string& piece(int32_t id) const;  // "\u2581the", "ing"
  // Ids of words with spaces between them; without </s>.
  void encode(std::string_view words, std::vector<int32_t>& ids) const;
  // The words again, one space between them; stops at </s>, <unk> stands for what was unknown.
  std::string decode(std::span<const int32_t> ids) const;
  const std::string& bytes() const;  // of the model, as a file holds them

 private:
  Subwords();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Encodes lines like Subwords::encode, each distinct word once: ten times as fast. One a thread.
class WordEncoder {
 public:
  // REQUIRES: `subwords` is a byte-pair encoding whose pieces end at spaces, as train_subwords makes them: only then is
  // a line the sum of its words.
  explicit WordEncoder(const Subwords& subwords) : subwords_(subwords) {}
  void encode(std::string_view words, std::vector<int32_t>& ids);

 private:
  const Subwords& subwords_;
  WordTable words_;
  std::vector<int32_t> ids_;     // of the words one after the other
  std::vector<size_t> ends_{0};  // word i has the ids from ends_[i] to ends_[i + 1]
};

}  // namespace lmx::data
