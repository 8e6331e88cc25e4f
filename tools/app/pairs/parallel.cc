#include "app/pairs/parallel.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/prepare/cache.h"
#include "base/files.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;  // version of the prepared data; increase it when the tokenizer's rules or the files change

void hash_all(ParallelSources& sources) {
  for (SourceFile* file : sources.all_files()) {
    std::vector<SourceFile> one{*file};
    hash_sources(one);
    file->hash = one[0].hash;
  }
}

Json identity_of(const PairFiles& pair, size_t split) {
  Json entry = {{"split", split}, {"source", pair.source.hash}, {"source_gz", pair.source.path.ends_with(".gz")}};
  if (pair.tsv()) {
    entry["columns"] = {pair.columns[0], pair.columns[1]};
  } else {
    entry["target"] = pair.target.hash;
    entry["target_gz"] = pair.target.path.ends_with(".gz");
  }
  return entry;
}

// Everything that the prepared files depend on: not the number of threads or file locations, and not the ratio of
// parts.
Json identity(const ParallelConfig& c, const ParallelSources& sources) {
  Json id = {{"format", kFormat},
             {"source", sources.source.language},
             {"target", sources.target.language},
             {"moses", sources.source.moses},
             {"ready", sources.ready},
             {"joiner", sources.joiner},
             {"lower_case", c.lower_case},
             {"escape", c.escape},
             {"aggressive_dashes", c.aggressive_dashes},
             {"vocab_size", c.vocab_size},
             {"subword_model", c.subword_model.empty() ? "" : hash_text(read_file(c.subword_model))},
             {"max_words", c.max_words},
             {"max_ratio", c.max_ratio},
             {"valid_fraction", sources.files[1].empty() ? c.valid_fraction : 0},
             {"test_fraction", sources.files[2].empty() ? c.test_fraction : 0},
             {"split_seed", c.split_seed},
             {"files", Json::array()}};
  for (size_t s = 0; s < kSplits; ++s)
    for (const PairFiles& pair : sources.files[s]) id["files"].push_back(identity_of(pair, s));
  if (!sources.range.all()) id["pairs"] = {sources.range.first, sources.range.last};
  for (const PartSources& part : sources.parts) {
    const PartConfig& own_config = part.config;
    Json own = {{"ready", part.ready},
                {"joiner", part.joiner},
                {"pairs", {part.range.first, part.range.last}},
                {"subwords", own_config.subwords},
                {"max_words", own_config.max_words},
                {"max_ratio", own_config.max_ratio},
                {"wrong_targets", own_config.wrong_targets}};
    for (const PairFiles& pair : part.files) own["files"].push_back(identity_of(pair, 0));
    id["parts"].push_back(std::move(own));
  }
  return id;
}

Json to_json(const PairCounts& c) {
  return {{"read", c.read},           {"kept", c.kept},   {"empty", c.empty},       {"too_long", c.too_long},
          {"bad_ratio", c.bad_ratio}, {"words", c.words}, {"subwords", c.subwords}, {"unknown", c.unknown}};
}

Json report_to_json(const ParallelReport& r) {
  Json json = {{"types", r.types}, {"train_tokens", r.train_tokens}};
  for (size_t s = 0; s < kSplits; ++s) json[kSplitNames[s]] = to_json(r.splits[s]);
  if (!r.part_pairs.empty()) json["part_pairs"] = r.part_pairs;
  return json;
}

ParallelReport report_from_json(const Json& json) {
  ParallelReport r;
  r.types = json.at("types");
  r.train_tokens = json.at("train_tokens");
  for (size_t s = 0; s < kSplits; ++s) {
    const Json& c = json.at(kSplitNames[s]);
    r.splits[s] = {c.at("read"),      c.at("kept"),  c.at("empty"),    c.at("too_long"),
                   c.at("bad_ratio"), c.at("words"), c.at("subwords"), c.at("unknown")};
  }
  if (json.contains("part_pairs")) r.part_pairs = json.at("part_pairs").get<std::vector<int64_t>>();
  return r;
}

