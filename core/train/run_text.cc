#include "train/run_text.h"

#include <set>

#include "lmx/corpora.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::train {

TextRules text_rules(const Node& data) {
  const Node* name = data.find("name");
  if (!name || name->text != "text") return {{false, true}, false, true};  // made-up words stand between spaces
  const auto config = read_config<data::TextConfig>(full_data_config(data), "data");
  bool tokenized = config.tokenizer == "whitespace";
  if (config.tokenizer == "auto" && !config.corpus.empty())
    tokenized = find_corpus(config.corpus).tokenizer == "whitespace";
  return {{config.lower_case, tokenized, data::unit_of_tokens(config.tokens)},
          config.preprocess == "puri",
          config.end_of_line};
}

RunText::RunText(const Recipe& recipe, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), text_(text_rules(recipe.data)), tokenizer_(text_.rules), cleaner_(text_.puri) {}

std::vector<int32_t> RunText::ids_of(std::string_view text, const std::string& what) {
  std::vector<int32_t> ids;
  if (unit() == data::Unit::byte) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<std::string_view> words;
  const size_t wrong = tokenizer_.split(text, words);
  if (wrong != data::Tokenizer::kValid) throw UserError(str(what, " is no valid UTF-8 at byte ", wrong));
  std::set<std::string_view> warned;
  for (const std::string_view word : words) {
    ids.push_back(vocabulary_.id(word));
    if (ids.back() == Vocabulary::kUnk && warned.insert(word).second)
      log_warn(str(what, ": '", word, "' is not in the vocabulary; it counts as <unk>"));
  }
  return ids;
}

std::vector<int32_t> RunText::prompt(const std::string& text, const std::string& what) {
  if (!text_.puri) {
    std::vector<int32_t> ids = ids_of(text, what);
    ids.insert(ids.begin(), line_end());
    leading_ = 1;
    return ids;
  }
  std::string cleaned(cleaner_.clean(text));
  if (cleaned.empty()) cleaned = "\n ";
  // A prompt goes on where it ends: inside a word, unless white space stands there.
  else if (text.find_last_of(" \t\r\n") != text.size() - 1)
    cleaned.pop_back();
  leading_ = 2;
  return ids_of(cleaned, what);
}

std::vector<int32_t> RunText::whole(const std::string& text, const std::string& what) {
  std::string cleaned(cleaner_.clean(text));
  if (text_.puri && cleaned.empty()) cleaned = "\n  ";
  std::vector<int32_t> ids = ids_of(cleaned, what);
  if (text_.end_of_line) ids.push_back(line_end());
  if (ids.empty()) throw UserError(str(what, " is empty"));
  return ids;
}

std::string RunText::token_of(int32_t id) const {
  if (unit() == data::Unit::byte) return {static_cast<char>(id)};
  return id == Vocabulary::kEos ? "\n" : vocabulary_.word(id);
}

std::string RunText::text_of(const std::vector<int32_t>& ids) const {
  std::string text;
  const bool spaces = unit() == data::Unit::word;
  bool line_start = true;
  for (const int32_t id : ids) {
    if (spaces && !line_start && id != Vocabulary::kEos) text += ' ';
    text += token_of(id);
    line_start = id == Vocabulary::kEos;
  }
  return text;
}

}  // namespace lmx::train
