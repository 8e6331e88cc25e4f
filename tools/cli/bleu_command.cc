// lmx bleu
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/scores/bleu.h"
#include "app/scores/translation_scores.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app::cli {
namespace {

struct BleuFlags {
  std::vector<std::string> references, metrics{"bleu"};
  std::string hypothesis = "-", baseline, test = "bootstrap";
  BleuOptions bleu;
  TerOptions ter;
  double smooth_value = -1;
  int64_t confidence = 0;  // number of resamples for an interval; 0: none
  int64_t samples = 0;     // of the test; 0: the same as sacreBLEU
  bool score_only = false, sentences = false, json = false;

  BleuOptions bleu_of(const std::string& metric) const {
    return metric == "bleu" ? bleu : multi_bleu_options(bleu.lower_case, bleu.split_compounds);
  }
  bool bootstrap() const { return test == "bootstrap"; }
  int64_t test_samples() const { return samples > 0 ? samples : bootstrap() ? 1'000 : 10'000; }
};

const std::vector<std::string> kMetrics{"bleu", "multi-bleu", "chrf", "chrf++", "ter"};
const std::vector<std::string> kTests{"bootstrap", "randomization"};

std::unique_ptr<CorpusMetric> make_metric(const std::string& name, const BleuFlags& o) {
  if (name == "bleu" || name == "multi-bleu") return make_bleu(o.bleu_of(name));
  if (name == "ter") return make_ter(o.ter);
  ChrfOptions options;
  options.word_order = name == "chrf++" ? 2 : 0;
  options.lower_case = o.bleu.lower_case;
  return make_chrf(options);
}

std::string two_digits(double value) {
  return format("%.2f", value);
}

// Formats like sacreBLEU: "38.20 (μ = 38.21 ± 0.92)".
std::string with_interval(double score, const std::optional<ScoreInterval>& interval) {
  if (!interval) return two_digits(score);
  return two_digits(score) + " (μ = " + two_digits(interval->mean) + " ± " + two_digits(interval->half_width) + ")";
}

// Returns the fields of the signature that describe resampling.
std::string test_fields(const BleuFlags& o) {
  const std::string seed = str("|seed:", kScoreSeed);
  if (!o.baseline.empty()) return str(o.bootstrap() ? "bs:" : "ar:", o.test_samples(), seed);
  return o.confidence > 0 ? str("bs:", o.confidence, seed) : "";
}

// Adds the parts of a BLEU score.
void put_parts(Json& json, const BleuScore& s) {
  Json precisions = Json::array();
  for (const double p : s.precisions) precisions.push_back(json_number(p));
  json["precisions"] = precisions;
  json["brevity_penalty"] = json_number(s.brevity_penalty);
  json["hypothesis_length"] = s.hypothesis_length;
  json["reference_length"] = s.reference_length;
}

Json to_json(const ScoreInterval& interval) {
  return {{"mean", json_number(interval.mean)}, {"half_width", json_number(interval.half_width)}};
}

// One metric for one corpus.
class Scored {
 public:
  Scored(const std::string& name, const BleuFlags& o, const std::vector<Lines>& references)
      : name_(name), o_(o), metric_(make_metric(name, o)), references_(references) {}

  void print_sentences(const Lines& hypothesis) const {
    const SentenceStatistics all = metric_->statistics(hypothesis, references_);
    for (size_t i = 0; i < all.sentences(); ++i) std::printf("%.2f\n", metric_->score(all.of(i)));
  }

  void print(const Lines& hypothesis) const {
    if (name_ == "multi-bleu" && o_.confidence == 0) return print_multi_bleu(hypothesis);
    const SentenceStatistics all = metric_->statistics(hypothesis, references_);
    print_line("", all, interval_of(all));
  }

