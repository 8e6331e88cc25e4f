#include "app/prepare/text.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/corpora/corpora.h"
#include "app/prepare/cache.h"
#include "app/prepare/prepare.h"
#include "app/text/subword_tokenizer.h"
#include "app/text/subwords.h"
#include "base/files.h"
#include "base/output_file.h"
#include "config/messages.h"
#include "data/dataset.h"
#include "data/tokenizer_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLittleText = 8 << 20;  // bytes on disk that a dry run prepares
constexpr int kFormat = 1;  // version of the prepared data; increase it when the tokenizer's rules or the files change

PrepareSettings settings_of(const TextConfig& config, const TextSources& sources, bool all_types) {
  PrepareSettings s;
  s.rules = {config.lower_case, sources.whitespace_only, unit_of_tokens(config.tokens)};
  s.puri = config.preprocess == "puri";
  s.drop_repeated = config.deduplicate;
  s.vocab_size = all_types ? 0 : config.vocab_size;
  s.end_of_line = config.end_of_line && !all_types;
  auto has = [&](Split split) {
    return std::any_of(sources.files.begin(), sources.files.end(),
                       [&](const SourceFile& f) { return f.split == split; });
  };
  s.valid_fraction = has(Split::valid) ? 0 : config.valid_fraction;
  s.test_fraction = has(Split::test) ? 0 : config.test_fraction;
  s.train_fraction = config.train_fraction;
  s.split_seed = static_cast<uint64_t>(config.split_seed);
  s.threads = preparing_threads(config.threads);
  if (s.rules.unit != Unit::subword) return s;
  s.document_token = document_token_of(config);
  s.special_text = config.special_text;
  if (!config.tokenizer_file.empty())
    s.tokenizer = make_tokenizer({read_file(config.tokenizer_file), config.tokenizer_file, false, config.special_text});
  return s;
}

// Everything that the prepared files depend on: not the number of threads and not file locations.
Json identity(const PrepareSettings& s, const std::vector<SourceFile>& files) {
  Json id = {{"format", kFormat},
             {"lower_case", s.rules.lower_case},
             {"whitespace_only", s.rules.whitespace_only},
             {"vocab_size", s.vocab_size},
             {"end_of_line", s.end_of_line},
             {"valid_fraction", s.valid_fraction},
             {"test_fraction", s.test_fraction},
             {"split_seed", s.split_seed},
             {"files", Json::array()}};
  for (const SourceFile& f : files) {
    id["files"].push_back(
        {{"xxh3", f.hash}, {"bytes", f.bytes}, {"split", static_cast<int>(f.split)}, {"gz", f.path.ends_with(".gz")}});
    if (f.format == Format::csv) id["files"].back()["column"] = f.column;
    if (f.format == Format::jsonl) id["files"].back()["field"] = f.field;
  }
  // Entries with their default value are left out, so that data prepared before the entries existed stays valid.
  if (s.rules.unit != Unit::word) id["tokens"] = name_of(s.rules.unit);
  if (s.rules.unit == Unit::subword) {
    id["document_token"] = static_cast<int>(s.document_token);
    id["tokenizer"] = s.tokenizer ? hash_text(s.tokenizer->file()) : "trained";
    if (s.special_text != "text") id["special_text"] = s.special_text;
    for (size_t i = 0; i < files.size(); ++i)
      if (files[i].format != Format::csv && files[i].format != Format::jsonl)
        id["files"][i]["document"] = static_cast<int>(files[i].format);
  }
  if (s.puri) id["preprocess"] = "puri";
  if (s.drop_repeated) id["deduplicate"] = true;
  if (s.train_fraction < 1) {
    id["train_fraction"] = s.train_fraction;
    id["vocabulary"] = "of all";
  }
  return id;
}

