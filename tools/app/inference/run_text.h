// A run's text as its ids and back, without its data.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/inference/saved_run.h"
#include "app/text/cleaner.h"
#include "app/text/tokenizer.h"
#include "data/data_config.h"

namespace lmx::train {

// `data:` as the tokenizer of a run needs it.
struct TextRules {
  data::TokenizerRules rules;
  bool puri = false, end_of_line = true;
};
TextRules text_rules(const Node& data);

// Holds buffers, hence one a thread.
class RunText {
 public:
  RunText(const Recipe& recipe, const Vocabulary& vocabulary);
  data::Unit unit() const { return text_.rules.unit; }
  std::string unit_name() const;  // as Dataset::unit: word, char, byte
  // What a continuation of `text` is drawn behind: the end of the line or string before, then `text`. `what` is for
  // messages ("the prompt"). UserError: invalid UTF-8, but of bytes.
  std::vector<int32_t> prompt(const std::string& text, const std::string& what);
  // A string as the data holds it, with its end. UserError: invalid UTF-8, nothing left of it.
  std::vector<int32_t> whole(const std::string& text, const std::string& what);
  // One line as a sequence: the line end before it, its tokens, and its line end if the text has line ends. UserError
  // as of whole(), but a line may be empty.
  std::vector<int32_t> line(const std::string& text, const std::string& what);
  // Appends a line, or with `record` the field of a record, as a preparation adds it to a split; false: a preparation
  // leaves it out. UserError: invalid UTF-8, but of bytes.
  bool append(std::string_view text, bool record, std::vector<int32_t>& ids, const std::string& what);
  // Words with spaces between them; characters and bytes one after the other. </s> ends a line.
  std::string text_of(const std::vector<int32_t>& ids) const;
  // An id as text: "<unk>", a line end for </s>.
  std::string token_of(int32_t id) const;
  // Warns once of what was lost of all that was read so far: what the vocabulary lacks, and bytes that the cleaner left
  // out because they are not UTF-8.
  void warn_of_losses(const std::string& what) const;
  int64_t leading() const { return leading_; }  // ids of prompt() before the text's own
  int64_t unknown() const;                      // tokens that were read so far and that the vocabulary lacks
  int64_t bytes() const { return bytes_; }      // of what append() has added, line ends included

 private:
  std::vector<int32_t> ids_of(std::string_view text, const std::string& what);
  int32_t line_end() const { return unit() == data::Unit::byte ? '\n' : Vocabulary::kEos; }

  const Vocabulary& vocabulary_;
  TextRules text_;
  data::Tokenizer tokenizer_;
  data::Cleaner cleaner_;
  int64_t leading_ = 1;
  void warn_of_unknown(const std::string& what) const;
  std::string_view cleaned(std::string_view text);

  int64_t invalid_ = 0;  // texts with bytes that the cleaner left out
  int64_t read_ = 0;     // words or characters
  int64_t bytes_ = 0;
  std::map<std::string, int64_t, std::less<>> unknown_;  // those that the vocabulary lacks: how often
};

}  // namespace lmx::train
