#include "app/prepare/prepare.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <tuple>

#include "app/prepare/sentences.h"
#include "data/word_table.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app {
namespace {

constexpr size_t kParts = 256;    // parts by the first byte of the hash; each is sorted in memory
constexpr size_t kBuffer = 1024;  // strings of a part that are kept in memory before they are written

struct Entry {
  uint64_t high, low;
  int64_t line;
  bool same_text(const Entry& other) const { return high == other.high && low == other.low; }
  bool operator<(const Entry& other) const {
    return std::tie(high, low, line) < std::tie(other.high, other.low, other.line);
  }
};
static_assert(sizeof(Entry) == 24);

struct Part {
  std::mutex mutex;
  std::vector<Entry> waiting;
  int file = -1;  // without a name; made when the first buffer is full
  int64_t written = 0;
  int64_t last_line = -1;
};

}  // namespace

struct DuplicateFinder::Impl {
  std::string directory;
  std::array<Part, kParts> parts;
  [[noreturn]] void fail(const char* what) const {
    throw RunError(str("[data] cannot ", what, " a temporary file in ", directory, ": ", std::strerror(errno)));
  }
  void spill(size_t index);
  std::vector<Entry> collect(size_t index);
};

DuplicateFinder::DuplicateFinder(std::string directory) : impl_(std::make_unique<Impl>()) {
  impl_->directory = std::move(directory);
}

DuplicateFinder::~DuplicateFinder() {
  for (const Part& part : impl_->parts)
    if (part.file >= 0) close(part.file);
}

void DuplicateFinder::Impl::spill(size_t index) {
  Part& part = parts[index];
  if (part.file < 0) {
    std::string name = directory + "/duplicates-XXXXXX";
    part.file = mkostemp(name.data(), O_CLOEXEC);
    if (part.file < 0) fail("create");
    unlink(name.c_str());
  }
  const auto bytes = std::as_bytes(std::span(part.waiting));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(part.file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) fail("write");
    done += n > 0 ? static_cast<size_t>(n) : 0;
  }
  part.written += static_cast<int64_t>(part.waiting.size());
  part.waiting.clear();
}

void DuplicateFinder::add(std::string_view text, int64_t line) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  const size_t index = h.high64 >> 56;
  Part& part = impl_->parts[index];
  const std::lock_guard lock(part.mutex);
  part.waiting.push_back({h.high64, h.low64, line});
  part.last_line = std::max(part.last_line, line);
  if (part.waiting.size() >= kBuffer) impl_->spill(index);
}

std::vector<Entry> DuplicateFinder::Impl::collect(size_t index) {
  Part& part = parts[index];
  std::vector<Entry> entries(static_cast<size_t>(part.written));
  const auto bytes = std::as_writable_bytes(std::span(entries));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(part.file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n <= 0) fail("read");
    done += static_cast<size_t>(n);
  }
  entries.insert(entries.end(), part.waiting.begin(), part.waiting.end());
  return entries;
}

std::vector<bool> DuplicateFinder::finish() {
  int64_t last = -1;
  for (const Part& part : impl_->parts) last = std::max(last, part.last_line);
  std::vector<bool> repeated(static_cast<size_t>(last + 1));
  for (size_t p = 0; p < kParts; ++p) {
    std::vector<Entry> entries = impl_->collect(p);
    std::sort(entries.begin(), entries.end());
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].same_text(entries[i - 1])) repeated[static_cast<size_t>(entries[i].line)] = true;
  }
  return repeated;
}