Json report_to_json(const PrepareReport& r, int64_t vocab_size) {
  Json json = {{"types", r.types},        {"vocab_size", vocab_size},        {"coverage", 1 - r.oov()},
               {"oov", r.oov()},          {"first_lost_word", r.first_lost}, {"first_lost_count", r.first_lost_count},
               {"unit", name_of(r.unit)}, {"repeated", r.repeated},          {"invalid", r.invalid}};
  if (!r.tokenizer.empty()) json["tokenizer"] = r.tokenizer;
  for (size_t s = 0; s < kSplits; ++s) {
    json[kSplitNames[s]] = {{"lines", r.splits[s].lines},
                            {"words", r.splits[s].words},
                            {"unknown", r.splits[s].unknown},
                            {"bytes", r.splits[s].bytes}};
  }
  return json;
}

PrepareReport report_from_json(const Json& json) {
  PrepareReport r;
  r.types = json.at("types");
  r.first_lost = json.at("first_lost_word");
  r.first_lost_count = json.at("first_lost_count");
  r.repeated = json.value("repeated", 0);
  r.invalid = json.value("invalid", 0);
  const std::string unit = json.value("unit", "word");
  r.tokenizer = json.value("tokenizer", "");
  for (const Unit known : {Unit::character, Unit::byte, Unit::subword})
    if (unit == name_of(known)) r.unit = known;
  for (size_t s = 0; s < kSplits; ++s) {
    const Json& split = json.at(kSplitNames[s]);
    r.splits[s] = {split.at("lines"), split.at("words"), split.at("unknown"), split.value("bytes", 0)};
  }
  return r;
}

// A text to prepare, and the name of its preparation in the cache.
struct Preparation {
  TextSources sources;  // hashed
  PrepareSettings settings;
  Json id;
  std::string hash, cache_dir;
  std::string name() const { return "text-" + hash.substr(0, 16); }
};

Preparation preparation_of(const TextConfig& config, const TextSources& found, bool all_types) {
  TextSources sources = found;
  hash_sources(sources.files);
  const PrepareSettings settings = settings_of(config, sources, all_types);
  const Json id = identity(settings, sources.files);
  return {sources, settings, id, hash_text(id.dump()), cache_directory(config.cache_dir)};
}

