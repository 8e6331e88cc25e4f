#include "app/inference/run_text.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/prepare/chunks.h"
#include "app/prepare/prepare.h"
#include "app/prepare/text.h"
#include "app/text/moses.h"
#include "app/text/subwords.h"
#include "base/text.h"
#include "data/data_config.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {

TextRules text_rules(const Node& data) {
  const Node* name = data.find("name");
  if (name && name->text == "tokens") return {{false, false, Unit::subword}};
  if (!name || name->text != "text") return {{false, true}, false, true};  // synthetic words are separated by spaces
  const auto config = read_config<TextConfig>(full_data_config(data), "data");
  bool tokenized = config.tokenizer == "whitespace";
  if (config.tokenizer == "auto" && !config.corpus.empty())
    tokenized = find_corpus(config.corpus).tokenizer == "whitespace";
  return {{config.lower_case, tokenized, unit_of_tokens(config.tokens)},
          config.preprocess == "puri",
          config.end_of_line,
          document_token_of(config),
          config.special_text};
}

bool has_text(const Node& data) {
  const Node *name = data.find("name"), *file = data.find("tokenizer_file");
  return !name || name->text != "tokens" || (file && !file->text.empty());
}

RunText::RunText(const Recipe& recipe, const Vocabulary& vocabulary, const std::string& directory)
    : vocabulary_(vocabulary), text_(text_rules(recipe.data)), tokenizer_(text_.rules), cleaner_(text_.puri) {
  if (!subwords()) return;
  if (!has_text(recipe.data))
    throw UserError(
        str("[text] ", directory, " has no tokenizer (data.tokenizer_file), so it neither reads nor writes text"));
  subwords_ = load_text_tokenizer(directory, text_.special_text);
  if (subwords_->eos() < 0) text_.document_token = DocumentToken::none;
  encoder_ = subwords_->encoder();
}

std::string RunText::unit_name() const {
  return unit() == Unit::character ? "char" : name_of(unit());
}

std::vector<int32_t> RunText::ids_of(std::string_view text, const std::string& what) {
  std::vector<int32_t> ids;
  if (unit() == Unit::byte) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  if (subwords()) return subword_ids(text, what);
  std::vector<std::string_view> words;
  const size_t wrong = tokenizer_.split(text, words);
  if (wrong != Tokenizer::kValid) throw UserError(str(what, " is no valid UTF-8 at byte ", wrong));
  read_ += static_cast<int64_t>(words.size());
  for (const std::string_view word : words) {
    ids.push_back(vocabulary_.id(word));
    if (ids.back() == Vocabulary::kUnk) ++unknown_[std::string(word)];
  }
  return ids;
}

std::vector<int32_t> RunText::subword_ids(std::string_view text, const std::string& what) {
  std::vector<int32_t> ids;
  const size_t wrong = find_invalid_utf8(text);
  if (wrong != kValidUtf8) throw UserError(str(what, " is no valid UTF-8 at byte ", wrong));
  encoder_->append(text, ids);
  read_ += std::ssize(ids);
  const int64_t unknown = std::count(ids.begin(), ids.end(), subwords_->unk());
  if (unknown > 0) unknown_[std::string("<unk>")] += unknown;
  return ids;
}

// A document as a split of the data has it.
std::vector<int32_t> RunText::document(std::string_view text, const std::string& what) {
  std::vector<int32_t> ids = ids_of(text, what);
  if (text_.document_token == DocumentToken::begin) ids.insert(ids.begin(), line_end());
  if (text_.document_token == DocumentToken::end) ids.push_back(line_end());
  return ids;
}

std::string_view RunText::cleaned(std::string_view text) {
  invalid_ += text_.puri && find_invalid_utf8(text) != kValidUtf8;
  return cleaner_.clean(text);
}

void RunText::warn_of_losses(const std::string& what) const {
  if (invalid_ > 0)
    log_warn(str(what, ": bytes that are not UTF-8 are left out, of ", count_text(invalid_),
                 invalid_ == 1 ? " text" : " texts"));
  warn_of_unknown(what);
}

void RunText::warn_of_unknown(const std::string& what) const {
  if (unknown_.empty()) return;
  constexpr size_t kShown = 8, kMostBytes = 80;
  std::vector<std::pair<int64_t, std::string>> most;
  int64_t sum = 0;
  for (const auto& [word, count] : unknown_) {
    const size_t end = whole_characters(word, kMostBytes);
    most.emplace_back(-count, end < word.size() ? word.substr(0, end) + "..." : word);
    sum += count;
  }
  if (sum == 1) return log_warn(str(what, ": '", most[0].second, "' is not in the vocabulary; it counts as <unk>"));
  std::sort(most.begin(), most.end());
  std::string text = str(what, ": ", count_text(sum), " of ", count_text(read_), " ", name_of(unit()),
                         "s are not in the vocabulary and count as <unk>, ",
                         count_text(static_cast<int64_t>(most.size())), " different:");
  for (size_t i = 0; i < std::min(most.size(), kShown); ++i)
    text += str(i ? ", '" : " '", most[i].second, "' ", count_text(-most[i].first));
  log_warn(text + (most.size() > kShown ? ", ..." : ""));
}

std::vector<int32_t> RunText::prompt(const std::string& text, const std::string& what) {
  if (subwords() && !has_document_token()) {
    std::vector<int32_t> ids = ids_of(text, what);
    if (ids.empty()) throw UserError(str(what, " is empty, and the texts of this run have no token before them"));
    leading_ = 0;
    return ids;
  }
  if (!text_.puri) {
    std::vector<int32_t> ids = ids_of(text, what);
    ids.insert(ids.begin(), line_end());
    leading_ = 1;
    return ids;
  }
  std::string clean(cleaned(text));
  if (clean.empty()) clean = "\n ";
  // The model continues a prompt directly at its end: inside a word, unless the prompt ends in white space.
  else if (text.find_last_of(" \t\r\n") != text.size() - 1)
    clean.pop_back();
  leading_ = 2;
  return ids_of(clean, what);
}

