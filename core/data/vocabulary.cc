#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "data/word_table.h"
#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/error.h"

namespace lmx {
namespace {

std::string byte_name(size_t byte) {
  return format("<0x%02X>", static_cast<unsigned>(byte));
}

constexpr std::string_view kComment = "# lmx vocabulary: unk ";

std::string escaped(std::string_view word) {
  std::string out;
  for (const char c : word) out += c == '\n' ? "\\n" : c == '\\' ? "\\\\" : std::string(1, c);
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    out.push_back(escape && text[i] == 'n' ? '\n' : text[i]);
  }
  return out;
}

// The special ids of the comment at the start of a vocabulary's file; nullopt if there is none.
std::optional<Vocabulary::Special> special_of(std::string_view text, const std::string& path) {
  if (!text.starts_with(kComment)) return {};
  const std::string_view line = text.substr(kComment.size(), std::min(text.find('\n'), text.size()) - kComment.size());
  constexpr std::string_view kBetween = ", eos ";
  const size_t middle = line.find(kBetween);
  const auto id = [&](std::string_view number) {
    const std::optional<int64_t> value = parse_int(number);
    if (!value || *value < -1 || *value > std::numeric_limits<int32_t>::max() || text.find('\n') == text.npos)
      throw UserError(str("[data] ", path, ":1: the special ids are damaged: '", line.substr(0, 80), "'"));
    return static_cast<int32_t>(*value);
  };
  return Vocabulary::Special{id(line.substr(0, middle)),
                             id(middle == line.npos ? "" : line.substr(middle + kBetween.size()))};
}

}  // namespace

Vocabulary Vocabulary::bytes(std::span<const int64_t> counts) {
  LMX_CHECK(counts.size() == 256, counts.size(), " counts of bytes");
  std::vector<Entry> entries;
  for (size_t b = 0; b < 256; ++b) entries.push_back({byte_name(b), counts[b]});
  return Vocabulary(std::move(entries), {-1, '\n'});
}

Vocabulary Vocabulary::unnamed(int64_t size) {
  Vocabulary vocabulary;
  vocabulary.unnamed_ = size;
  return vocabulary;
}

bool Vocabulary::of_bytes() const {
  return entries_.size() == 256 && entries_[0].word == byte_name(0) && entries_[255].word == byte_name(255);
}

Vocabulary::Vocabulary(std::vector<Entry> entries, Special special) : entries_(std::move(entries)), special_(special) {
  auto table = std::make_shared<WordTable>();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t index = table->add(entries_[i].word, 0);
    LMX_CHECK(index == static_cast<int64_t>(i), "vocabulary holds '", entries_[i].word, "' twice");
  }
  index_ = std::move(table);
}

int32_t Vocabulary::id(std::string_view word) const {
  if (!index_) return unk();
  const int64_t index = static_cast<const WordTable*>(index_.get())->find(word);
  return index < 0 ? unk() : static_cast<int32_t>(index);
}

void Vocabulary::save(const std::string& path) const {
  const bool lines = std::any_of(entries_.begin(), entries_.end(),
                                 [](const Entry& e) { return e.word.find('\n') != std::string::npos; });
  const bool plain = !lines && (of_bytes() || special_ == Special());
  std::string text = plain ? "" : str(kComment, unk(), ", eos ", eos(), "\n");
  for (const Entry& e : entries_) text += str(plain ? e.word : escaped(e.word), '\t', e.count, '\n');
  write_file(path, text);
}

Vocabulary Vocabulary::load(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<Entry> entries;
  WordTable seen;
  const std::optional<Special> special = special_of(text, path);
  for (size_t at = special ? text.find('\n') + 1 : 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const size_t tab = line.rfind('\t');
    const auto count = tab == std::string_view::npos ? std::nullopt : parse_int(line.substr(tab + 1));
    const size_t number = entries.size() + 1 + special.has_value();
    if (!count || *count < 0 || tab == 0) {
      throw UserError(str("[data] ", path, ":", number, ": expected WORD<TAB>COUNT, found '", line.substr(0, 80), "'"));
    }
    Entry entry{special ? unescaped(line.substr(0, tab)) : std::string(line.substr(0, tab)), *count};
    if (seen.add(entry.word, 0) != static_cast<int64_t>(entries.size())) {
      throw UserError(str("[data] ", path, ":", number, ": '", entry.word, "' occurs twice"));
    }
    entries.push_back(std::move(entry));
    at = end + 1;
  }
  if (special) {
    const auto size = static_cast<int32_t>(entries.size());
    if (std::max(special->unk, special->eos) >= size)
      throw UserError(str("[data] ", path, ":1: a special id is not below the ", size, " entries"));
    return Vocabulary(std::move(entries), *special);
  }
  if (Vocabulary bytes(entries, {-1, '\n'}); bytes.of_bytes()) return bytes;
  if (entries.size() < 2 || entries[kUnk].word != "<unk>" || entries[kEos].word != "</s>") {
    throw UserError(str("[data] ", path, " is no vocabulary: its first two words must be <unk> and </s>"));
  }
  return Vocabulary(std::move(entries));
}

namespace {

constexpr size_t kFirstSlots = 1 << 12;
constexpr size_t kBlock = 1 << 16;

}  // namespace

WordTable::WordTable() : slots_(kFirstSlots) {}

size_t WordTable::place(std::string_view word, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) return slot;
    const Entry& e = entries_[slots_[slot] - 1];
    if (e.hash == hash && e.length == word.size() && std::memcmp(e.text, word.data(), word.size()) == 0) return slot;
  }
}

int64_t WordTable::add(std::string_view word, int64_t count) {
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  size_t slot = place(word, hash);
  if (slots_[slot] == 0) {
    if (2 * (entries_.size() + 1) > slots_.size()) {
      grow();
      slot = place(word, hash);
    }
    entries_.push_back({store(word), word.size(), hash, 0});
    slots_[slot] = static_cast<uint32_t>(entries_.size());
  }
  const uint32_t index = slots_[slot] - 1;
  entries_[index].count += count;
  return index;
}

int64_t WordTable::find(std::string_view word) const {
  return static_cast<int64_t>(slots_[place(word, XXH3_64bits(word.data(), word.size()))]) - 1;
}

const char* WordTable::store(std::string_view word) {
  if (word.size() > block_left_) {
    const size_t size = std::max(kBlock, word.size());
    blocks_.push_back(std::make_unique<char[]>(size));
    block_next_ = blocks_.back().get();
    block_left_ = size;
  }
  char* text = block_next_;
  if (!word.empty()) std::memcpy(text, word.data(), word.size());
  block_next_ += word.size();
  block_left_ -= word.size();
  return text;
}

void WordTable::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace lmx