// Fills `directory` and returns a report of its contents.
std::string build(const TextConfig& config, const Preparation& p, const std::string& directory) {
  const PrepareReport report = prepare(p.sources.files, p.settings, directory);
  check_unchanged(p.sources.files);
  const int64_t vocab_size = p.settings.rules.unit == Unit::byte ? 256
                             : p.settings.vocab_size             ? p.settings.vocab_size
                                                                 : report.types + 2;
  Json meta = {{"identity", p.id},
               {"report", report_to_json(report, vocab_size)},
               {"vocabulary_xxh3", hash_text(read_file(directory + "/vocab.tsv"))},
               {"corpus", config.corpus},
               {"paths", Json::array()}};
  for (const SourceFile& f : p.sources.files) meta["paths"].push_back(f.path);
  // A file name need not be UTF-8; invalid bytes are written as replacement characters.
  write_file(directory + "/meta.json", meta.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  progress_line("");
  return report.text(vocab_size);
}

Dataset load(const std::string& directory, const TextConfig& config) {
  Dataset dataset;
  PrepareReport report;
  int64_t vocab_size = 0;
  try {
    const Json meta = Json::parse(read_file(directory + "/meta.json"));
    report = report_from_json(meta.at("report"));
    vocab_size = meta.at("report").at("vocab_size");
    if (hash_text(read_file(directory + "/vocab.tsv")) != meta.at("vocabulary_xxh3"))
      throw UserError("vocab.tsv has changed");
    dataset.vocabulary = Vocabulary::load(directory + "/vocab.tsv");
  } catch (const std::exception& e) {
    throw UserError(str("[data] prepared data in ", directory, " is damaged (", e.what(),
                        "); delete that directory and it will be ", "prepared again"));
  }
  const bool separated = config.tokens == "subwords" ? config.document_token != "none" : config.end_of_line;
  dataset.separator = separated ? dataset.vocabulary.eos() : -1;
  dataset.train = TokenArray::map(directory + "/train.bin");
  dataset.valid = TokenArray::map(directory + "/valid.bin");
  dataset.test = TokenArray::map(directory + "/test.bin");
  if (report.unit == Unit::subword) {
    const auto tokenizer = load_text_tokenizer(directory, config.special_text);
    dataset.token_bytes = tokenizer->token_bytes();
    dataset.codecs.target = tokenizer;
  }
  if (report.unit != Unit::word) {
    dataset.unit = report.unit == Unit::character ? "char" : name_of(report.unit);
    dataset.train_strings = TextStrings(TokenArray::map(directory + "/train.strings.bin"));
    dataset.valid_strings = TextStrings(TokenArray::map(directory + "/valid.strings.bin"));
    dataset.test_strings = TextStrings(TokenArray::map(directory + "/test.strings.bin"));
  }
  dataset.train_bytes = report.splits[0].bytes;
  dataset.valid_bytes = report.splits[1].bytes;
  dataset.test_bytes = report.splits[2].bytes;
  dataset.directory = directory;
  dataset.types = report.types;
  dataset.oov = report.oov();
  dataset.report = report.text(vocab_size);
  return dataset;
}

// The part of an identity that a preparation's counts depend on. It excludes the settings that only choose among the
// counted words. It also excludes the hashes if `content` is false, because they require reading every file. Returns
// null for JSON that is not an identity.
Json counted_identity(Json id, bool content) {
  try {
    for (const char* key : {"vocab_size", "end_of_line"}) id.erase(key);
    if (content) return id;
    for (Json& file : id.at("files")) file.erase("xxh3");
    return id;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

std::vector<Json> prepared_metas(const std::string& cache_dir) {
  std::vector<Json> metas;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cache_dir, ignored)) {
    const std::filesystem::path path = entry.path() / "meta.json";
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("text-") || name.find(".tmp-") != std::string::npos) continue;
    if (!std::filesystem::exists(path, ignored)) continue;
    Json meta = Json::parse(read_file(path.string()), nullptr, false);
    if (meta.is_object() && meta.contains("identity")) metas.push_back(std::move(meta));
  }
  return metas;
}

// Returns the report of any preparation of this text in the cache.
std::optional<PrepareReport> recorded_report(const PrepareSettings& settings, std::vector<SourceFile> files,
                                             const std::string& cache_dir) {
  std::vector<Json> metas = prepared_metas(cache_dir);
  const auto keep_equal = [&](bool content) {
    const Json wanted = counted_identity(identity(settings, files), content);
    std::erase_if(metas, [&](const Json& meta) { return counted_identity(meta["identity"], content) != wanted; });
  };
  keep_equal(false);
  if (metas.empty()) return std::nullopt;
  hash_sources(files);
  keep_equal(true);
  try {
    if (!metas.empty()) return report_from_json(metas.front().at("report"));
  } catch (const Json::exception&) {  // damaged file: open_text will report it if it is the one to use
  }
  return std::nullopt;
}

}  // namespace

DocumentToken document_token_of(const TextConfig& config) {
  if (config.document_token == "none") return DocumentToken::none;
  return config.document_token == "end" ? DocumentToken::end : DocumentToken::begin;
}

void set_documents(std::vector<SourceFile>& files, const TextConfig& config) {
  for (SourceFile& file : files) {
    if (file.format != Format::lines || config.document == "string") continue;
    file.format = config.document == "file" ? Format::whole : Format::paragraphs;
  }
}

