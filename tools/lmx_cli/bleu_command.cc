// lmx bleu
#include <algorithm>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "lmx/bleu.h"
#include "lmx/error.h"

namespace lmx_cli {
namespace {

struct Options {
  std::vector<std::string> references, metrics{"bleu"};
  std::string hypothesis = "-";
  lmx::BleuOptions bleu;
  double smooth_value = -1;
  bool score_only = false;
};

void print(const std::string& name, const std::string& signature, double score, const std::string& text, bool only) {
  if (only) {
    std::printf("%.2f\n", score);
  } else {
    std::printf("%s|%s = %s\n", name.c_str(), signature.c_str(), text.c_str());
  }
}

void score(const std::string& metric, const lmx::Lines& hypothesis, const std::vector<lmx::Lines>& references,
           const Options& o) {
  if (metric == "bleu") {
    const lmx::BleuScore s = lmx::bleu(hypothesis, references, o.bleu);
    print("BLEU", lmx::bleu_signature(o.bleu, references.size()), s.score, lmx::bleu_text(s), o.score_only);
  } else if (metric == "multi-bleu") {
    const auto options = lmx::multi_bleu_options(o.bleu.lower_case, o.bleu.split_compounds);
    const lmx::BleuScore s = lmx::bleu(hypothesis, references, options);
    if (o.score_only) return print("", "", s.score, "", true);
    std::printf("%s\n", lmx::multi_bleu_text(s).c_str());
  } else {
    lmx::ChrfOptions options;
    options.word_order = metric == "chrf++" ? 2 : 0;
    options.lower_case = o.bleu.lower_case;
    const double s = lmx::chrf(hypothesis, references, options);
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", s);
    print(lmx::chrf_name(options), lmx::chrf_signature(options, references.size()), s, text, o.score_only);
  }
}

void run(Options o) {
  if (o.smooth_value >= 0) o.bleu.smooth_value = o.smooth_value;
  const std::vector<std::string> known{"bleu", "multi-bleu", "chrf", "chrf++"};
  for (const std::string& metric : o.metrics)
    if (std::find(known.begin(), known.end(), metric) == known.end())
      throw lmx::UserError(lmx::str("[bleu] no metric '", metric, "'", lmx::did_you_mean(metric, known),
                                    "; there are bleu, multi-bleu, chrf, chrf++"));
  std::vector<lmx::Lines> references;
  for (const std::string& path : o.references) references.push_back(lmx::read_lines(path));
  const lmx::Lines hypothesis = lmx::read_lines(o.hypothesis);
  for (const std::string& metric : o.metrics) score(metric, hypothesis, references, o);
}

}  // namespace

void add_bleu(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bleu", "score translations against references: BLEU and chrF");
  set_examples(*command, {{"lmx bleu test.de < translated.de", "sacreBLEU, tokenizer 13a, with its signature"},
                          {"lmx bleu a.zh b.zh --tokenize zh < translated.zh", "two references, Chinese"},
                          {"lmx bleu tok.de --metric multi-bleu --split-compounds < translated.tok.de",
                           "multi-bleu of tokenized text, hyphens split (Ott et al. 2018)"},
                          {"lmx bleu test.de --metric chrf,chrf++ < translated.de", "character n-grams"}});
  const auto o = std::make_shared<Options>();
  command->add_option("REF", o->references, "reference translations, a sentence a line; several: several references")
      ->required()
      ->type_name("");
  command->add_option("--hypothesis", o->hypothesis, "what to score; -: standard input")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--metric", o->metrics, "bleu, multi-bleu, chrf, chrf++ (',' between them)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME");
  command->add_option("--tokenize", o->bleu.tokenizer, "of bleu: 13a, intl, char, zh, none")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--smooth", o->bleu.smoothing, "of bleu: exp, floor, add-k, none")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--smooth-value", o->smooth_value, "of floor (0.1) and add-k (1)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("X");
  command->add_flag("--lower-case", o->bleu.lower_case, "compare without regard to case");
  command->add_flag("--split-compounds", o->bleu.split_compounds, "left-right counts as left ##AT##-##AT## right");
  command->add_flag("--score-only", o->score_only, "print the number alone");
  command->callback([o] { run(*o); });
}

}  // namespace lmx_cli
