// What training reads of a recipe's `data:`: prepared splits, their vocabulary, and how text becomes ids.
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

// Text of one language to ids and back, as a preparation did it: tokenization, then subwords. Thread-safe.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  virtual std::vector<int32_t> encode(std::string_view line) const = 0;       // without </s>
  virtual std::string decode(std::span<const int32_t> ids) const = 0;         // detokenized; stops at </s>
  virtual std::string decode_tokens(std::span<const int32_t> ids) const = 0;  // subwords joined, not detokenized
  virtual const std::string& language() const = 0;                            // "en"
};

// What a translation run keeps of its data to translate without it: files of the run's folder.
struct TextCodecs {
  std::shared_ptr<const TextCodec> source, target;
};

// Whether a token is a character or a byte, of which bits per character (bpc) speak; `unit`: Dataset::unit.
inline bool is_character(std::string_view unit) {
  return unit == "char" || unit == "byte";
}

// What `data:` of a recipe names, prepared: three splits and a vocabulary.
struct Dataset {
  TokenArray train, valid, test;                             // test may be empty; of parallel text the target side
  TextStrings train_strings, valid_strings, test_strings;    // of chars and bytes, else empty
  int64_t train_bytes = 0, valid_bytes = 0, test_bytes = 0;  // of the text that the tokens stand for; 0: unknown
  PairArray train_pairs, valid_pairs, test_pairs;            // parallel text, else empty
  std::vector<PairPart> train_parts;      // of train_pairs, in order; empty: one text, each pair once an epoch
  TextCodecs codecs;                      // of parallel text
  Vocabulary vocabulary;                  // of parallel text the joint subwords
  std::string unit = "word";              // what a token is: word, char, byte, subword
  std::string hash;                       // content hash of the source and the preparation's settings
  std::string directory;                  // where the shards lie; "" for data made in memory
  int64_t types = 0;                      // distinct words of the training split, before the vocabulary was cut
  double oov = 0;                         // fraction of the training words (</s> aside) that became <unk>
  std::optional<double> true_perplexity;  // of the source on the valid split, where it is known (synthetic data)
  std::string source_note;                // one line: corpus, licence
  std::string report;                     // several lines for people: types, tokens, coverage, OOV, the first lost word
};

}  // namespace lmx