TextSources find_text(const TextConfig& config, const Node& data) {
  const config::Place place{data, "data"};
  if (config.corpus.empty() == config.files.empty()) {
    throw UserError(
        str(place("files"),
            config.corpus.empty()
                ? "needs `corpus` (see `lmx data list`) or `files`"
                : "has both `corpus` and `files`; give one of them (`~data.corpus` removes the corpus of a recipe)"));
  }
  check_entries(config.tokenizer_file, config.vocab_size, place("vocab_size"));
  if (config.valid_fraction + config.test_fraction >= 1) {
    throw UserError(str(place("valid_fraction"), "valid_fraction ", config.valid_fraction, " and test_fraction ",
                        config.test_fraction, " leave nothing to train on"));
  }
  TextSources sources;
  std::string field = config.field;
  std::vector<std::string> patterns[kSplits] = {config.files, config.valid_files, config.test_files};
  if (!config.corpus.empty()) {
    const Corpus& corpus = find_corpus(config.corpus, place("corpus"));
    if (corpus.format == "parallel")
      throw UserError(str(place("corpus"), "corpus '", corpus.name,
                          "' is parallel text (data.name: parallel), not text for a language model"));
    if (field.empty()) field = corpus.field;
    sources.corpus = &corpus;
    sources.directory = directory_of(corpus);
    const std::vector<std::string>* own[kSplits] = {&corpus.train, &corpus.valid, &corpus.test};
    for (size_t s = 0; s < kSplits; ++s) {
      const std::string key = str(kSplitNames[s], "_files");
      if (!patterns[s].empty()) throw UserError(str(place(key), key, " cannot be given beside `corpus`"));
      for (const std::string& pattern : *own[s]) patterns[s].push_back(sources.directory + "/" + pattern);
    }
  }
  sources.whitespace_only = config.tokenizer == "auto" ? sources.corpus && sources.corpus->tokenizer == "whitespace"
                                                       : config.tokenizer == "whitespace";
  for (size_t s = 0; s < kSplits; ++s) {
    auto files = find_sources(patterns[s], s == 0 ? Split::drawn : static_cast<Split>(s), field);
    sources.files.insert(sources.files.end(), files.begin(), files.end());
  }
  check_field(sources.files, field, place("field"));
  if (config.tokens == "subwords") set_documents(sources.files, config);
  return sources;
}

std::optional<TextCounts> recorded_counts(const TextConfig& config, const TextSources& sources) {
  const PrepareSettings settings = settings_of(config, sources, false);
  const std::optional<PrepareReport> report =
      recorded_report(settings, sources.files, cache_directory(config.cache_dir));
  if (!report) return std::nullopt;
  const SplitCounts& train = report->splits[0];
  return TextCounts{report->types, train.words + (settings.end_of_line ? train.lines : 0), settings.rules.unit};
}

std::optional<Dataset> open_little_text(const TextConfig& config, const TextSources& found) {
  int64_t bytes = 0;
  for (const SourceFile& file : found.files) bytes += file.bytes;
  if (bytes > kLittleText) return std::nullopt;
  const Preparation p = preparation_of(config, found, false);
  const std::string prepared = p.cache_dir + "/" + p.name();
  if (std::filesystem::exists(prepared)) return load(prepared, config);
  const TemporaryDirectory directory;
  build(config, p, directory.path());
  return load(directory.path(), config);  // the mapped data stays valid after the folder is removed
}

Dataset open_text(const TextConfig& config, const TextSources& found, bool all_types) {
  const Preparation p = preparation_of(config, found, all_types);
  const TextSources& sources = p.sources;
  const std::string directory = build_once(p.cache_dir, p.name(), [&](const std::string& temporary) {
    verify_checksums(sources.corpus, sources.directory, sources.files, p.cache_dir);
    std::string report = build(config, p, temporary);
    log_info(str("[data] prepared ", temporary.substr(0, temporary.find(".tmp-"))));
    report.pop_back();  // the logger ends the line
    log_info(report);
  });
  Dataset dataset = load(directory, config);
  dataset.hash = p.hash;
  dataset.source_note = sources.corpus
                            ? str(sources.corpus->name, ": ", sources.corpus->what, "; ", sources.corpus->licence)
                            : str(sources.files.size(), " text files");
  return dataset;
}

}  // namespace lmx::app
