// lmx data filter | top, and the statistics of parallel text.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>

#include "app/pairs/parallel_text.h"
#include "app/print/terminal.h"
#include "cli/commands.h"
#include "data/dataset.h"
#include "lmx/data.h"
#include "lmx/error.h"

namespace lmx::app::cli {
namespace {

struct PairOptions {
  PairTextFiles in;
  PairTextOutput out;
  std::vector<int64_t> columns{1, 2};
  FilterRules rules;
  TopOptions top;
  int threads = 0;
  bool keep_copies = false;
  void add_files(Command command) {
    command.add_option("--source FILE", in.source, "source files, directories or globs, also .gz and .zst").texts();
    command
        .add_option("--target FILE", in.target,
                    "the same number of target files; line i translates line i of the source")
        .texts();
    command.add_option("--tsv FILE", in.tsv, "instead of both: files with a pair a line").texts();
    command.add_option("--columns N", columns, "columns of TSV files that contain source and target (1 2)")
        .takes(2)
        .positive();
    command.add_option("--out-source FILE", out.source, "the file to write; .gz is compressed").output_file(".gz");
    command.add_option("--out-target FILE", out.target, "its other side").output_file(".gz");
    command.add_option("--out-tsv FILE", out.tsv, "instead of both: a file with a pair a line").output_file(".gz");
  }
  const PairTextFiles& files() {
    in.columns = {columns[0], columns[1]};
    return in;
  }
};

std::string percent(int64_t part, int64_t whole) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2)
      << 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  return out.str();
}

void filter(PairOptions& options) {
  options.rules.drop_copies = !options.keep_copies;
  const FilterCounts counts = filter_pairs(options.files(), options.rules, options.out, options.threads);
  std::vector<std::vector<std::string>> rows{{"RULE", "DROPPED", "%", "BREAKING IT"}};
  for (int rule = 0; rule < FilterCounts::kRules; ++rule) {
    const auto r = static_cast<size_t>(rule);
    rows.push_back({rule_name(static_cast<FilterCounts::Rule>(rule)), std::to_string(counts.dropped[r]),
                    percent(counts.dropped[r], counts.read), std::to_string(counts.breaking[r])});
  }
  std::cout << table(rows) << "kept " << counts.kept << " of " << counts.read << " pairs ("
            << percent(counts.kept, counts.read) << " %)\n";
}

void top(PairOptions& options) {
  const TopCounts counts = keep_best_pairs(options.files(), options.top, options.out);
  std::cout << "kept " << counts.kept << " of " << counts.read << " pairs, scores from " << counts.threshold << "\n";
  if (counts.unscored > 0)
    std::cout << counts.unscored << " pairs have no score (-inf), below every other; " << counts.kept_unscored
              << " of them kept\n";
}

// Returns the number of sentences, the sum and the mean of their lengths, and the lengths at these quantiles.
std::vector<std::string> length_row(const std::string& name, std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  int64_t sum = 0;
  for (const int64_t n : lengths) sum += n;
  const auto at = [&](double share) {
    return std::to_string(lengths[static_cast<size_t>(share * static_cast<double>(lengths.size() - 1))]);
  };
  std::ostringstream mean;
  mean << std::fixed << std::setprecision(2) << static_cast<double>(sum) / static_cast<double>(lengths.size());
  return {name, std::to_string(lengths.size()), std::to_string(sum), mean.str(), at(0.5), at(0.9), at(0.99), at(1)};
}

}  // namespace

void print_pair_statistics(const Dataset& dataset) {
  std::vector<std::vector<std::string>> rows{
      {"SIDE", "SENTENCES", "SUBWORDS", "MEAN", "50 %", "90 %", "99 %", "LONGEST"}};
  const std::pair<const char*, const PairArray*> splits[] = {
      {"train", &dataset.train_pairs}, {"valid", &dataset.valid_pairs}, {"test", &dataset.test_pairs}};
  for (const auto& [name, pairs] : splits) {
    if (pairs->size() == 0) continue;
    std::vector<int64_t> source, target;
    for (int64_t i = 0; i < pairs->size(); ++i) {
      source.push_back(static_cast<int64_t>(pairs->source(i).size()));
      target.push_back(static_cast<int64_t>(pairs->target(i).size()));
    }
    rows.push_back(length_row(str(name, " ", dataset.codecs.source->language()), std::move(source)));
    rows.push_back(length_row(str(name, " ", dataset.codecs.target->language()), std::move(target)));
  }
  std::cout << dataset.source_note << "\n"
            << dataset.report << "\nsubwords of a sentence, </s> among them:\n"
            << table(rows);
}

void add_pair_commands(Command group) {
  const auto options = std::make_shared<PairOptions>();
  Command command =
      group.add_subcommand("filter", "drop pairs that are no translations: lengths, ratio of lengths, copies");
  set_examples(
      command,
      {{"lmx data filter --source crawl.en.gz --target crawl.de.gz --out-source clean.en --out-target clean.de",
        "the rules of Ott et al. 2018, each counted"},
       {"lmx data filter --tsv 'part-*.tsv.gz' --out-tsv clean.tsv.gz --max-ratio 2", "pairs in columns"}});
  options->add_files(command);
  command.add_option("--max-ratio X", options->rules.max_ratio,
                     "longer side / shorter side, in words (1.5); 0: no limit");
  command.add_option("--max-words N", options->rules.max_words, "maximum of words on either side (250); 0: no limit")
      .not_negative();
  command.add_flag("--keep-copies", options->keep_copies, "keep pairs with equal sides");
  command.add_flag("--drop-invalid", options->rules.drop_invalid,
                   "drop text that is not UTF-8 instead of stopping at it");
  command.add_option("--threads N", options->threads, "0: all cores").integer_in(0, 1024);
  command.callback([options] { filter(*options); });

  const auto best = std::make_shared<PairOptions>();
  command = group.add_subcommand("top", "keep the pairs with the highest scores, in their order, in bounded memory");
  set_examples(command, {{"lmx data top --k 140000000 --scores scores.txt --tsv clean.tsv.gz --out-tsv best.tsv.gz",
                          "a score a line, as lmx score RUN --tsv clean.tsv.gz writes them"}});
  best->add_files(command);
  command.add_option("--k N", best->top.keep, "pairs to keep").required().positive();
  command.add_option("--scores FILE", best->top.scores, "a file with one line for each pair").required();
  command.add_option("--score-column N", best->top.score_column, "column of --scores that contains the score (1)")
      .positive();
  command.callback([best] { top(*best); });
}

}  // namespace lmx::app::cli