  // Returns the results of print(), print_sentences() and print_compared() as JSON.
  Json json(const Lines& hypothesis, const Lines& baseline) const {
    const SentenceStatistics ours = metric_->statistics(hypothesis, references_);
    const auto theirs = baseline.empty() ? SentenceStatistics{} : metric_->statistics(baseline, references_);
    const bool compares = !baseline.empty();
    const PairedScore paired = compares ? test_against(theirs, ours) : PairedScore{};
    Json all = json_of(ours, compares ? paired_interval(paired.interval, ours) : interval_of(ours));
    if (metric_->name() == "BLEU") put_parts(all, app::bleu(hypothesis, references_, o_.bleu_of(name_)));
    if (o_.sentences) {
      all["sentences"] = Json::array();
      for (size_t i = 0; i < ours.sentences(); ++i) all["sentences"].push_back(json_number(metric_->score(ours.of(i))));
    }
    if (!compares) return all;
    all["baseline"] = json_of(theirs, paired_interval(paired.baseline_interval, theirs));
    all["p_value"] = json_number(paired.p_value);
    return all;
  }

  void print_compared(const Lines& hypothesis, const Lines& baseline) const {
    const SentenceStatistics ours = metric_->statistics(hypothesis, references_);
    const SentenceStatistics theirs = metric_->statistics(baseline, references_);
    const PairedScore paired = test_against(theirs, ours);
    print_line("", ours, paired_interval(paired.interval, ours));
    print_line("baseline ", theirs, paired_interval(paired.baseline_interval, theirs));
    const double difference = paired.score - metric_->score(theirs.sums());
    std::printf("%s difference = %+.2f (p = %.4f, %s, %lld %s): %s\n", metric_->name().c_str(), difference,
                paired.p_value, o_.bootstrap() ? "paired bootstrap" : "approximate randomisation",
                static_cast<long long>(o_.test_samples()), o_.bootstrap() ? "resamples" : "trials",
                judgement(difference, paired.p_value));
  }

 private:
  const char* judgement(double difference, double p) const {
    if (difference == 0) return "the scores are equal";
    if (p >= 0.05) return "no significant difference at the 5 % level";
    return (difference < 0) == metric_->lower_is_better() ? "significantly better at the 5 % level"
                                                          : "significantly worse at the 5 % level";
  }

  PairedScore test_against(const SentenceStatistics& baseline, const SentenceStatistics& ours) const {
    return o_.bootstrap() ? paired_bootstrap(*metric_, baseline, ours, o_.test_samples())
                          : paired_randomization(*metric_, baseline, ours, o_.test_samples());
  }

  std::optional<ScoreInterval> interval_of(const SentenceStatistics& all) const {
    if (o_.confidence == 0) return std::nullopt;
    return bootstrap_interval(*metric_, all, o_.confidence);
  }

  // Returns the interval of a system in a comparison. The paired bootstrap has already sampled the intervals of both
  // systems.
  std::optional<ScoreInterval> paired_interval(const ScoreInterval& drawn, const SentenceStatistics& all) const {
    return o_.bootstrap() ? std::optional(drawn) : interval_of(all);
  }

  Json json_of(const SentenceStatistics& all, const std::optional<ScoreInterval>& interval) const {
    Json json{{"metric", name_},
              {"score", json_number(metric_->score(all.sums()))},
              {"signature", metric_signature(*metric_, references_.size(), test_fields(o_))}};
    if (interval) json["interval"] = to_json(*interval);
    return json;
  }

  void print_line(const char* label, const SentenceStatistics& all,
                  const std::optional<ScoreInterval>& interval) const {
    const std::vector<double> sums = all.sums();
    const std::string score = with_interval(metric_->score(sums), interval), details = metric_->details(sums);
    if (o_.score_only) {
      std::printf("%s\n", score.c_str());
      return;
    }
    const std::string signature = metric_signature(*metric_, references_.size(), test_fields(o_));
    std::printf("%s%s|%s = %s%s%s\n", label, metric_->name().c_str(), signature.c_str(), score.c_str(),
                details.empty() ? "" : " ", details.c_str());
  }

