// Tokenizers of language models: the ids of any text, and the text of ids, byte for byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/word_table.h"
#include "lmx/data.h"

namespace lmx::app {

// Thread-safe.
class SubwordTokenizer : public TextCodec {
 public:
  // The memory of a thread that encodes texts. REQUIRES: the tokenizer exists longer.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    // Appends the ids of `text`, without ids for its start or end. UserError: text that data.special_text refuses.
    // REQUIRES: `text` is UTF-8.
    virtual void append(std::string_view text, std::vector<int32_t>& ids) = 0;
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  virtual int64_t size() const = 0;
  virtual std::string name(int32_t id) const = 0;  // as the vocabulary names it
  virtual std::string text(int32_t id) const = 0;  // the bytes that it stands for; "" for special ids
  virtual int32_t unk() const = 0;                 // -1: none
  virtual int32_t eos() const = 0;                 // separates documents; -1: none
  virtual std::string description() const = 0;     // for people: "byte-pair encoding of SentencePiece"
  virtual const std::string& file() const = 0;     // the content of the tokenizer's file
  virtual const char* file_name() const = 0;       // its name in a run's folder
  virtual bool own() const { return false; }       // TokenizerFile::own

  // Bytes of text that each id stands for: 0 for special ids, NaN for the unknown piece.
  std::vector<double> token_bytes() const;
  // The vocabulary with these counts. REQUIRES: a count for each id.
  Vocabulary vocabulary(std::span<const int64_t> counts) const;

  std::vector<int32_t> encode(std::string_view text) const override;  // UserError: not UTF-8
  // The texts of the ids before eos(). Ids that the tokenizer lacks, of a model with a larger table, have none.
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_tokens(std::span<const int32_t> ids) const override;  // the names, separated by spaces
  const std::string& language() const override;                            // ""
};

// The name of an id that is of no token.
std::string unused_name(int64_t id);

struct TokenizerFile {
  std::string content, path;     // path: for messages
  bool own = false;              // a `.model` that lmx trained on text: its pieces end where words do
  std::string special = "text";  // data.special_text
};

// UserError: no tokenizer, or one that lmx does not read; the message names the file and the part.
std::shared_ptr<const SubwordTokenizer> make_tokenizer(TokenizerFile file);

// The same for a tokenizer.json of Hugging Face with byte-level BPE: GPT-2, Llama 3, Qwen and others. UserError,
// beginning with the file's path: no JSON, or a part that lmx does not read; the message names the part.
std::shared_ptr<const SubwordTokenizer> make_json_tokenizer(TokenizerFile file);

// Adds the pieces of a text to `pieces`, on whose counts train_subwords() with SubwordTraining::text trains.
void count_pieces(std::string_view text, WordTable& pieces);

}  // namespace lmx::app
