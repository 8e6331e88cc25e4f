// lmx data list | fetch | prepare | stats (filter and top: pairs_command.cc)
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "app/compose/compose.h"
#include "app/corpora/corpora.h"
#include "app/corpora/fetch.h"
#include "app/corpora/zipf.h"
#include "app/datasets/open.h"
#include "app/print/terminal.h"
#include "app/report/chart.h"
#include "app/run/outputs.h"
#include "app/run/shipped.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "data/dataset.h"
#include "lmx/data.h"
#include "runfiles/checkpoint.h"

namespace lmx::app::cli {
namespace {

void list_json() {
  Json all = Json::array();
  for (const Corpus& corpus : corpora()) {
    const CorpusPlace place = locate(corpus);
    const bool here = place.problem.empty();
    Json json{{"name", corpus.name},     {"here", here},
              {"what", corpus.what},     {"licence", corpus.licence},
              {"source", corpus.source}, {"searched", place.searched}};
    if (here) json["directory"] = place.directory;
    if (!here) json["get"] = corpus.get;
    if (!corpus.sides.empty()) json["languages"] = {corpus.sides[0].language, corpus.sides[1].language};
    if (!corpus.archive_sha256.empty()) json["archive_sha256"] = corpus.archive_sha256;
    all.push_back(std::move(json));
  }
  print_json({{"corpora", all}});
}

// Describes a corpus in lines of at most `width` columns (0: no limit).
std::string details_of(const Corpus& corpus, bool here, size_t width) {
  constexpr size_t kColumn = 14;  // where the values begin
  std::string text = "\n";
  for (const std::string& line : wrapped(corpus.name + ": " + corpus.what, width)) text += line + "\n";
  const auto add = [&](const char* what, const std::string& value) {
    text += two_columns(what, value, kColumn, width);
  };
  add("licence", corpus.licence);
  add("source", corpus.source);
  if (!corpus.sides.empty()) add("parallel", corpus.sides[0].language + " and " + corpus.sides[1].language);
  if (!here) add("to get it:", corpus.get);
  if (!corpus.archive_sha256.empty()) add("SHA-256 of the download:", corpus.archive_sha256);
  return text;
}

void list() {
  std::string details;
  std::vector<std::vector<std::string>> rows{{"CORPUS", "HERE", "WHERE"}};
  for (const Corpus& corpus : corpora()) {
    const CorpusPlace place = locate(corpus);
    const bool here = place.problem.empty();
    rows.push_back({corpus.name, here ? "yes" : "no", here ? place.directory : "looked in " + place.searched.front()});
    details += details_of(corpus, here, terminal_width());
  }
  std::cout << table(rows) << details;
}

struct DataFlags {
  std::string recipe, corpus, plot, records;
  std::vector<std::string> overrides, files;
  ZipfOptions zipf;
};

Node data_of(const DataFlags& options) {
  ComposeOptions compose_options;
  compose_options.overrides = options.overrides;
  const Node recipe = compose(options.recipe, with_plugins(compose_options));
  const Node* data = recipe.find("data");
  if (!data) throw UserError(str(options.recipe, ": the recipe has no `data:`"));
  return *data;
}

void prepare(const DataFlags& options) {
  const Node data = data_of(options);
  const Dataset dataset = open_dataset(data);
  check_all(data);
  std::cout << dataset.source_note << "\n" << dataset.report;
  if (dataset.train_pairs.size() > 0)
    std::cout << "pairs: train " << dataset.train_pairs.size() << ", valid " << dataset.valid_pairs.size() << ", test "
              << dataset.test_pairs.size() << "\n";
  std::cout << (dataset.train_pairs.size() > 0 ? "target tokens: train " : "tokens: train ") << dataset.train.size()
            << ", valid " << dataset.valid.size() << ", test " << dataset.test.size() << "\n";
  if (!dataset.directory.empty()) std::cout << "directory: " << dataset.directory << "\n";
}

// Returns the data that stats counts: a recipe's data, a corpus of the registry, or files. Exactly one of them must be
// given.
Node stats_data(const DataFlags& options) {
  if (!options.recipe.empty() + !options.corpus.empty() + !options.files.empty() != 1) {
    throw UserError("[data] name one of: a recipe, --corpus NAME, --files PATH...");
  }
  if (!options.recipe.empty()) return data_of(options);
  const Mark mark{"command line", 0, 0};
  Node data = Node::map(mark);
  data.set("name", Node::string("text", mark));
  data.set("valid_fraction", Node::scalar("0", mark));
  if (!options.corpus.empty()) data.set("corpus", Node::string(options.corpus, mark));
  std::vector<Node> files;
  for (const std::string& file : options.files) files.push_back(Node::string(file, mark));
  if (!files.empty()) data.set("files", Node::list(std::move(files), mark));
  return data;
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

// Plots the points, the fit, and the paper's law through the first point.
std::string plot_of(const std::vector<TypesAtTokens>& points, const PowerLaw& fit, const std::string& title) {
  Chart chart{title, "tokens N", "unique words U", true, true, {}, {}};
  ChartSeries counted{"counted", {}, true, false, false}, fitted{"", {}, false, true, false},
      paper{"N^0.64 (Patwary et al. 2018) through the first point", {}, false, true, true};
  fitted.label = "fit U = " + fixed(fit.factor, 2) + " N^" + fixed(fit.exponent, 3);
  for (const TypesAtTokens& p : points) {
    const auto n = static_cast<double>(p.tokens);
    counted.points.push_back({n, p.types, p.spread, str("N ", p.tokens, ", U ", p.types)});
    fitted.points.push_back({n, fit.at(n), 0, ""});
    paper.points.push_back({n, points[0].types * std::pow(n / static_cast<double>(points[0].tokens), 0.64), 0, ""});
  }
  chart.series = {counted, fitted, paper};
  return svg(chart);
}

// Returns the same numbers as records: split `types`, one per N, and split `fit`.
std::string records_of(const Dataset& dataset, int64_t types, const std::vector<TypesAtTokens>& points,
                       const PowerLaw& fit) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (const TypesAtTokens& p : points)
    text += Json{{"step", 0},        {"split", "types"},   {"tokens", p.tokens},
                 {"types", p.types}, {"spread", p.spread}, {"tokens_per_type", static_cast<double>(p.tokens) / p.types}}
                .dump() +
            "\n";
  return text +
         Json{{"step", 0},
              {"split", "fit"},
              {"exponent", fit.exponent},
              {"factor", fit.factor},
              {"rms", fit.rms},
              {"tokens", dataset.train.size()},
              {"types", types}}
             .dump() +
         "\n";
}

struct SplitSize {
  int64_t documents = 0, bytes = 0;  // 0: unknown
};

// Counts files of ids, which have no lengths of documents: their separators, and the bytes of their tokens.
SplitSize size_of_ids(const Dataset& dataset, const TokenArray& tokens) {
  constexpr int64_t kBlock = 1 << 16;
  std::vector<int32_t> block(kBlock);
  SplitSize size;
  double bytes = 0;  // NaN: of an unknown token
  for (int64_t at = 0; at < tokens.size(); at += kBlock) {
    const std::span<int32_t> ids(block.data(), static_cast<size_t>(std::min(kBlock, tokens.size() - at)));
    tokens.copy(at, ids);
    size.documents += std::count(ids.begin(), ids.end(), dataset.separator);
    if (dataset.token_bytes.empty()) continue;
    for (const int32_t id : ids) bytes += dataset.token_bytes[static_cast<size_t>(id)];
  }
  if (!std::isnan(bytes)) size.bytes = std::llround(bytes);
  return size;
}

// Documents, tokens and bytes of each split.
void print_subword_statistics(const Dataset& dataset) {
  std::vector<std::vector<std::string>> rows{
      {"SPLIT", "DOCUMENTS", "TOKENS", "BYTES", "BYTES / TOKEN", "TOKENS / DOCUMENT"}};
  const auto row = [&](const char* split, const TextStrings& documents, const TokenArray& tokens, int64_t bytes) {
    if (tokens.size() == 0) return;
    const auto n = static_cast<double>(tokens.size());
    const SplitSize size = documents.size() > 0 ? SplitSize{documents.size(), bytes} : size_of_ids(dataset, tokens);
    const auto known = [](int64_t number, const std::string& text) { return number > 0 ? text : "-"; };
    rows.push_back({split, known(size.documents, std::to_string(size.documents)), std::to_string(tokens.size()),
                    known(size.bytes, std::to_string(size.bytes)),
                    known(size.bytes, fixed(static_cast<double>(size.bytes) / n, 3)),
                    known(size.documents, fixed(n / static_cast<double>(size.documents), 1))});
  };
  row("train", dataset.train_strings, dataset.train, dataset.train_bytes);
  row("valid", dataset.valid_strings, dataset.valid, dataset.valid_bytes);
  row("test", dataset.test_strings, dataset.test, dataset.test_bytes);
  std::cout << dataset.source_note << "\n"
            << dataset.vocabulary.size() << " subwords"
            << (dataset.types > 0 ? str(", ", dataset.types, " of them in the training split") : "") << "\n\n"
            << table(rows);
}

void stats(const DataFlags& options) {
  const Node data = stats_data(options);
  require_no_loss("--plot", options.plot, data, "data");
  require_no_loss("--records", options.records, data, "data");
  const Node *kind = data.find("name"), *tokens = data.find("tokens");
  if (kind && kind->text == "parallel") return print_pair_statistics(open_dataset(data));
  if ((tokens && tokens->text == "subwords") || (kind && kind->text == "tokens"))
    return print_subword_statistics(open_dataset(data));
  const Dataset dataset = open_all_types(data);
  const std::vector<TypesAtTokens> points = count_types(dataset.train, options.zipf);
  const PowerLaw fit = fit_power_law(points);
  const int64_t types = types_in(dataset.train.tokens());  // of this text; the vocabulary may be that of a larger text
  std::cout << dataset.source_note << "\n"
            << dataset.train.size() << " tokens, " << types << " types; sequences of " << options.zipf.sequence_length
            << ", mean of " << options.zipf.draws << " draws\n\n";
  std::vector<std::vector<std::string>> rows{{"N TOKENS", "U UNIQUE", "SPREAD", "N / U", "FIT", "RESIDUAL %"}};
  for (size_t i = 0; i < points.size(); ++i) {
    const auto n = static_cast<double>(points[i].tokens);
    rows.push_back({std::to_string(points[i].tokens), fixed(points[i].types, 1), fixed(points[i].spread, 1),
                    fixed(n / points[i].types, 2), fixed(fit.at(n), 1), fixed(100 * std::expm1(fit.residuals[i]), 2)});
  }
  std::cout << table(rows) << "\nU = " << fixed(fit.factor, 3) << " N^" << fixed(fit.exponent, 3)
            << "   (Patwary et al. 2018: N^0.64)   rms residual " << fixed(100 * fit.rms, 2) << " %\n";
  if (!options.records.empty()) write_file(options.records, records_of(dataset, types, points, fit));
  const std::string what = options.corpus.empty() ? dataset.source_note : options.corpus;
  write_file(options.plot, plot_of(points, fit, "Unique words against tokens: " + what));
  std::cout << "plot: " << options.plot << "\n";
}

void add_list(Command group) {
  const Command command = group.add_subcommand(
      "list", "the corpora of the registry: available or missing, their folders, and how to get them");
  set_examples(command, {{"lmx data list", "which corpora are below LMX_DATA_DIR"}});
  const auto json = std::make_shared<bool>(false);
  add_json(command, *json);
  command.callback([json] { *json ? list_json() : list(); });
}

void fetch(const std::string& corpus, const FetchOptions& options) {
  const FetchReport report = fetch_corpus(corpus, options);
  for (const std::string& line : report.files) std::cout << line << "\n";
  std::cout << "directory: " << report.directory << "\n";
  if (!report.missing.empty()) std::cout << "by hand: " << report.missing << "\n";
}

void add_fetch(Command group) {
  const Command command = group.add_subcommand("fetch", "download a corpus of the registry, check and unpack it");
  set_examples(command, {{"lmx data fetch multi30k", "into its folder below LMX_DATA_DIR"},
                         {"lmx data fetch wmt16_en_de --keep-archives",
                          "continues an interrupted download; keeps the archives"}});
  const auto corpus = std::make_shared<std::string>();
  const auto options = std::make_shared<FetchOptions>();
  command.add_option("NAME", *corpus, "a corpus of `lmx data list`").required();
  command.add_option("--directory DIR", options->directory, "the folder to fill, instead of the corpus's own").writes();
  command.add_flag("--keep-archives", options->keep_archives, "keep the archives after unpacking");
  command.callback([corpus, options] { fetch(*corpus, *options); });
}

void add_prepare(Command group) {
  const auto options = std::make_shared<DataFlags>();
  const Command command = group.add_subcommand(
      "prepare", "build a recipe's vocabulary and token files, or check those of other programs, and report on them");
  set_examples(
      command,
      {{"lmx data prepare recipes/word_lm_gutenberg.yaml", "types, coverage and out-of-vocabulary words"},
       {"lmx data prepare recipes/word_lm_gutenberg.yaml data.vocab_size=10000", "with a smaller vocabulary"}});
  command.add_option("RECIPE", options->recipe, "a recipe file").recipe().required();
  command.add_option("OVERRIDES", options->overrides, "key=value");
  command.callback([options] { prepare(*options); });
}

void add_stats(Command group) {
  const auto options = std::make_shared<DataFlags>();
  options->plot = "zipf.svg";
  const Command command = group.add_subcommand(
      "stats",
      "count unique words against tokens and fit U = a N^b; of parallel text, lengths; of subwords, "
      "documents and bytes per token");
  set_examples(command, {{"lmx data stats --corpus gutenberg", "a table, the fit and a plot in zipf.svg"},
                         {"lmx data stats recipes/quickstart.yaml", "the data of a recipe"},
                         {"lmx data stats --files 'texts/*.txt.gz' --plot mine.svg", "any text"}});
  command.add_option("RECIPE", options->recipe, "a recipe file; its data with every word counted").recipe();
  command.add_option("OVERRIDES", options->overrides, "key=value");
  command.add_option("--corpus NAME", options->corpus, "a corpus of the registry");
  command.add_option("--files PATH", options->files, "text files, directories or globs");
  command.add_option("--sequence-length N", options->zipf.sequence_length, "words of a sampled sequence (20)")
      .positive();
  command.add_option("--max-tokens N", options->zipf.last, "the largest N (2621440), at most half of the text")
      .positive();
  command.add_option("--draws N", options->zipf.draws, "number of draws; each U is their mean (3)").positive();
  command.add_option("--seed N", options->zipf.seed, "seed of the draws (1)");
  command.add_option("--plot FILE", options->plot, "the SVG file to write").show_default().output_file();
  command.add_option("--records FILE", options->records, "also write the numbers as JSON lines").output_file();
  command.callback([options] { stats(*options); });
}

}  // namespace

void add_data(Command app) {
  const Command group =
      app.add_subcommand("data", "corpora: list them, prepare them, count their words; filter parallel text");
  set_examples(group, {{"lmx data list", "the corpora of the registry"},
                       {"lmx data prepare recipes/word_lm_gutenberg.yaml", "vocabulary and token files of a recipe"},
                       {"lmx data stats --corpus gutenberg", "unique words against tokens, U = a N^b"}});
  add_list(group);
  add_fetch(group);
  add_prepare(group);
  add_stats(group);
  add_pair_commands(group);
}

}  // namespace lmx::app::cli