namespace {

constexpr std::string_view kUnkWord = "<unk>", kEosWord = "</s>";

struct Counts {
  WordTable words;                   // of the whole training split, also of lines outside `train_fraction`
  int64_t lines = 0;                 // of the whole training split
  std::array<int64_t, 256> bytes{};  // of the whole training split, if the unit is byte
  std::array<SplitCounts, kSplits> splits;
  int64_t invalid = 0;
};

void count_sentence(const Sentence& s, const PrepareSettings& settings, Counts& counts) {
  if (s.used) {
    SplitCounts& totals = counts.splits[static_cast<size_t>(s.split)];
    ++totals.lines;
    totals.words += s.tokens;
    totals.bytes += static_cast<int64_t>(s.text.size()) + settings.end_of_line;
  }
  if (s.split != Split::train) return;
  ++counts.lines;
  for (const std::string_view word : s.words) counts.words.add(word, 1);
  if (settings.rules.unit != Unit::byte) return;
  for (const char c : s.text) ++counts.bytes[static_cast<unsigned char>(c)];
  counts.bytes['\n'] += settings.end_of_line;
}

Counts count_words(const Text& text) {
  const PrepareSettings& settings = text.settings;
  ChunkReader reader(text.files, settings.chunk_bytes, str("counting ", name_of(settings.rules.unit), "s:"));
  std::vector<Counts> counts(static_cast<size_t>(settings.threads));
  std::vector<TextWorker> workers = make_workers(settings);
  for_each_chunk(reader, settings.threads, [&](Chunk& chunk, int thread) {
    Counts& mine = counts[static_cast<size_t>(thread)];
    for_each_sentence(text, chunk, workers[static_cast<size_t>(thread)], LineChoice::all,
                      [&](const Sentence& s) { count_sentence(s, settings, mine); });
  });
  Counts all = std::move(counts[0]);
  for (size_t t = 1; t < counts.size(); ++t) {
    for (int64_t i = 0; i < counts[t].words.size(); ++i)
      all.words.add(counts[t].words.word(i), counts[t].words.count(i));
    all.lines += counts[t].lines;
    for (size_t b = 0; b < all.bytes.size(); ++b) all.bytes[b] += counts[t].bytes[b];
    for (size_t s = 0; s < kSplits; ++s) all.splits[s] += counts[t].splits[s];
    counts[t] = {};
  }
  for (const TextWorker& worker : workers) all.invalid += worker.invalid;
  return all;
}

// Orders the types of the training split by falling count, equal counts by bytes, so that ids do not depend on the
// machine.
std::vector<Vocabulary::Entry> choose_words(const Counts& counts, const PrepareSettings& settings,
                                            PrepareReport& report) {
  const WordTable& table = counts.words;
  std::vector<int64_t> order;
  int64_t unknown = 0, end_of_line = settings.end_of_line ? counts.lines : 0;
  for (int64_t i = 0; i < table.size(); ++i) {
    if (table.word(i) == kUnkWord)
      unknown += table.count(i);
    else if (table.word(i) == kEosWord)
      end_of_line += table.count(i);
    else
      order.push_back(i);
  }
  report.types = static_cast<int64_t>(order.size());
  const int64_t places = settings.vocab_size == 0 ? report.types : settings.vocab_size - 2;
  check_vocabulary(settings.vocab_size, report.types, settings.rules.unit);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return table.count(a) != table.count(b) ? table.count(a) > table.count(b) : table.word(a) < table.word(b);
  });
  std::vector<Vocabulary::Entry> entries{{std::string(kUnkWord), unknown}, {std::string(kEosWord), end_of_line}};
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t w = order[i];
    if (i < static_cast<size_t>(places))
      entries.push_back({std::string(table.word(w)), table.count(w)});
    else
      entries[0].count += table.count(w);
  }
  if (places < report.types) {
    report.first_lost = table.word(order[static_cast<size_t>(places)]);
    report.first_lost_count = table.count(order[static_cast<size_t>(places)]);
  }
  return entries;
}

void encode_sentence(const Sentence& s, const PrepareSettings& settings, const Vocabulary& vocabulary, Encoded& out) {
  const bool bytes = settings.rules.unit == Unit::byte;
  for (const std::string_view word : s.words) {
    out.ids.push_back(vocabulary.id(word));
    out.counts.unknown += out.ids.back() == Vocabulary::kUnk;
  }
  if (bytes)
    for (const char c : s.text) out.ids.push_back(static_cast<unsigned char>(c));
  if (settings.end_of_line) out.ids.push_back(vocabulary.eos());
}

}  // namespace

double PrepareReport::oov() const {
  return splits[0].words ? static_cast<double>(splits[0].unknown) / static_cast<double>(splits[0].words) : 0;
}

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::word:
      return "word";
    case Unit::character:
      return "character";
    case Unit::byte:
      return "byte";
    case Unit::subword:
      break;
  }
  return "subword";
}

SplitCounts& SplitCounts::operator+=(const SplitCounts& other) {
  lines += other.lines;
  words += other.words;
  unknown += other.unknown;
  bytes += other.bytes;
  return *this;
}

