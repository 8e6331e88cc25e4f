// filter_pairs and keep_best_pairs.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>

#include "app/pairs/pair_files.h"
#include "app/pairs/parallel_text.h"
#include "app/prepare/cache.h"
#include "app/prepare/chunks.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr size_t kReadBytes = 2 << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Side {
  std::string_view text;  // without white space at its ends
  int64_t words = 0;
};

Side measure(std::string_view line) {
  std::u32string codes;
  decode_utf8(line, codes);
  Side side;
  bool inside = false;
  size_t at = 0, first = line.size(), last = 0;
  for (const char32_t c : codes) {
    const size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const bool space = is_white_space(c);
    if (!space && !inside) ++side.words;
    inside = !space;
    if (!space) {
      first = std::min(first, at);
      last = at + bytes;
    }
    at += bytes;
  }
  if (last > first) side.text = line.substr(first, last - first);
  return side;
}

// Counts the pair. Returns whether it is kept.
bool judge(const PairLine& pair, const FilterRules& rules, FilterCounts& counts) {
  std::array<bool, FilterCounts::kRules> broken{};
  broken[FilterCounts::kInvalid] =
      find_invalid_utf8(pair.source) != kValidUtf8 || find_invalid_utf8(pair.target) != kValidUtf8;
  if (!broken[FilterCounts::kInvalid]) {
    const Side source = measure(pair.source), target = measure(pair.target);
    const int64_t longer = std::max(source.words, target.words), shorter = std::min(source.words, target.words);
    broken[FilterCounts::kEmpty] = shorter == 0;
    if (shorter > 0) {
      broken[FilterCounts::kTooLong] = rules.max_words > 0 && longer > rules.max_words;
      broken[FilterCounts::kRatio] =
          rules.max_ratio > 0 && static_cast<double>(longer) > rules.max_ratio * static_cast<double>(shorter);
      broken[FilterCounts::kCopy] = rules.drop_copies && source.text == target.text;
    }
  }
  ++counts.read;
  bool kept = true;
  for (size_t rule = 0; rule < FilterCounts::kRules; ++rule) {
    counts.breaking[rule] += broken[rule];
    counts.dropped[rule] += broken[rule] && kept;
    kept = kept && !broken[rule];
  }
  counts.kept += kept;
  return kept;
}

void add(FilterCounts& sum, const FilterCounts& more) {
  sum.read += more.read;
  sum.kept += more.kept;
  for (size_t rule = 0; rule < FilterCounts::kRules; ++rule) {
    sum.dropped[rule] += more.dropped[rule];
    sum.breaking[rule] += more.breaking[rule];
  }
}

struct Copying {
  std::function<bool(const PairLine&, int thread)> keep;
  std::function<void(int thread)> counted;  // after each chunk, in the chunks' order
  std::function<void()> done = {};          // called before the files appear
  bool any_bytes = false;
  int threads = 1;
};

// Writes the pairs to keep, in their order.
void copy_pairs(const std::vector<PairFiles>& files, const PairTextOutput& out, const char* title,
                const Copying& copying) {
  PairWriter writer(out);
  PairReader reader(files, kReadBytes, title);
  Turnstile turnstile;
  const auto copy = [&](PairChunk& chunk, int thread) {
    PairBlock block;
    for_each_pair(
        files[chunk.file], chunk,
        [&](const PairLine& pair) {
          if (copying.keep(pair, thread)) writer.add(block, pair.source, pair.target);
        },
        copying.any_bytes);
    writer.seal(block);
    if (!turnstile.wait_for(chunk.index)) return;
    writer.append(block);
    copying.counted(thread);
    turnstile.pass();
  };
  for_each_pair_chunk(reader, copying.threads, copy, [&] { turnstile.break_open(); });
  if (copying.done) copying.done();
  writer.finish();
}

