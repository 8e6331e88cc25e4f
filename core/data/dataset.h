// The data that training reads: the prepared splits of a recipe's `data:`, their vocabulary, and the conversion of text
// to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/data.h"

namespace lmx {

// Converts text to ids and back, in the same way as the preparation of the data: for a translation, text of one
// language by tokenization and subwords. Thread-safe.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  virtual std::vector<int32_t> encode(std::string_view line) const = 0;       // without </s>
  virtual std::string decode(std::span<const int32_t> ids) const = 0;         // detokenized; stops at </s>
  virtual std::string decode_tokens(std::span<const int32_t> ids) const = 0;  // subwords joined, not detokenized
  virtual const std::string& language() const = 0;                            // "en"
};

// The codecs that a run of subwords stores in its folder, so that it can read and write text without the data. A
// language model has only `target`.
struct TextCodecs {
  std::shared_ptr<const TextCodec> source, target;
};

// Returns whether a token is a character or a byte, for which bits per character (bpc) are reported; `unit`:
// Dataset::unit.
inline bool is_character(std::string_view unit) {
  return unit == "char" || unit == "byte";
}

// The prepared data of a recipe: three splits and a vocabulary.
struct Dataset {
  TokenArray train, valid, test;                             // test may be empty; for parallel text the target side
  TextStrings train_strings, valid_strings, test_strings;    // only for characters, bytes and subwords (documents)
  int64_t train_bytes = 0, valid_bytes = 0, test_bytes = 0;  // bytes of the text before tokenization; 0: unknown
  PairArray train_pairs, valid_pairs, test_pairs;            // only for parallel text
  std::vector<PairPart> train_parts;  // parts of train_pairs, in order; empty: one text, each pair once per epoch
  TextCodecs codecs;                  // for parallel text, and for subwords of text
  Vocabulary vocabulary;              // for parallel text the joint subwords
  std::string unit = "word";          // kind of token: word, char, byte, subword
  std::string hash;                   // content hash of the source and of the preparation's settings
  std::string directory;              // the folder of the shards; "" for data made in memory
  std::vector<double> token_bytes;    // bytes of text that each id stands for; NaN: unknown; empty: no bits per byte
  int32_t separator = -1;             // the token between documents (lines, strings); -1: the text has none
  int64_t types = 0;                  // distinct words of the training split, before the vocabulary was limited
  double oov = 0;                     // fraction of the training words (without </s>) that became <unk>
  std::optional<double> true_perplexity;  // of the source on the valid split, if known (synthetic data)
  std::string source_note;                // one line: corpus, licence
  std::string report;                     // lines for the user: types, tokens, coverage, OOV, first omitted word
};

}  // namespace lmx