std::string PrepareReport::text(int64_t vocab_size) const {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  const std::string name = name_of(unit);
  const bool subwords = unit == Unit::subword;
  if (subwords)
    out << "vocabulary: " << vocab_size << " subwords (" << tokenizer << "), " << types
        << " of them in the training split\n";
  else if (unit == Unit::byte)
    out << "vocabulary: the 256 bytes, " << types << " of them in the training split\n";
  else
    out << "vocabulary: " << vocab_size << " entries with <unk> and </s>, of " << types << " types; coverage "
        << 100 * (1 - oov()) << " %, OOV " << 100 * oov() << " % of the training " << name << "s\n";
  if (!first_lost.empty())
    out << "first lost " << name << ": '" << first_lost << "' (" << first_lost_count << " times)\n";
  if (invalid > 0) out << "left out: bytes that are not UTF-8, of " << invalid << " strings\n";
  if (repeated > 0) out << "left out: " << repeated << " strings that equal an earlier one\n";
  for (size_t s = 0; s < kSplits; ++s) {
    if (splits[s].lines == 0) continue;
    out << kSplitNames[s] << ": " << splits[s].lines
        << (subwords             ? " documents, "
            : unit == Unit::word ? " lines, "
                                 : " strings, ")
        << splits[s].words << " " << name << "s";
    if (subwords)
      out << ", " << static_cast<double>(splits[s].bytes) / static_cast<double>(splits[s].words) << " bytes each";
    else if (unit != Unit::byte)
      out << ", OOV " << 100 * static_cast<double>(splits[s].unknown) / static_cast<double>(splits[s].words) << " %";
    out << "\n";
  }
  return out.str();
}

Split split_of_line(const PrepareSettings& settings, Split forced, int64_t line) {
  if (forced != Split::drawn) return forced;
  if (settings.valid_fraction == 0 && settings.test_fraction == 0) return Split::train;
  const double u = RandomKey(settings.split_seed).fold("split").uniform(static_cast<uint64_t>(line));
  if (u < settings.valid_fraction) return Split::valid;
  return u < settings.valid_fraction + settings.test_fraction ? Split::test : Split::train;
}

void check_vocabulary(int64_t vocab_size, int64_t types, Unit unit) {
  if (vocab_size - 2 <= types || unit == Unit::byte || unit == Unit::subword) return;
  throw UserError(str("[data] data.vocab_size ", vocab_size,
                      " (<unk> and </s> included) is more than the training text has: ", types, " distinct ",
                      name_of(unit), "s; use at most ", types + 2));
}

namespace {

int64_t types_of(const Counts& counts, Unit unit) {
  if (unit == Unit::byte) return 256 - std::count(counts.bytes.begin(), counts.bytes.end(), 0);
  int64_t types = 0;
  for (int64_t i = 0; i < counts.words.size(); ++i) {
    const std::string_view word = counts.words.word(i);
    types += word != kUnkWord && word != kEosWord;
  }
  return types;
}

}  // namespace

PrepareReport prepare(const std::vector<SourceFile>& files, const PrepareSettings& settings,
                      const std::string& directory) {
  PrepareReport report;
  report.unit = settings.rules.unit;
  const std::vector<bool> repeated = find_repeated(files, settings, directory);
  const Text text{files, settings, repeated};
  if (settings.rules.unit == Unit::subword) report = prepare_subwords(text, directory);
  report.repeated = std::count(repeated.begin(), repeated.end(), true);
  if (settings.rules.unit == Unit::subword) return report;
  Vocabulary vocabulary;
  {
    const Counts counts = count_words(text);
    check_splits(settings, counts.splits, counts.lines);
    report.splits = counts.splits;
    report.types = types_of(counts, settings.rules.unit);
    report.invalid = counts.invalid;
    vocabulary = settings.rules.unit == Unit::byte ? Vocabulary::bytes(counts.bytes)
                                                   : Vocabulary(choose_words(counts, settings, report));
  }  // frees the counts: they are as large as the vocabulary of all types, and the second pass does not need them
  const auto written = write_shards(
      text, directory, [&](const Sentence& s, int, Encoded& to) { encode_sentence(s, settings, vocabulary, to); });
  for (size_t s = 0; s < kSplits; ++s) report.splits[s].unknown = written[s].unknown;
  vocabulary.save(directory + "/vocab.tsv");
  return report;
}

}  // namespace lmx::app