  void print_multi_bleu(const Lines& hypothesis) const {
    const BleuScore s = app::bleu(hypothesis, references_, o_.bleu_of(name_));
    std::printf("%s\n", o_.score_only ? two_digits(s.score).c_str() : multi_bleu_text(s).c_str());
  }

  std::string name_;
  const BleuFlags& o_;
  std::unique_ptr<CorpusMetric> metric_;
  const std::vector<Lines>& references_;
};

void check(const BleuFlags& o) {
  for (const std::string& metric : o.metrics)
    if (std::find(kMetrics.begin(), kMetrics.end(), metric) == kMetrics.end())
      throw UserError(str("[bleu] no metric '", metric, "'", did_you_mean(metric, kMetrics), "; there are ",
                          config::join(kMetrics)));
  if (std::find(kTests.begin(), kTests.end(), o.test) == kTests.end())
    throw UserError(str("[bleu] no test '", o.test, "'", did_you_mean(o.test, kTests), "; there are ",
                        config::join(kTests, " and ")));
  if (o.sentences && (o.confidence > 0 || !o.baseline.empty()))
    throw UserError("[bleu] --sentences prints a score for each line; intervals and tests are of a whole corpus");
}

// Returns true if at least two lines, and more than half of the lines that end in a full stop, have a space before it.
bool looks_tokenized(const Lines& lines) {
  size_t stops = 0, apart = 0;
  for (const std::string& line : lines) {
    stops += line.ends_with(".");
    apart += line.ends_with(" .");
  }
  return apart >= 2 && 2 * apart > stops;
}

// BLEU has its own tokenizer and chrF counts characters, so both expect detokenized text.
void warn_of_tokenized(const BleuFlags& o, const Lines& hypothesis, const std::vector<Lines>& references) {
  const bool detokenized = std::any_of(o.metrics.begin(), o.metrics.end(), [&](const std::string& metric) {
    return metric != "multi-bleu" && metric != "ter" && (metric != "bleu" || o.bleu.tokenizer != "none");
  });
  if (!detokenized) return;
  const auto warn = [](const std::string& file) {
    log_warn(str("[bleu] ", file,
                 " looks tokenized: most of its full stops stand apart (' .'), which changes "
                 "the score; detokenize it, or take --metric multi-bleu or --tokenize none"));
  };
  if (looks_tokenized(hypothesis)) warn(o.hypothesis == "-" ? "the text to score" : o.hypothesis);
  for (size_t r = 0; r < references.size(); ++r)
    if (looks_tokenized(references[r])) warn(o.references[r]);
}

void run(Command command, BleuFlags o) {
  if (o.baseline.empty()) refuse_given(command, {"--samples", "--test"}, "without --baseline");
  const auto computes = [&](const char* metric) {
    return std::find(o.metrics.begin(), o.metrics.end(), metric) != o.metrics.end();
  };
  if (!computes("bleu"))
    refuse_given(command, {"--tokenize", "--smooth", "--smooth-value", "--effective-order"}, "without --metric bleu");
  if (!computes("multi-bleu")) refuse_given(command, {"--split-compounds"}, "without --metric multi-bleu");
  if (o.metrics == std::vector<std::string>{"ter"})
    refuse_given(command, {"--lower-case"}, "by --metric ter, which compares lower case by default");
  if (!computes("ter")) refuse_given(command, {"--ter-case-sensitive"}, "without --metric ter");
  if (std::count(o.references.begin(), o.references.end(), "-") + (o.hypothesis == "-") + (o.baseline == "-") > 1)
    throw UserError("[bleu] only one of REF, --hypothesis and --baseline can be standard input");
  if (o.smooth_value >= 0) o.bleu.smooth_value = o.smooth_value;
  if (o.sentences) o.bleu.effective_order = true;
  check(o);
  std::vector<Lines> references;
  for (const std::string& path : o.references) references.push_back(read_lines(path));
  const Lines hypothesis = read_lines(o.hypothesis);
  const Lines baseline = o.baseline.empty() ? Lines{} : read_lines(o.baseline);
  if (!o.baseline.empty() && baseline.size() != hypothesis.size())
    throw UserError(str("[bleu] the hypothesis has ", hypothesis.size(), " lines and the baseline ", o.baseline,
                        " has ", baseline.size(), "; line i of one must translate what line i of the other does"));
  warn_of_tokenized(o, hypothesis, references);
  Json scores = Json::array();
  for (const std::string& name : o.metrics) {
    const Scored scored(name, o, references);
    if (o.json) {
      scores.push_back(scored.json(hypothesis, baseline));
    } else if (o.sentences) {
      scored.print_sentences(hypothesis);
    } else if (o.baseline.empty()) {
      scored.print(hypothesis);
    } else {
      scored.print_compared(hypothesis, baseline);
    }
  }
  if (o.json) print_json({{"sentences", hypothesis.size()}, {"references", references.size()}, {"scores", scores}});
}

}  // namespace

