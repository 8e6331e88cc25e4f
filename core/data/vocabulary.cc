#include <limits>

#include "data/files.h"
#include "data/word_table.h"
#include "lmx/data.h"
#include "lmx/error.h"

namespace lmx {

Vocabulary::Vocabulary(std::vector<Entry> entries) : entries_(std::move(entries)) {
  auto table = std::make_shared<data::WordTable>();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t index = table->add(entries_[i].word, 0);
    LMX_CHECK(index == static_cast<int64_t>(i), "vocabulary holds '", entries_[i].word, "' twice");
  }
  index_ = std::move(table);
}

int32_t Vocabulary::id(std::string_view word) const {
  if (!index_) return kUnk;
  const int64_t index = static_cast<const data::WordTable*>(index_.get())->find(word);
  return index < 0 ? kUnk : static_cast<int32_t>(index);
}

void Vocabulary::save(const std::string& path) const {
  std::string text;
  for (const Entry& e : entries_) text += str(e.word, '\t', e.count, '\n');
  data::write_file(path, text);
}

Vocabulary Vocabulary::load(const std::string& path) {
  const std::string text = data::read_file(path);
  std::vector<Entry> entries;
  data::WordTable seen;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const size_t tab = line.rfind('\t');
    const auto count = tab == std::string_view::npos ? std::nullopt : parse_int(line.substr(tab + 1));
    const size_t number = entries.size() + 1;
    if (!count || *count < 0 || tab == 0) {
      throw UserError(str("[data] ", path, ":", number, ": expected WORD<TAB>COUNT, found '", line.substr(0, 80), "'"));
    }
    Entry entry{std::string(line.substr(0, tab)), *count};
    if (seen.add(entry.word, 0) != static_cast<int64_t>(entries.size())) {
      throw UserError(str("[data] ", path, ":", number, ": '", entry.word, "' stands there twice"));
    }
    entries.push_back(std::move(entry));
    at = end + 1;
  }
  if (entries.size() < 2 || entries[kUnk].word != "<unk>" || entries[kEos].word != "</s>") {
    throw UserError(str("[data] ", path, " is no vocabulary: its first two words must be <unk> and </s>"));
  }
  return Vocabulary(std::move(entries));
}

}  // namespace lmx
