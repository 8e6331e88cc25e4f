// lmx translate, lmx score
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "app/inference/evaluate_run.h"
#include "app/pairs/parallel_text.h"
#include "app/translation/search.h"
#include "app/translation/translate.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "recipe/recipe.h"

namespace lmx::app::cli {
namespace {

constexpr const char* kWhich = "last, best, a step, or a file or folder of parameters";

struct TranslateCommand {
  PluginDirectories directories;
  std::string run, input = "-", output = "-", penalty = "fairseq:0.6", max_length = "1,50";
  TranslateOptions options;
  bool stats = false, json = false;
};

// Reads a,b for at most a x + b tokens: "1,50".
void read_max_length(const std::string& text, SearchOptions& search) {
  const size_t comma = text.find(',');
  const auto factor = parse_double(text.substr(0, comma));
  const auto offset = comma == std::string::npos ? std::nullopt : parse_double(text.substr(comma + 1));
  if (!factor || !offset)
    throw UserError(
        str("[translate] the greatest length is written a,b for a x + b tokens, as 1,50; got '", text, "'"));
  search.max_factor = *factor;
  search.max_offset = *offset;
}

void translate(TranslateCommand o) {
  read_length_penalty(o.penalty, o.options.search);
  read_max_length(o.max_length, o.options.search);
  o.directories.load();
  const TranslatedFile done =
      translate_file(o.run, o.options, o.input, o.output, o.json ? translations_as_json : TranslationWriter());
  if (!o.stats) return;
  const double seconds = std::max(done.seconds, 1e-9);
  const std::string line =
      format("%lld sentences, %lld tokens in %.3f s: %.1f tokens/s, %.2f sentences/s\n",
             static_cast<long long>(done.lines), static_cast<long long>(done.tokens), done.seconds,
             static_cast<double>(done.tokens) / seconds, static_cast<double>(done.lines) / seconds);
  std::cerr << line;
}

struct ScoreCommand {
  PluginDirectories directories;
  std::string run, source, target, output = "-";
  std::vector<std::string> tsv;
  std::vector<int64_t> columns{1, 2};
  int64_t max_length = 0;  // 0: 1,000 tokens for pairs, 20,000 for lines
  ScorePairsOptions options;
};

// Scores every line separately under a language model.
void score_text(const ScoreCommand& o) {
  ScoreLinesOptions options{o.options.checkpoint, o.options.batch};
  options.json = o.options.json;
  options.device = o.options.device;
  if (o.max_length > 0) options.max_length = o.max_length;
  const LineScores s = score_lines(o.run, options, o.source, o.output);
  if (s.tokens == 0) {
    log_warn(str("[score] no token was scored of ", s.lines + s.too_long, " lines"));
    return;
  }
  const double mean = s.nats / static_cast<double>(s.tokens);
  const std::string line =
      format("%lld lines, %lld %ss (%lld unknown): log-likelihood %.6f nats, nll_nat %.6f, ppl %.2f\n",
             static_cast<long long>(s.lines), static_cast<long long>(s.tokens), s.unit.c_str(),
             static_cast<long long>(s.unknown), -s.nats, mean, std::exp(mean));
  std::cerr << line;
}

void score(Command command, ScoreCommand o) {
  const bool two = !o.source.empty();
  if (two != o.tsv.empty())
    throw UserError(
        "[score] name SRC and TGT, a file of each side; or --tsv and files with a pair a line; or, of a "
        "language model, one file of text");
  if (two) refuse_given(command, {"--columns"}, "without --tsv");
  o.directories.load();
  if (two && o.target.empty()) return score_text(o);
  if (o.max_length > 0) o.options.max_length = o.max_length;
  if (two) {
    score_files(o.run, o.options, o.source, o.target, o.output);
  } else {
    score_pairs(o.run, o.options, {.tsv = o.tsv, .columns = {o.columns[0], o.columns[1]}}, o.output);
  }
}

void add_search(Command command, TranslateCommand& o) {
  command.add_option("--beam K", o.options.search.beam, "hypotheses kept at each length; 1: greedy").show_default();
  command
      .add_option("--length-penalty KIND", o.penalty, "fairseq:A (l^A), wu:A (((5 + l) / 6)^A) or none; l counts </s>")
      .show_default();
  command
      .add_option("--n-best N", o.options.n_best,
                  "translations of each line, with scores: line ||| text ||| ... ||| score")
      .show_default();
  command.add_option("--max-length A,B", o.max_length, "a,b: at most a x + b tokens for x of the source")
      .show_default();
  command.add_option("--min-length N", o.options.search.min_length, "at least that many tokens").show_default();
}

}  // namespace

void add_translate(Command app) {
  const Command command = app.add_subcommand("translate", "translate text, line by line, with a run's model");
  set_examples(
      command,
      {{"lmx translate runs/ott_wmt/2026-05-01_101500 < news.en > news.de", "its last checkpoint, beam 4"},
       {"lmx translate runs/ott_wmt/2026-05-01_101500 --checkpoint average.safetensors --input news.en.gz",
        "the average that `lmx average` wrote"},
       {"echo 'A dog runs.' | lmx translate runs/ott_wmt/2026-05-01_101500 --n-best 4", "four of them, with scores"}});
  const auto o = std::make_shared<TranslateCommand>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("--checkpoint WHICH", o->options.checkpoint, kWhich).show_default();
  add_search(command, *o);
  command
      .add_option("--replace-unknown HOW", o->options.replace_unknown,
                  "words outside the vocabulary: drop (never written), keep (<unk>), copy (from the source)")
      .show_default();
  command.add_option("--batch N", o->options.batch, "sentences of a batch").show_default();
  command.add_option("--max-source N", o->options.max_source, "tokens; longer lines are translated in pieces")
      .show_default();
  command.add_option("--input FILE", o->input, "-: standard input; .gz and .zst are read too").show_default();
  command.add_option("--output FILE", o->output, "-: standard output").output_file().show_default();
  command.add_flag("--tokenized", o->options.tokenized,
                   "write words as the preparation has them, not detokenized: what multi-bleu takes");
  command.add_flag("--stats", o->stats,
                   "print sentences, tokens written (</s> counted) and seconds to stderr; loading is not counted");
  add_json(command, o->json);
  add_device(command, o->options.device);
  o->directories.add_to(command);
  command.callback([o] { translate(*o); });
}

void add_score(Command app) {
  const Command command = app.add_subcommand("score", "likelihoods of given translations or of lines of text");
  set_examples(command, {{"lmx score runs/ott_wmt/2026-05-01_101500 crawl.en crawl.de > crawl.tsv",
                          "mean and summed log-likelihood (nats) and tokens of each pair"},
                         {"lmx score runs/ott_wmt/2026-05-01_101500 --tsv clean.tsv.gz > scores.txt",
                          "pairs in columns, in the format of lmx data filter and lmx data top"},
                         {"lmx score runs/quickstart/2026-05-01_101500 lines.txt > scores.txt",
                          "each line of a text under a language model; totals and perplexity to stderr"},
                         {"paste crawl.tsv crawl.en crawl.de | sort -t$'\\t' -k1,1gr | head -n 1000000",
                          "the million most likely pairs"}});
  const auto o = std::make_shared<ScoreCommand>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("SRC", o->source, "source sentences, one a line; of a language model the text; -: standard input");
  command.add_option("TGT", o->target, "their translations");
  command
      .add_option("--tsv FILE", o->tsv,
                  "instead of both: a file or glob with a pair a line, also .gz and .zst; may be repeated")
      .repeatable()
      .texts();
  command.add_option("--columns N", o->columns, "columns of TSV files that contain source and target (1 2)")
      .takes(2)
      .positive();
  command.add_option("--checkpoint WHICH", o->options.checkpoint, kWhich).show_default();
  command.add_option("--batch N", o->options.batch, "sentences of a batch").show_default();
  command
      .add_option("--max-length N", o->max_length,
                  "tokens; longer lines, or pairs with a longer side, get -inf (pairs 1000, lines 20000)")
      .positive();
  command.add_option("--output FILE", o->output, "-: standard output").output_file().show_default();
  add_json(command, o->options.json);
  add_device(command, o->options.device);
  o->directories.add_to(command);
  command.callback([command, o] { score(command, *o); });
}

}  // namespace lmx::app::cli