void add_bleu(Command app) {
  const Command command = app.add_subcommand("bleu", "score translations against references: BLEU, chrF and TER");
  set_examples(command, {{"lmx bleu test.de < translated.de", "sacreBLEU, tokenizer 13a, with its signature"},
                         {"lmx bleu a.zh b.zh --tokenize zh < translated.zh", "two references, Chinese"},
                         {"lmx bleu tok.de --metric multi-bleu --split-compounds < translated.tok.de",
                          "multi-bleu of tokenized text, hyphens split (Ott et al. 2018)"},
                         {"lmx bleu test.de --metric chrf,chrf++,ter < translated.de", "character n-grams, edit rate"},
                         {"lmx bleu test.de --confidence < translated.de", "with a 95 % confidence interval"},
                         {"lmx bleu test.de --baseline old.de < new.de", "is the difference due to chance?"}});
  const auto o = std::make_shared<BleuFlags>();
  command.add_option("REF", o->references, "reference translations, a sentence a line; several: several references")
      .required();
  command.add_option("--hypothesis FILE", o->hypothesis, "what to score; -: standard input").show_default();
  command.add_option("--metric NAME", o->metrics, "what to compute (',' between several)")
      .separated_by_commas()
      .offers(kMetrics)
      .repeatable();
  command.add_option("--tokenize NAME", o->bleu.tokenizer, "for bleu: how words are separated")
      .offers(score_tokenizer_names())
      .show_default();
  command.add_option("--smooth NAME", o->bleu.smoothing, "for bleu: smoothing of n-grams without a match")
      .offers(bleu_smoothings())
      .show_default();
  command.add_option("--smooth-value X", o->smooth_value, "the value of floor (0.1) or add-k (1)").not_negative();
  command.add_flag("--lower-case", o->bleu.lower_case, "compare without regard to case");
  command.add_flag("--split-compounds", o->bleu.split_compounds, "left-right counts as left ##AT##-##AT## right");
  command.add_flag("--effective-order", o->bleu.effective_order,
                   "for bleu: count n-grams only up to the length of the hypothesis");
  command.add_flag("--ter-case-sensitive", o->ter.case_sensitive,
                   "for ter: compare with regard to case; the default compares lower case");
  command.add_flag("--sentences", o->sentences, "print a score for each line; bleu with its effective order");
  command.add_option("--confidence [N]", o->confidence, "95 % interval by bootstrap resampling; N: resamples (1000)")
      .optional_value("1000")
      .integer_in(2, 1'000'000);
  command.add_option("--baseline FILE", o->baseline,
                     "another system's translations, to test the difference against chance");
  command
      .add_option("--test NAME", o->test,
                  "test of the difference: paired bootstrap resampling or approximate randomization")
      .offers(kTests)
      .show_default();
  command.add_option("--samples N", o->samples, "for the test: number of resamples (1000) or trials (10000)")
      .integer_in(2, 10'000'000);
  command.add_flag("--score-only", o->score_only, "print the number alone");
  add_json(command, o->json);
  command.callback([command, o] { run(command, *o); });
}

}  // namespace lmx::app::cli