// Reads the scores of a file from start to end, one per line.
class ScoreReader {
 public:
  ScoreReader(const std::string& path, int64_t column)
      : files_(find_sources({path}, Split::train)), column_(column), reader_(files_, kReadBytes, "reading scores:") {}
  bool next(double& score) {
    while (at_ >= chunk_.text.size()) {
      if (!reader_.next(chunk_)) return false;
      at_ = 0;
    }
    const size_t end = std::min(chunk_.text.find('\n', at_), chunk_.text.size());
    ++line_;
    score = parse(std::string_view(chunk_.text).substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }
  int64_t line() const { return line_; }  // of the last score, 1-based

 private:
  // -inf means that `lmx score` could not score the pair; it is less than every number.
  double parse(std::string_view line) const {
    std::string_view field;
    size_t at = 0;
    for (int64_t column = 0; column < column_; ++column) {
      at = std::min(line.find_first_not_of(" \t\r", at), line.size());
      const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      field = line.substr(at, end - at);
      at = end;
    }
    double value = 0;
    const auto [stop, code] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (code != std::errc() || stop != field.data() + field.size() || std::isnan(value) || value == kInfinity) {
      throw UserError(str("[data] ", files_[0].path, ":", line_, ": column ", column_, " is '", field.substr(0, 40),
                          "', neither a finite number nor -inf; a score is needed for each pair"));
    }
    return value;
  }
  std::vector<SourceFile> files_;
  int64_t column_;
  ChunkReader reader_;
  Chunk chunk_;
  size_t at_ = 0;
  int64_t line_ = 0;
};

// Maps doubles to integers in the same order.
uint64_t key_of(double score) {
  const auto bits = std::bit_cast<uint64_t>(score == 0 ? 0.0 : score);  // -0 is 0
  return bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
}
double score_of(uint64_t key) {
  return std::bit_cast<double>(key >> 63 ? key & ~(uint64_t{1} << 63) : ~key);
}

struct Threshold {
  int64_t scores = 0;
  uint64_t key = 0;    // the lowest key that is kept
  int64_t equals = 0;  // how many pairs with exactly this key are kept
};

// Finds the `keep`-th highest score, 16 bits at a time: four histograms instead of a sort.
Threshold find_threshold(const TopOptions& options) {
  Threshold found;
  int64_t wanted = options.keep;
  for (int shift = 48; shift >= 0; shift -= 16) {
    std::vector<int64_t> histogram(1 << 16);
    ScoreReader scores(options.scores, options.score_column);
    double score = 0;
    int64_t count = 0;
    while (scores.next(score)) {
      ++count;
      const uint64_t key = key_of(score);
      if (shift == 48 || key >> (shift + 16) == found.key >> (shift + 16)) ++histogram[key >> shift & 0xFFFF];
    }
    if (shift == 48) {
      found.scores = count;
      wanted = std::min(wanted, count);
    }
    size_t bin = histogram.size() - 1;
    while (bin > 0 && histogram[bin] < wanted) wanted -= histogram[bin--];
    found.key |= static_cast<uint64_t>(bin) << shift;
  }
  found.equals = wanted;
  return found;
}

}  // namespace

const char* rule_name(FilterCounts::Rule rule) {
  constexpr const char* kNames[FilterCounts::kRules] = {"not UTF-8", "empty side", "too long", "ratio of lengths",
                                                        "copy"};
  return kNames[rule];
}

FilterCounts filter_pairs(const PairTextFiles& in, const FilterRules& rules, const PairTextOutput& out, int threads) {
  if (rules.max_ratio != 0 && rules.max_ratio < 1)
    throw UserError(str("[data] a ratio of ", rules.max_ratio,
                        " would drop every pair; it is longer / shorter, at least 1, or 0 for no limit"));
  const std::vector<PairFiles> files = find_pair_files(in);
  const int workers = preparing_threads(threads);
  std::vector<FilterCounts> chunks(static_cast<size_t>(workers));
  FilterCounts all;
  Copying copying;
  copying.keep = [&](const PairLine& pair, int thread) {
    return judge(pair, rules, chunks[static_cast<size_t>(thread)]);
  };
  copying.counted = [&](int thread) {
    add(all, chunks[static_cast<size_t>(thread)]);
    chunks[static_cast<size_t>(thread)] = {};
  };
  copying.any_bytes = rules.drop_invalid;
  copying.threads = workers;
  copy_pairs(files, out, "filtering:", copying);
  return all;
}

TopCounts keep_best_pairs(const PairTextFiles& in, const TopOptions& options, const PairTextOutput& out) {
  if (options.keep < 1) throw UserError(str("[data] ", options.keep, " pairs to keep; at least 1 is needed"));
  if (options.score_column < 1)
    throw UserError(str("[data] score column ", options.score_column, "; columns are counted from 1"));
  const std::vector<PairFiles> files = find_pair_files(in);
  const Threshold threshold = find_threshold(options);
  TopCounts counts;
  int64_t equals = threshold.equals;
  ScoreReader scores(options.scores, options.score_column);
  const auto check = [&](bool end) {
    if (counts.read <= threshold.scores && (!end || counts.read == threshold.scores)) return;
    throw UserError(str("[data] ", options.scores, " has ", threshold.scores, " scores for ", end ? "" : "at least ",
                        counts.read, " pairs; line i must be the score of pair i"));
  };
  Copying copying;  // one thread: scores must be read in the order of the pairs, and reading takes most of the time
  copying.keep = [&](const PairLine&, int) {
    double score = 0;
    ++counts.read;
    if (!scores.next(score)) return false;
    const uint64_t key = key_of(score);
    const bool kept = key > threshold.key || (key == threshold.key && equals-- > 0);
    counts.kept += kept;
    counts.unscored += score == -kInfinity;
    counts.kept_unscored += kept && score == -kInfinity;
    return kept;
  };
  copying.counted = [&](int) { check(false); };
  copying.done = [&] { check(true); };
  copy_pairs(files, out, "keeping the best:", copying);
  counts.threshold = counts.kept ? score_of(threshold.key) : 0;
  return counts;
}

}  // namespace lmx::app
