// lmx eval
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/inference/evaluate_run.h"
#include "app/inference/saved_run.h"
#include "app/translation/search.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "recipe/recipe.h"

namespace lmx::app::cli {
namespace {

struct EvalFlags {
  PluginDirectories directories;
  std::string run, penalty = "fairseq:0.6";
  bool no_bleu = false, json = false;
  EvalOptions eval;
};

std::string checkpoint_of(const EvalFlags& o, const EvalResult& r) {
  return r.step < 0 ? o.eval.checkpoint : "step-" + std::to_string(r.step);
}

Json to_json(const EvalFlags& o, const EvalResult& r) {
  const double bit = std::log(2.0);
  Json json{{"run", o.run},
            {"checkpoint", checkpoint_of(o, r)},
            {"split", o.eval.split},
            {"unit", r.unit},
            {"tokens", r.tokens},
            {"nll_nat", json_number(r.nll_nat)},
            {"nll_bit", json_number(r.nll_nat / bit)},
            {"ppl", json_number(r.ppl)}};
  if (is_character(r.unit)) put(json, "bpc", r.nll_nat / bit);
  put(json, "bpb", r.bpb);
  put(json, "true_ppl", r.true_ppl);
  put(json, "compression_ratio", r.compression_ratio);
  if (r.sharded)
    json["shards"] = {{"shards", r.sharded->shards},
                      {"tokens", r.sharded->tokens},
                      {"bpc", json_number(r.sharded->nll_nat / bit)},
                      {"least_bpc", json_number(r.sharded->least / bit)},
                      {"most_bpc", json_number(r.sharded->most / bit)}};
  if (r.words)
    json["words"] = {{"words", r.words->words}, {"unknown", r.words->unknown}, {"ppl", json_number(r.words->ppl)}};
  for (const auto& [name, value] : r.metrics) json[name] = json_number(value);
  if (!o.eval.text.empty()) json["unknown"] = r.unknown;
  if (r.translation)
    json["translation"] = {{"BLEU", json_number(r.translation->bleu)},
                           {"multi_bleu", json_number(r.translation->multi_bleu)},
                           {"multi_bleu_split", json_number(r.translation->multi_bleu_split)},
                           {"BLEU_line", r.translation->bleu_line}};
  return json;
}

// Prints bits per token, and those of Puri's protocol.
void print_bits(const EvalFlags& o, const EvalResult& r) {
  const char* split = o.eval.split.c_str();
  const double bit = std::log(2.0);
  const char* note = r.unit == "byte" ? " (a character is a byte)" : "";
  std::printf("%s bpc %.6f%s\n", split, r.nll_nat / bit, note);
  if (r.compression_ratio)
    std::printf("%s compression_ratio %.4f (bytes of text over bytes of its code)\n", split, *r.compression_ratio);
  if (!r.sharded) return;
  const ShardEval& s = *r.sharded;
  std::printf(
      "%s bpc_%lld_shards %.6f (mean of %lld shards of strings in random order, %lld %ss; from %.6f to %.6f)%s\n",
      split, static_cast<long long>(s.shards), s.nll_nat / bit, static_cast<long long>(s.shards),
      static_cast<long long>(s.tokens), r.unit.c_str(), s.least / bit, s.most / bit, note);
}

void print_words(const std::string& split, const WordEval& w) {
  std::printf("%s word_ppl %.2f (%lld words, as they were before subwords, and ends of sentences; %lld with <unk>)\n",
              split.c_str(), w.ppl, static_cast<long long>(w.words), static_cast<long long>(w.unknown));
}

void evaluate(Command command, EvalFlags o) {
  const std::vector<std::string> of_translation{"--beam", "--length-penalty", "--no-bleu"};
  if (o.eval.text.empty()) {
    refuse_given(command, {"--field"}, "without --text");
  } else {
    refuse_given(command, {"--split", "--shards", "--seed"}, "with --text");
    refuse_given(command, of_translation, "with --text");
    o.eval.split = "text";
  }
  if (o.eval.shards == 0) refuse_given(command, {"--seed"}, "without --shards");
  read_length_penalty(o.penalty, o.eval.search);
  o.eval.translate = !o.no_bleu;
  o.directories.load();
  const auto given = [&](const std::string& name) { return command.count(name) > 0; };
  if (std::any_of(of_translation.begin(), of_translation.end(), given) &&
      kind_of(recipe_of_run(o.run, o.eval.device).data) != Kind::parallel)
    refuse_given(command, of_translation, "for a run that does not translate");
  if (o.eval.split == "train") refuse_given(command, of_translation, "with --split train, which is not translated");
  if (o.no_bleu) refuse_given(command, {"--beam", "--length-penalty"}, "with --no-bleu");
  const EvalResult r = evaluate_run(o.run, o.eval);
  if (o.json) return print_json(to_json(o, r));
  std::cout << "checkpoint " << checkpoint_of(o, r) << std::endl;
  std::printf("%s %ss %lld\n", o.eval.split.c_str(), r.unit.c_str(), static_cast<long long>(r.tokens));
  if (!o.eval.text.empty()) std::printf("text unknown %lld\n", static_cast<long long>(r.unknown));
  std::printf("%s nll_nat %.6f\n", o.eval.split.c_str(), r.nll_nat);
  std::printf("%s nll_bit %.6f\n", o.eval.split.c_str(), r.nll_nat / std::log(2.0));
  if (is_character(r.unit)) print_bits(o, r);
  if (r.bpb) std::printf("%s bpb %.6f\n", o.eval.split.c_str(), *r.bpb);
  std::printf("%s ppl %.2f", o.eval.split.c_str(), r.ppl);
  if (r.true_ppl) std::printf(" (best possible: %.2f)", *r.true_ppl);
  std::printf("\n");
  for (const auto& [name, value] : r.metrics) std::printf("%s %s %.6g\n", o.eval.split.c_str(), name.c_str(), value);
  if (r.words) print_words(o.eval.split, *r.words);
  if (!r.translation) return;
  std::printf("%s %s\n", o.eval.split.c_str(), r.translation->bleu_line.c_str());
  std::printf("%s multi-bleu %s\n", o.eval.split.c_str(), r.translation->multi_bleu_line.c_str());
  std::printf("%s multi-bleu-split %s\n", o.eval.split.c_str(), r.translation->multi_bleu_split_line.c_str());
  std::printf("%s BLEU %.2f\n", o.eval.split.c_str(), r.translation->bleu);
}

}  // namespace

void add_eval(Command app) {
  const Command command =
      app.add_subcommand("eval", "perplexity of a run's checkpoint under the full softmax; bits per character, BLEU");
  set_examples(command, {{"lmx eval runs/quickstart/2026-05-01_101500", "its last checkpoint on the validation split"},
                         {"lmx eval runs/quickstart/2026-05-01_101500 --split test --checkpoint best",
                          "the best one on the test split"},
                         {"lmx eval runs/ott_wmt/2026-05-01_101500 --split test --checkpoint mean.safetensors",
                          "perplexity and BLEU of an average"},
                         {"lmx eval runs/quickstart/2026-05-01_101500 --text news.txt --text more.txt.gz",
                          "any text, with the run's vocabulary; counts the unknown words"},
                         {"lmx eval runs/puri_desk/2026-05-01_101500 --split test --shards 16",
                          "bits per character by the protocol of Puri 2018"}});
  const auto o = std::make_shared<EvalFlags>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("--split SPLIT", o->eval.split, "the split to evaluate").offers(eval_splits()).show_default();
  command.add_option("--text FILE", o->eval.text,
                     "text files, folders or globs to evaluate instead of a split; may be repeated. Needs no data but "
                     "the run's own files");
  command.add_option("--field NAME", o->eval.field,
                     "with --text: the column of .csv or the field of .jsonl that contains the text");
  command.add_option("--checkpoint WHICH", o->eval.checkpoint, "last, best, a step, or a file or folder of parameters")
      .show_default();
  command
      .add_option("--shards N", o->eval.shards,
                  "for chars and bytes: also print bits per character over N shards of strings in random order "
                  "(Puri 2018: 16 shards of the test split)")
      .positive();
  command.add_option("--seed N", o->eval.seed, "seed of the shards").show_default();
  command.add_option("--beam K", o->eval.search.beam, "for a translation run: hypotheses kept at each length")
      .show_default();
  command.add_option("--length-penalty KIND", o->penalty, "for a translation run: fairseq:A, wu:A or none")
      .show_default();
  command.add_flag("--no-bleu", o->no_bleu, "for a translation run: compute only the perplexity");
  add_json(command, o->json);
  add_device(command, o->eval.device);
  o->directories.add_to(command);
  command.callback([command, o] { evaluate(command, *o); });
}

}  // namespace lmx::app::cli