void build(const ParallelConfig& config, ParallelSources& sources, const Json& id, const std::string& directory) {
  std::vector<SourceFile> files;
  for (const SourceFile* file : sources.all_files()) files.push_back(*file);
  verify_checksums(sources.corpus, sources.directory, files, cache_directory(config.cache_dir));
  const ParallelReport report = prepare_parallel(config, sources, directory);
  check_unchanged(files);
  Json meta = {{"identity", id},
               {"report", report_to_json(report)},
               {"vocabulary_xxh3", hash_text(read_file(directory + "/vocab.tsv"))},
               {"subwords_xxh3", hash_text(read_file(directory + "/" + kSubwordFile))},
               {"corpus", config.corpus},
               {"paths", Json::array()}};
  for (const SourceFile& f : files) meta["paths"].push_back(f.path);
  // A file name need not be UTF-8; invalid bytes are written as replacement characters.
  write_file(directory + "/meta.json", meta.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  progress_line("");
  log_info(str("[data] prepared ", directory.substr(0, directory.find(".tmp-"))));
  std::string text = report.text(config.vocab_size, sources, config);
  text.pop_back();  // the logger ends the line
  log_info(text);
}

// Returns the position of each part in the training split, and how many pairs of it an epoch reads.
std::vector<PairPart> parts_of(const Mix& mix, const ParallelReport& report) {
  std::vector<PairPart> parts;
  int64_t first = 0;
  for (size_t p = 0; p < mix.parts.size(); ++p) {
    parts.push_back({mix.parts[p].name, first, report.part_pairs[p], mix.draws(p, report.part_pairs[mix.epoch_of])});
    first += report.part_pairs[p];
  }
  return parts;
}

Dataset load(const ParallelConfig& config, const ParallelSources& sources, const std::string& directory) {
  Dataset dataset;
  ParallelReport report;
  std::shared_ptr<const Subwords> subwords;
  const auto file = [&](const std::string& name) { return directory + "/" + name; };
  try {
    const Json meta = Json::parse(read_file(file("meta.json")));
    report = report_from_json(meta.at("report"));
    if (hash_text(read_file(file("vocab.tsv"))) != meta.at("vocabulary_xxh3")) throw UserError("vocab.tsv has changed");
    if (hash_text(read_file(file(kSubwordFile))) != meta.at("subwords_xxh3"))
      throw UserError(str(kSubwordFile, " has changed"));
    if (report.part_pairs.size() != config.mix.parts.size()) throw UserError("meta.json lacks the parts' pairs");
    dataset.vocabulary = Vocabulary::load(file("vocab.tsv"));
    subwords = Subwords::load(file(kSubwordFile));
  } catch (const std::exception& e) {
    throw UserError(str("[data] prepared data in ", directory, " is damaged (", e.what(),
                        "); delete that directory and it will be ", "prepared again"));
  }
  TokenArray* targets[kSplits] = {&dataset.train, &dataset.valid, &dataset.test};
  PairArray* pairs[kSplits] = {&dataset.train_pairs, &dataset.valid_pairs, &dataset.test_pairs};
  for (size_t s = 0; s < kSplits; ++s) {
    *targets[s] = TokenArray::map(file(str(kSplitNames[s], ".target.bin")));
    *pairs[s] = PairArray(TokenArray::map(file(str(kSplitNames[s], ".source.bin"))), *targets[s]);
  }
  dataset.train_parts = parts_of(config.mix, report);
  dataset.codecs = {make_codec(sources.source, subwords), make_codec(sources.target, subwords)};
  dataset.unit = "subword";
  dataset.directory = directory;
  dataset.types = report.types;
  const PairCounts& train = report.splits[0];
  dataset.oov = static_cast<double>(train.unknown[0] + train.unknown[1]) /
                static_cast<double>(std::max<int64_t>(train.subwords[0] + train.subwords[1], 1));
  dataset.report = report.text(config.vocab_size, sources, config);
  return dataset;
}

// Data settings that affect a run, but not the prepared files.
std::string mix_text(const Mix& mix) {
  if (mix.parts.empty()) return "";
  std::string text = mix.parts[mix.epoch_of].name;
  for (const MixPart& part : mix.parts) text += str(" ", part.name, " ", config::double_text(part.ratio));
  return text;
}

std::string folder_of(const Json& id) {
  return "parallel-" + hash_text(id.dump()).substr(0, 16);
}

}  // namespace

std::string ParallelReport::text(int64_t vocab_size, const ParallelSources& sources,
                                 const ParallelConfig& config) const {
  std::ostringstream out;
  out << "vocabulary: " << vocab_size << " subwords of " << sources.source.language << " and "
      << sources.target.language << " with <unk> and </s>, "
      << (config.subword_model.empty() ? "trained on " : "given; the training text has ") << types << " types\n";
  for (size_t s = 0; s < kSplits; ++s) {
    const PairCounts& c = splits[s];
    if (c.read == 0) continue;
    out << kSplitNames[s] << ": " << c.kept << " of " << c.read << " pairs (dropped: " << c.empty
        << " with an empty side";
    if (s == 0) out << ", " << c.too_long << " by max_words, " << c.bad_ratio << " by max_ratio";
    out << "), " << c.words[0] << " source and " << c.words[1] << " target words, " << c.subwords[0] << " and "
        << c.subwords[1] << " subwords, " << c.unknown[0] << " and " << c.unknown[1] << " of them unknown\n";
  }
  for (const PairPart& part : parts_of(config.mix, *this))
    out << "part " << part.name << ": " << part.count << " pairs, an epoch reads " << part.draws << "\n";
  return out.str();
}

std::optional<int64_t> known_train_tokens(const ParallelConfig& config, const ParallelSources& found) {
  const std::filesystem::path cache = cache_directory(config.cache_dir);
  std::error_code ignored;
  if (!std::filesystem::is_directory(cache, ignored)) return std::nullopt;
  ParallelSources sources = found;
  hash_all(sources);
  const std::filesystem::path meta = cache / folder_of(identity(config, sources)) / "meta.json";
  if (!std::filesystem::exists(meta, ignored)) return std::nullopt;
  try {
    return report_from_json(Json::parse(read_file(meta.string())).at("report")).train_tokens;
  } catch (const Json::exception&) {  // damaged file: open_parallel will report it
    return std::nullopt;
  }
}

Dataset open_parallel(const ParallelConfig& config, const ParallelSources& found) {
  ParallelSources sources = found;
  hash_all(sources);
  const Json id = identity(config, sources);
  const std::string directory =
      build_once(cache_directory(config.cache_dir), folder_of(id),
                 [&](const std::string& temporary) { build(config, sources, id, temporary); });
  Dataset dataset = load(config, sources, directory);
  dataset.hash = hash_text(id.dump() + mix_text(config.mix));
  dataset.source_note = sources.corpus
                            ? str(sources.corpus->name, ": ", sources.corpus->what, "; ", sources.corpus->licence)
                            : str(sources.source.language, " to ", sources.target.language, ", files of the recipe");
  return dataset;
}

}  // namespace lmx::app