std::vector<int32_t> RunText::whole(const std::string& text, const std::string& what) {
  if (subwords()) {
    std::vector<int32_t> ids = document(text, what);
    if (ids.empty()) throw UserError(str(what, " is empty"));
    return ids;
  }
  std::string clean(cleaned(text));
  if (text_.puri && clean.empty()) clean = "\n  ";
  std::vector<int32_t> ids = ids_of(clean, what);
  if (text_.end_of_line) ids.push_back(line_end());
  if (ids.empty()) throw UserError(str(what, " is empty"));
  return ids;
}

std::vector<int32_t> RunText::line(const std::string& text, const std::string& what) {
  if (text_.puri) return whole(text, what);  // its string begins with a line end
  std::vector<int32_t> ids = ids_of(text, what);
  if (!subwords() || has_document_token()) ids.insert(ids.begin(), line_end());
  if (separator() >= 0) ids.push_back(separator());
  return ids;
}

bool RunText::append(std::string_view text, bool record, std::vector<int32_t>& ids, const std::string& what) {
  const std::string clean(cleaned(text));
  if (clean.empty() && (text_.puri || record || subwords())) return false;
  const std::vector<int32_t> own = subwords() ? document(clean, what) : ids_of(clean, what);
  if (unit() == Unit::word && own.empty()) return false;
  ids.insert(ids.end(), own.begin(), own.end());
  if (text_.end_of_line) ids.push_back(line_end());
  bytes_ += static_cast<int64_t>(clean.size()) + text_.end_of_line;
  return true;
}

int64_t RunText::unknown() const {
  int64_t sum = 0;
  for (const auto& [word, count] : unknown_) sum += count;
  return sum;
}

std::vector<double> RunText::token_bytes() const {
  return subwords_ ? subwords_->token_bytes() : std::vector<double>();
}

std::string RunText::token_of(int32_t id) const {
  if (unit() == Unit::byte) return {static_cast<char>(id)};
  return id == line_end() ? "\n" : vocabulary_.word(id);
}

std::string RunText::text_of(const std::vector<int32_t>& ids) const {
  std::string text;
  const bool spaces = unit() == Unit::word || subwords();
  bool line_start = true;
  for (const int32_t id : ids) {
    if (spaces && !line_start && id != line_end()) text += ' ';
    text += token_of(id);
    line_start = id == line_end();
  }
  return text;
}

// The documents of `ids`, each after a line end, except the first one.
std::string RunText::subword_text(std::span<const int32_t> ids) const {
  std::string text;
  for (;;) {
    const auto end = std::find(ids.begin(), ids.end(), line_end()) - ids.begin();
    text += subwords_->decode(ids.first(static_cast<size_t>(end)));
    if (end == std::ssize(ids)) return text;
    text += '\n';
    ids = ids.subspan(static_cast<size_t>(end) + 1);
  }
}

// The language of the text is not known. The rules for English fit most others: they join signs to their word.
std::string RunText::detokenized(const std::vector<int32_t>& ids) const {
  if (subwords()) return subword_text(ids);
  const std::string text = text_of(ids);
  if (unit() != Unit::word || text_.rules.whitespace_only) return text;
  std::string out;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    out += moses_detokenize(std::string_view(text).substr(begin, end - begin), "en");
    if (end < text.size()) out += '\n';
  }
  return out;
}

TokenArray read_text(RunText& text, const Recipe& recipe, const std::vector<std::string>& patterns,
                     const std::string& field) {
  constexpr size_t kChunkBytes = 1 << 20;
  std::vector<SourceFile> files = find_sources(patterns, Split::test, field);
  check_field(files, field, "[eval] the ");
  if (kind_of(recipe.data) == Kind::text && text.unit() == Unit::subword)
    set_documents(files, text_config(recipe.data));
  ChunkReader reader(files, kChunkBytes, "reading the text:");
  std::vector<int32_t> ids;
  for (Chunk chunk; reader.next(chunk);) {
    const SourceFile& file = files[chunk.file];
    for_each_record(file, chunk, [&](const TextRecord& record) {
      const std::string place = str("[eval] ", file.path, ":", chunk.file_line + record.line);
      static_cast<void>(text.append(record.text, file.format != Format::lines, ids, place));
    });
  }
  if (ids.size() < 2)
    throw UserError(str("[eval] the text holds ", ids.size(),
                        " tokens; at least 2 are needed, of which the second is "
                        "predicted from the first"));
  return TokenArray::of(std::move(ids));
}

Windows::Windows(const std::string& path, int64_t most, bool any_bytes)
    : path_(path), reader_(path, any_bytes), most_(path == "-" && isatty(STDIN_FILENO) ? 1 : most) {}

Lines Windows::next() {
  if (wrong_) std::rethrow_exception(wrong_);
  Lines lines;
  try {
    while (static_cast<int64_t>(lines.size()) < most_) {
      std::optional<std::string> line = reader_.next();
      if (!line) break;
      ++lines_;
      if (static_cast<int64_t>(line->size()) > kMostBytes)
        throw UserError(str("[text] ", path_ == "-" ? "standard input" : path_, ":", lines_, ": this line has ",
                            line->size(), " bytes, more than ", kMostBytes, "; give a sentence a line"));
      lines.push_back(*std::move(line));
    }
  } catch (const Error&) {
    wrong_ = std::current_exception();
    if (lines.empty()) throw;
  }
  return lines;
}

}  // namespace lmx::app
