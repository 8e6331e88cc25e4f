// Text and a run's ids: conversions without the run's data, files of text, and lines in windows.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/inference/saved_run.h"
#include "app/prepare/prepare.h"
#include "app/scores/bleu.h"
#include "app/text/cleaner.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/tokenizer.h"
#include "app/text/utf8.h"
#include "data/data_config.h"

namespace lmx::app {

// The part of `data:` that a run's tokenizer needs.
struct TextRules {
  TokenizerRules rules;
  bool puri = false, end_of_line = true;
  DocumentToken document_token = DocumentToken::begin;  // for subwords
  std::string special_text = "text";                    // the same
};
TextRules text_rules(const Node& data);
bool has_text(const Node& data);  // false: files of ids without a tokenizer

// Contains buffers, so each thread needs its own object.
class RunText {
 public:
  // `directory`: of the run. UserError: it lacks the tokenizer of a run of subwords.
  RunText(const Recipe& recipe, const Vocabulary& vocabulary, const std::string& directory);
  Unit unit() const { return text_.rules.unit; }
  std::string unit_name() const;  // as Dataset::unit: word, char, byte, subword
  // Returns the ids that a continuation of `text` follows: the end of the previous line, string or document, then
  // `text`. `what` names the text in messages ("the prompt"). UserError: invalid UTF-8 (bytes may be anything), or
  // nothing to continue.
  std::vector<int32_t> prompt(const std::string& text, const std::string& what);
  // Returns a string as it occurs in the data, with its end. UserError: invalid UTF-8, or an empty result.
  std::vector<int32_t> whole(const std::string& text, const std::string& what);
  // Returns one line as a sequence: the line end before it, its tokens, and its own line end if the text has line ends.
  // UserError: as whole(), but a line may be empty.
  std::vector<int32_t> line(const std::string& text, const std::string& what);
  // Appends a line (or, if `record` is set, the field of a record) in the same way as a preparation adds it to a split.
  // Returns false if a preparation would leave it out. UserError: invalid UTF-8 (bytes may be anything).
  bool append(std::string_view text, bool record, std::vector<int32_t>& ids, const std::string& what);
  // Returns words or the names of subwords separated by spaces, or characters and bytes without separators. </s> ends a
  // line.
  std::string text_of(const std::vector<int32_t>& ids) const;
  // Returns the same text as people write it: of subwords their text, and of words with their punctuation joined if the
  // rules of lmx have cut it off.
  std::string detokenized(const std::vector<int32_t>& ids) const;
  // Returns the text of one id: "<unk>" for kUnk, a line end for </s>; of a subword its name.
  std::string token_of(int32_t id) const;
  // Warns once about everything that the text read so far has lost: tokens that are not in the vocabulary, and bytes
  // that the cleaner removed because they are not UTF-8.
  void warn_of_losses(const std::string& what) const;
  // Dataset::separator
  int32_t separator() const { return (subwords() ? has_document_token() : text_.end_of_line) ? line_end() : -1; }
  std::vector<double> token_bytes() const;  // Dataset::token_bytes
  // True: a text may contain bytes that are not UTF-8, because the tokens are bytes or the cleaner removes such bytes.
  bool takes_any_bytes() const { return unit() == Unit::byte || text_.puri; }
  int64_t leading() const { return leading_; }  // number of ids in prompt() before those of the text
  int64_t unknown() const;                      // tokens read so far that are not in the vocabulary
  int64_t bytes() const { return bytes_; }      // bytes that append() has added, line ends included

 private:
  std::vector<int32_t> ids_of(std::string_view text, const std::string& what);
  std::vector<int32_t> subword_ids(std::string_view text, const std::string& what);
  std::string subword_text(std::span<const int32_t> ids) const;
  std::vector<int32_t> document(std::string_view text, const std::string& what);
  int32_t line_end() const { return vocabulary_.eos(); }
  bool subwords() const { return unit() == Unit::subword; }
  bool has_document_token() const { return text_.document_token != DocumentToken::none; }

  const Vocabulary& vocabulary_;
  TextRules text_;
  Tokenizer tokenizer_;
  std::shared_ptr<const SubwordTokenizer> subwords_;  // null for other units
  std::unique_ptr<SubwordTokenizer::Encoder> encoder_;
  Cleaner cleaner_;
  int64_t leading_ = 1;
  void warn_of_unknown(const std::string& what) const;
  std::string_view cleaned(std::string_view text);

  int64_t invalid_ = 0;  // texts from which the cleaner removed bytes
  int64_t read_ = 0;     // words or characters
  int64_t bytes_ = 0;
  std::map<std::string, int64_t, std::less<>> unknown_;  // tokens that are not in the vocabulary, with their counts
};

// Any text, converted into tokens of a run.

// Returns the tokens of text files, prepared like a split of the run's own data. `field` names the column or field of
// CSV and JSON-lines files. Adds to the counts of `text`. UserError: files that cannot be read, invalid UTF-8, fewer
// than 2 tokens.
TokenArray read_text(RunText& text, const Recipe& recipe, const std::vector<std::string>& patterns,
                     const std::string& field);

// Reads the lines of a file or of standard input in windows.

// Returns up to `most` lines at a time, from a terminal one line at a time. The error of a line is thrown after the
// lines before it have been returned. UserError: invalid UTF-8, unless `any_bytes` is set, or a line of more than
// kMostBytes bytes. No model can use such a line, and splitting it into words would take minutes.
class Windows {
 public:
  Windows(const std::string& path, int64_t most, bool any_bytes = false);
  Lines next();  // empty at the end

  static constexpr int64_t kMostBytes = 1 << 20;

 private:
  std::string path_;
  LineReader reader_;
  int64_t most_, lines_ = 0;
  std::exception_ptr wrong_;
};

}  // namespace lmx::app
