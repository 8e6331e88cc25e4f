// lmx new --pairs: a Transformer whose size, subwords and batch depend on the pairs and the machine.
#include <algorithm>
#include <array>
#include <cmath>

#include "app/new/new_recipe.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::new_recipe {
namespace {

constexpr int64_t kFewestPairs = 100;
constexpr double kValidPairs = 2'000;      // enough for one decimal of a BLEU score
constexpr double kSubwordsOfAWord = 1.4;   // estimate, includes punctuation
constexpr int64_t kLongestSentence = 100;  // words; longer sentences are not used for training

struct Size {
  int64_t layers, d, ffn, heads;
  double rate;
  int64_t encoder() const { return layers * (4 * d * d + 2 * d * ffn); }
  int64_t decoder() const { return layers * (8 * d * d + 2 * d * ffn); }
};
constexpr std::array<Size, 4> kSizes{
    {{2, 64, 128, 2, 0.005}, {3, 128, 256, 4, 0.004}, {4, 256, 1024, 4, 0.002}, {6, 512, 2048, 8, 0.001}}};

struct Choice {
  Size size;
  double valid_fraction = 0;
  int64_t vocab = 0, max_tokens = 0, steps_of_a_pass = 0;
  int64_t source = 0, target = 0;  // estimated subwords per pass
  double passes = 0, wanted = 0, seconds = 0;
  double flops_of_a_pass() const {
    return 6.0 * (static_cast<double>(size.encoder()) * static_cast<double>(source) +
                  static_cast<double>(size.decoder() + vocab * size.d) * static_cast<double>(target));
  }
  int64_t steps() const {
    return std::max<int64_t>(1, static_cast<int64_t>(passes * static_cast<double>(steps_of_a_pass)));
  }
};

Node data_of(const PairRequest& request, double valid_fraction) {
  const Mark mark{"command line", 0, 0};
  Node data = Node::map(mark);
  data.set("source_files", Node::list({Node::string(request.source, mark)}, mark));
  data.set("target_files", Node::list({Node::string(request.target, mark)}, mark));
  data.set("source_language", Node::string(request.source_language, mark));
  data.set("target_language", Node::string(request.target_language, mark));
  data.set("valid_fraction", Node::scalar(str(valid_fraction), mark));
  return data;
}

// Byte-pair encoding finds at least one subword for each word of several letters, and each character is a subword. At
// least half of this number exists, independent of how the tokenizer splits words.
int64_t subwords_of(const PairSurvey& s) {
  const int64_t wanted = s.pairs < 5'000       ? 1'000
                         : s.pairs < 20'000    ? 2'000
                         : s.pairs < 200'000   ? 4'000
                         : s.pairs < 2'000'000 ? 16'000
                                               : 32'000;
  const int64_t exist = s.characters + 2 + s.types / 2;
  return std::max(std::min(wanted, exist), s.characters + 2);
}

Choice choose(const PairSurvey& s, const Budget& budget, double valid_fraction) {
  Choice c;
  c.valid_fraction = valid_fraction;
  c.vocab = subwords_of(s);
  const double train = kSubwordsOfAWord * (1 - valid_fraction);
  c.source = static_cast<int64_t>(train * static_cast<double>(s.words[0]));
  c.target = static_cast<int64_t>(train * static_cast<double>(s.words[1])) + s.pairs;  // plus </s>
  c.max_tokens = 2'000;
  while (c.max_tokens > 250 && c.target / c.max_tokens < 100) c.max_tokens /= 2;
  c.steps_of_a_pass = std::max<int64_t>(1, c.target / c.max_tokens);
  c.wanted = std::clamp(std::floor(1e6 / static_cast<double>(s.pairs)), 1.0, 30.0);
  for (size_t i = kSizes.size(); i-- > 0;) {
    c.size = kSizes[i];
    const double pass = c.flops_of_a_pass();
    c.passes = std::min(c.wanted, std::floor(budget.flops() / pass));
    if (i == 0 && c.passes < 1) c.passes = budget.flops() / pass;
    c.seconds = seconds_of(pass * c.passes, budget);
    const int64_t parameters = c.size.encoder() + c.size.decoder();
    const bool memory = 16 * (parameters + c.vocab * c.size.d) < budget.memory / 2;
    if (memory && parameters <= 2 * (c.source + c.target) && c.passes >= std::min(c.wanted, 8.0)) break;
  }
  return c;
}

std::string data_section(const PairRequest& request, const PairSurvey& s, const Choice& c) {
  std::string text =
      "data:\n  source_files: " + inline_list({request.source}) + "\n  target_files: " + inline_list({request.target}) +
      "\n" +
      str("  source_language: ", request.source_language, "   # decides the rules by which lines become words\n") +
      "  target_language: " + request.target_language + "\n";
  text += comment(str("Words of both languages are cut into ", count_text(c.vocab), " subwords, which byte-pair ",
                      "encoding finds in the training text (", count_text(s.types), " different words). More pairs ",
                      "allow more subwords: 4,000 from 20,000 pairs, 16,000 from 200,000, 32,000 from 2 million."),
                  2) +
          str("  vocab_size: ", c.vocab, "\n");
  if (s.longest > kLongestSentence)
    text += comment(str("The longest sentence has ", count_text(s.longest), " words. Pairs with more words than this ",
                        "on either side are not trained on."),
                    2) +
            str("  max_words: ", kLongestSentence, "\n");
  return text +
         comment(
             "This share of the pairs is not trained on. Its translations are compared with the target side (BLEU).",
             2) +
         str("  valid_fraction: ", c.valid_fraction, "\n\n");
}

std::string model_section(const Choice& c) {
  const int64_t parameters = c.size.encoder() + c.size.decoder();
  std::string text =
      comment(str("A step trains on sentences of similar lengths with at most ", count_text(c.max_tokens),
                  " target subwords together; a pass takes about ", count_text(c.steps_of_a_pass), " steps.")) +
      str("batcher: {max_tokens: ", c.max_tokens, ", too_long: skip}\nbatch: {global: 1}\n\n");
  text += comment(str("A Transformer of ", c.size.layers, " + ", c.size.layers, " layers of ", c.size.d, ": ",
                      count_text(parameters), " parameters, and ", count_text(c.vocab * c.size.d),
                      " for the table of subwords. It is the largest of four sizes (64 to 512) that has at most ",
                      "two parameters for each subword of the text and trains in the given time."));
  return text + str("model: {encoder_layers: ", c.size.layers, ", decoder_layers: ", c.size.layers, ", d: ", c.size.d,
                    ", ffn: ", c.size.ffn, ", heads: ", c.size.heads, ", dropout: ", c.passes >= 8 ? 0.2 : 0.1,
                    "}\nloss: {label_smoothing: 0.1}\noptimizer: {lr: ", c.size.rate,
                    ", betas: [0.9, 0.98]}\nschedule: {warmup: ", std::clamp<int64_t>(c.steps() / 6, 10, 4'000),
                    "}   # steps in which the learning rate rises; then it falls as 1 / sqrt(step)\n\n");
}

std::string train_section(const Choice& c, const Budget& budget) {
  const int64_t steps = c.steps();
  const std::string why = c.passes < c.wanted
                              ? str("More passes (", c.wanted, ") would improve the translations, but take more ",
                                    "than the ", budget.minutes, " minutes that `lmx new --minutes` allows.")
                              : std::string("The checkpoint with the best validation is kept.");
  const int64_t averaged = c.passes >= 10 ? 5 : 1;
  std::string text =
      comment(str(c.passes < 1 ? std::string("Less than one pass") : str(c.passes, c.passes == 1 ? " pass" : " passes"),
                  " over the pairs: about ", count_text(steps), " steps, ", duration(c.seconds), ". ", why,
                  averaged > 1 ? " At the end the mean of the last five checkpoints translates the validation pairs."
                               : " At the end the model translates the validation pairs."));
  text += c.passes < 1 ? str("train: {steps: ", steps) : str("train: {epochs: ", c.passes);
  text += str(", log_every: ", std::clamp<int64_t>(steps / 40, 1, 100));
  if (c.passes < 5) text += str(", eval_every: ", std::max<int64_t>(1, steps / 8));
  return text + str(", final_bleu: valid, final_average: ", averaged, "}\n") +
         (averaged > 1 ? str("checkpoint: {keep_last: ", averaged, "}\n") : "");
}

constexpr const char* kDefaults =
    "defaults:\n"
    "  - data: parallel\n"
    "  - batcher: token_budget\n"
    "  - model: transformer\n"
    "  - loss: full_softmax\n"
    "  - optimizer: adam\n"
    "  - schedule: inverse_sqrt\n"
    "  - sync: allreduce\n"
    "  - comm: self                  # one process with all cores\n"
    "  - _self_\n\n";

}  // namespace

Written write_pair_recipe(const PairRequest& request) {
  double valid_fraction = 0.05;
  PairSurvey s = survey_pairs(data_of(request, valid_fraction));
  if (s.pairs < kFewestPairs)
    throw UserError(str("[new] ", request.source, " and ", request.target, ": ", s.pairs,
                        " pairs are too few to train a translation model with; at least ", kFewestPairs,
                        " are needed"));
  valid_fraction = std::clamp(kValidPairs / static_cast<double>(s.pairs), 0.0005, 0.1);
  valid_fraction = std::max(0.0001, std::floor(valid_fraction * 10'000) / 10'000);
  const Choice c = choose(s, request.budget, valid_fraction);
  const std::string counts =
      str("The text has ", count_text(s.pairs), " pairs of sentences: ", count_text(s.words[0]), " words of ",
          request.source_language, " (", bytes_text(s.bytes[0]), ") and ", count_text(s.words[1]), " of ",
          request.target_language, " (", bytes_text(s.bytes[1]), ").");
  Written w;
  w.yaml = heading(str("A model that translates ", request.source_language, " into ", request.target_language),
                   request.name, counts, request.budget) +
           kDefaults + data_section(request, s, c) + model_section(c) + train_section(c, request.budget);
  w.summary = {counts, str("The model is a Transformer of ", c.size.layers, " + ", c.size.layers, " layers of ",
                           c.size.d, " with ", count_text(c.vocab), " subwords; training takes ", duration(c.seconds),
                           " on ", plural(request.budget.cores, "core"), ".")};
  return w;
}

}  // namespace lmx::app::new_recipe
