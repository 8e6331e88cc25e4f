// Finds the files of parallel text that a config names.
#include "app/corpora/corpora.h"
#include "app/pairs/parallel.h"
#include "config/error_collector.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

using Patterns = std::vector<std::string>;

// The files of one split: two lists of files, or TSV files.
struct SplitPatterns {
  const char* prefix;  // of the keys: "", "valid_", "test_"
  Patterns source, target, tsv;
};

std::vector<PairFiles> pair_up(const SplitPatterns& patterns, Split split, const std::array<int64_t, 2>& columns,
                               const config::Place& place) {
  std::vector<PairFiles> pairs;
  for (SourceFile& file : find_sources(patterns.tsv, split)) pairs.push_back({std::move(file), {}, columns});
  std::vector<SourceFile> sources = find_sources(patterns.source, split),
                          targets = find_sources(patterns.target, split);
  if (sources.size() != targets.size()) {
    throw UserError(str(place(str(patterns.prefix, "source_files")), patterns.prefix, "source_files names ",
                        sources.size(), " files and ", patterns.prefix, "target_files ", targets.size(),
                        "; each source file needs the target file that translates it"));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].path == targets[i].path)
      throw UserError(str(place(str(patterns.prefix, "source_files")), sources[i].path,
                          " is named as source and as target; one file with both sides is for `files`"));
    pairs.push_back({std::move(sources[i]), std::move(targets[i]), {}});
  }
  return pairs;
}

// Returns the side of the corpus with this language; side `fallback` if `language` is empty.
const CorpusSide& side_of(const Corpus& corpus, const std::string& language, size_t fallback,
                          const std::string& place) {
  if (language.empty()) return corpus.sides[fallback];
  for (const CorpusSide& side : corpus.sides)
    if (side.language == language) return side;
  throw UserError(str(place, "corpus '", corpus.name, "' has the languages ", corpus.sides[0].language, " and ",
                      corpus.sides[1].language, ", not '", language, "'"));
}

const Corpus& parallel_corpus(const std::string& name, const config::Place& place) {
  const Corpus& corpus = find_corpus(name, place("corpus"));
  if (!corpus.sides.empty()) return corpus;
  Patterns parallel;
  for (const Corpus& c : corpora())
    if (!c.sides.empty()) parallel.push_back(c.name);
  throw UserError(
      str(place("corpus"), "corpus '", name, "' is not parallel text; parallel are ", config::join(parallel)));
}

void use_corpus(const ParallelConfig& config, const config::Place& place, std::array<SplitPatterns, kSplits>& splits,
                std::array<int64_t, 2>& columns, ParallelSources& sources) {
  const Corpus& corpus = parallel_corpus(config.corpus, place);
  const size_t first = !config.target_language.empty() && config.source_language.empty() &&
                       corpus.sides[0].language == config.target_language;
  const CorpusSide& source = side_of(corpus, config.source_language, first, place("source_language"));
  const CorpusSide& target =
      side_of(corpus, config.target_language, &source == &corpus.sides[0], place("target_language"));
  if (&source == &target)
    throw UserError(str(place("target_language"), "source and target are both '", source.language, "'"));
  sources.corpus = &corpus;
  sources.source.language = source.language;
  sources.target.language = target.language;
  sources.directory = directory_of(corpus);  // last: the checks of parts need the values above, even without the corpus
  const auto below = [&](const Patterns& patterns) {
    Patterns paths;
    for (const std::string& pattern : patterns) paths.push_back(sources.directory + "/" + pattern);
    return paths;
  };
  const bool tsv = source.column > 0;
  const Patterns* own[kSplits][2] = {
      {&source.train, &target.train}, {&source.valid, &target.valid}, {&source.test, &target.test}};
  for (size_t s = 0; s < kSplits; ++s) {
    if (tsv) {
      splits[s].tsv = below(*own[s][0]);
    } else {
      splits[s].source = below(*own[s][0]);
      splits[s].target = below(*own[s][1]);
    }
  }
  if (tsv) columns = {source.column, target.column};
}

PairRange range_of(const std::vector<int64_t>& pairs, const config::Place& place) {
  if (pairs.empty()) return {};
  if (pairs.size() != 2 || pairs[0] > pairs[1])
    throw UserError(str(place("pairs"), "pairs: expected [first, last], such as [1, 5000]"));
  return {pairs[0] - 1, pairs[1] - 1};
}

bool ready_words(const std::string& tokenizer, const Corpus* corpus) {
  return tokenizer == "tokenized" || (tokenizer == "auto" && corpus && corpus->tokenizer == "tokenized");
}

void check_joiner(const std::string& joiner, bool ready, const config::Place& place) {
  if (!joiner.empty() && !ready)
    throw UserError(str(place("joiner"), "joiner '", joiner, "' needs `tokenizer: tokenized`"));
}

// Finds the training files of one part, in the languages of the main text.
PartSources find_part(const MixPart& part, const ParallelSources& main) {
  const PartConfig& c = part.config;
  PartSources found;
  const config::Place place{part.node, part.path};
  found.place = place();
  ParallelSources sources;
  std::array<SplitPatterns, kSplits> splits{{{"", c.source_files, c.target_files, c.files}, {}, {}}};
  std::array<int64_t, 2> columns{c.tsv_columns[0], c.tsv_columns[1]};
  if (!c.corpus.empty()) {
    ParallelConfig as;
    as.corpus = c.corpus;
    as.source_language = main.source.language;
    as.target_language = main.target.language;
    use_corpus(as, place, splits, columns, sources);
  }
  found.files = pair_up(splits[0], Split::train, columns, place);
  found.ready = ready_words(c.tokenizer, sources.corpus);
  if (!found.ready && c.tokenizer != "auto" && (c.tokenizer == "moses") != main.source.moses)
    throw UserError(str(place("tokenizer"), "tokenizer ", c.tokenizer,
                        " is not the main text's; all text is cut into words in one way"));
  found.joiner = !c.joiner.empty() || !sources.corpus ? c.joiner : sources.corpus->joiner;
  check_joiner(found.joiner, found.ready, place);
  found.range = range_of(c.pairs, place);
  found.config = c;
  return found;
}

// Searches the main text and each part, and reports all missing files together.
class Search {
 public:
  template <class Find>
  void look(const Find& find) {
    wrong_.keep([&] {
      try {
        find();
      } catch (const CorpusMissing&) {
        corpus_missing_ = true;
        throw;
      }
    });
  }
  void finish() const {
    if (corpus_missing_) throw CorpusMissing(wrong_.messages());
    wrong_.throw_any();
  }

 private:
  ErrorCollector wrong_;
  bool corpus_missing_ = false;
};

void check_keys(const ParallelConfig& config, const config::Place& place,
                const std::array<SplitPatterns, kSplits>& splits) {
  const SplitPatterns& train = splits[0];
  const bool files = !train.source.empty() || !train.target.empty() || !train.tsv.empty();
  if (config.corpus.empty() && !files)
    throw UserError(
        str(place(), "needs `corpus` (see `lmx data list`), `source_files` and `target_files`, or TSV `files`"));
  if (!config.corpus.empty() && files)
    throw UserError(
        str(place("corpus"),
            "has both `corpus` and files; give one of them (`~data.corpus` removes the corpus of a recipe)"));
  for (const SplitPatterns& s : splits) {
    if (!s.tsv.empty() && (!s.source.empty() || !s.target.empty()))
      throw UserError(str(place(str(s.prefix, "files")), s.prefix, "files (TSV) cannot be given beside ", s.prefix,
                          "source_files and ", s.prefix, "target_files"));
    const std::string given = str(s.prefix, s.source.empty() ? "target_files" : "source_files");
    if (s.source.empty() != s.target.empty())
      throw UserError(str(place(given), s.prefix, s.source.empty() ? "source_files" : "target_files",
                          " is missing beside ", given));
    if (!config.corpus.empty() && (!s.tsv.empty() || !s.source.empty()))
      throw UserError(str(place(str(s.prefix, s.tsv.empty() ? "source_files" : "files")), s.prefix,
                          "files cannot be given beside `corpus`"));
  }
  if (config.corpus.empty() && (config.source_language.empty() || config.target_language.empty()))
    throw UserError(str(place(), "needs source_language and target_language (en, de, fr ...) beside files"));
  if (config.tsv_columns.size() != 2)
    throw UserError(
        str(place("tsv_columns"), "tsv_columns names ", config.tsv_columns.size(), " columns; two are needed"));
  if (config.valid_fraction + config.test_fraction >= 1)
    throw UserError(str(place("valid_fraction"), "valid_fraction ", config.valid_fraction, " and test_fraction ",
                        config.test_fraction, " leave nothing to train on"));
  if (config.max_ratio > 0 && config.max_ratio < 1)
    throw UserError(str(place("max_ratio"), "max_ratio ", config.max_ratio,
                        " would drop every pair; it is longer / shorter, at least 1, or 0 for no limit"));
}

}  // namespace

std::vector<SourceFile*> ParallelSources::all_files() {
  std::vector<SourceFile*> all;
  for (std::vector<PairFiles>& split : files) {
    for (PairFiles& pair : split) {
      all.push_back(&pair.source);
      if (!pair.tsv()) all.push_back(&pair.target);
    }
  }
  for (PartSources& part : parts) {
    for (PairFiles& pair : part.files) {
      all.push_back(&pair.source);
      if (!pair.tsv()) all.push_back(&pair.target);
    }
  }
  return all;
}

ParallelSources find_parallel(const ParallelConfig& config, const Node& data) {
  const config::Place place{data, "data"};
  std::array<SplitPatterns, kSplits> splits{
      {{"", config.source_files, config.target_files, config.files},
       {"valid_", config.valid_source_files, config.valid_target_files, config.valid_files},
       {"test_", config.test_source_files, config.test_target_files, config.test_files}}};
  check_keys(config, place, splits);
  std::array<int64_t, 2> columns{config.tsv_columns[0], config.tsv_columns[1]};
  ParallelSources sources;
  sources.source.language = config.source_language;
  sources.target.language = config.target_language;
  if (!config.subword_model.empty()) Subwords::check_exists(config.subword_model);
  Search search;
  search.look([&] {
    if (!config.corpus.empty()) use_corpus(config, place, splits, columns, sources);
    for (size_t s = 0; s < kSplits; ++s)
      sources.files[s] = pair_up(splits[s], s == 0 ? Split::drawn : static_cast<Split>(s), columns, place);
  });
  sources.range = range_of(config.pairs, place);
  sources.ready = ready_words(config.tokenizer, sources.corpus);
  sources.joiner = !config.joiner.empty() || !sources.corpus ? config.joiner : sources.corpus->joiner;
  for (LineSettings* side : {&sources.source, &sources.target}) {
    side->moses = config.tokenizer != "none";
    side->lower_case = config.lower_case;
    side->escape = config.escape;
    side->aggressive_dashes = config.aggressive_dashes;
  }
  check_joiner(sources.joiner, sources.ready, place);
  for (const MixPart& part : config.mix.parts)
    if (part.name != kMainPart) search.look([&] { sources.parts.push_back(find_part(part, sources)); });
  search.finish();
  return sources;
}

}  // namespace lmx::app
