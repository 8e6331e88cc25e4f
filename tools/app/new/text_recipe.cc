// lmx new --text: an LSTM whose size, vocabulary and batch depend on the text and the machine.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "app/new/new_recipe.h"
#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app::new_recipe {
namespace {

constexpr int64_t kEnoughWords = 100'000;     // texts with fewer words are read as characters
constexpr int64_t kSubwordWords = 2'000'000;  // texts with more words are read as subwords
constexpr int64_t kSubwords = 8'192;          // of a vocabulary of subwords
constexpr int64_t kBytesAndSpecial = 258;     // of these
constexpr double kSubwordCharacters = 3.5;    // characters of a subword, for the number of steps only
constexpr double kBlanksOfWords = 0.05;       // minimum share of spaces in the characters of a text; English has 0.17
constexpr int64_t kFewestCharacters = 2'000;  // of the training split
constexpr int64_t kFewestValid = 200;         // characters of the validation split
constexpr int64_t kMuchText = 20'000'000;     // for larger texts, 1 % is enough for validation
constexpr int64_t kLargeVocabulary = 5'000;   // the loss samples words if the vocabulary is larger
constexpr int64_t kMostWords = 50'000;
constexpr int64_t kSamples = 1'024;
constexpr int64_t kMostValidTokens = 200'000;  // tokens of one validation

struct ModelSize {
  int64_t embedding, cells, projection;  // projection 0: none
  double rate;
  int64_t output() const { return projection > 0 ? projection : cells; }
  // Counts the LSTM without the tables of the vocabulary.
  int64_t parameters() const { return 4 * cells * (embedding + output() + 1) + cells * projection; }
};
constexpr std::array<ModelSize, 5> kModelSizes{
    {{64, 64, 0, 0.005}, {128, 128, 0, 0.004}, {256, 256, 0, 0.003}, {256, 512, 256, 0.002}, {512, 1024, 512, 0.002}}};

// The tokens of the text.
struct Reading {
  std::string tokens;  // words, chars, bytes or subwords
  std::string reason;
  int64_t train_tokens = 0, vocab = 0, lost = 0;  // lost: tokens of the training split that become <unk>
  int64_t least = 1;                              // minimum number of occurrences of a vocabulary entry
  bool words() const { return tokens == "words"; }
  bool subwords() const { return tokens == "subwords"; }
  const std::string unit() const { return tokens == "chars" ? "characters" : tokens; }
  bool samples() const { return vocab > kLargeVocabulary; }
};

struct ModelChoice {
  ModelSize size;
  int64_t sequence = 0, batch = 0;
  double passes = 0;
  double seconds = 0;
  double wanted = 0;  // number of passes without a time limit
  int64_t steps_of_a_pass(const Reading& r) const { return r.train_tokens / (sequence * batch); }
};

Node data_of(const TextRequest& request, double valid_fraction) {
  const Mark mark{"command line", 0, 0};
  Node data = Node::map(mark);
  std::vector<Node> items;
  for (const std::string& file : request.files) items.push_back(Node::string(file, mark));
  data.set("files", Node::list(std::move(items), mark));
  if (!request.field.empty()) data.set("field", Node::string(request.field, mark));
  data.set("valid_fraction", Node::scalar(str(valid_fraction), mark));
  if (request.tokens == "bytes") data.set("tokens", Node::string("bytes", mark));
  data.set("lower_case", Node::scalar("false", mark));
  return data;
}

// Chooses the smallest of these fractions of the lines that is enough text for validation.
TextSurvey survey(const TextRequest& request, double& valid_fraction) {
  TextSurvey s;
  for (const double fraction : {0.05, 0.1, 0.2, 0.3}) {
    valid_fraction = fraction;
    s = survey_text(data_of(request, fraction));
    if (s.valid_characters >= kFewestValid || s.characters - s.valid_characters < kFewestCharacters) break;
  }
  const std::string file = std::filesystem::path(request.files[0]).lexically_proximate(std::filesystem::current_path());
  const std::string where = str("[new] ", request.files.size() == 1 ? file : "the text", ": ");
  if (s.characters < kFewestCharacters + kFewestValid)
    throw UserError(str(where, count_text(s.characters), request.tokens == "bytes" ? " bytes" : " characters",
                        " are too few to train and to validate a model with; at least ",
                        count_text(kFewestCharacters + kFewestValid), " are needed"));
  if (s.valid_characters < kFewestValid || s.characters - s.valid_characters < kFewestCharacters)
    throw UserError(
        str(where, "the text has ", count_text(s.lines), " ", request.record(), s.lines == 1 ? "" : "s",
            ", which are too few to take some of them for validation",
            request.field.empty() ? "; write a sentence or a paragraph a line (`fold -s` breaks long lines)" : ""));
  if (s.characters > kMuchText) valid_fraction = 0.01;  // these lines are a subset of those of the larger fraction
  return s;
}

Reading read_as(const std::string& asked, const TextSurvey& s) {
  Reading r;
  const double blanks = static_cast<double>(s.blanks) / static_cast<double>(s.characters);
  const std::string words = count_text(s.words) + " words";
  r.tokens = asked;
  if (!asked.empty()) {
    r.reason = str("The model predicts ", r.unit(), ", as asked.");
  } else if (blanks < kBlanksOfWords) {
    r.tokens = "chars";
    r.reason = str("The model predicts characters: only ", percent(s.blanks, s.characters),
                   " of the text are blanks, so that words cannot be separated.");
  } else if (s.words < kEnoughWords) {
    r.tokens = "chars";
    r.reason = str("The model predicts characters: ", words, " are too few to learn words from (",
                   count_text(kEnoughWords), " are enough).");
  } else if (s.words > kSubwordWords) {
    r.tokens = "subwords";
    r.reason = str("The model predicts subwords: the text has ", words, ", more than ", count_text(kSubwordWords),
                   ". Nothing is unknown, and results are bits per byte.");
  } else {
    r.tokens = "words";
    r.reason =
        str("The model predicts words: the text has blanks between them, and ", words, " are enough to learn from.");
  }
  if (r.tokens == "bytes") {
    r.vocab = 256;
    r.train_tokens = s.bytes - s.bytes * s.valid_characters / s.characters;
    return r;
  }
  if (r.subwords()) {
    // A text has more subwords than this: each word of several letters becomes one. Digits do not: each is a subword.
    const int64_t most = kBytesAndSpecial + std::ssize(s.character_counts) + s.spelled_words / 2;
    r.vocab = std::min(kSubwords, most);
    r.train_tokens = std::llround(static_cast<double>(s.characters - s.valid_characters) / kSubwordCharacters);
    return r;
  }
  const std::vector<int64_t>& counts = r.words() ? s.word_counts : s.character_counts;
  r.least = r.words() ? 3 : s.characters > 1'000'000 ? 10 : 2;
  const auto rare = std::find_if(counts.begin(), counts.end(), [&](int64_t n) { return n < r.least; });
  const auto kept = std::min<int64_t>(rare - counts.begin(), kMostWords - 2);
  for (size_t i = static_cast<size_t>(kept); i < counts.size(); ++i) r.lost += counts[i];
  r.vocab = kept + 2;
  const int64_t lines = s.lines - s.valid_lines;  // each line ends in </s>
  r.train_tokens = (r.words() ? s.train_words : s.characters - s.valid_characters - lines) + lines;
  return r;
}

// Returns the floating-point operations of a forward and backward pass for one token.
double flops_of_a_token(const ModelSize& size, const Reading& r) {
  const int64_t scored = r.samples() ? kSamples + 1 : r.vocab;
  return 6.0 * static_cast<double>(size.parameters() + scored * size.output());
}

bool fits(const ModelSize& size, const Reading& r, const Budget& budget) {
  const int64_t tables = r.vocab * (size.embedding + size.output());
  const bool memory = 16 * (size.parameters() + tables) < budget.memory / 2;  // weights, gradients, two values of Adam
  return memory && size.parameters() <= (r.words() || r.subwords() ? 2 : 1) * r.train_tokens;
}

ModelChoice choose(const Reading& r, const Budget& budget) {
  ModelChoice c;
  c.sequence = r.words() ? 20 : r.subwords() ? 32 : 64;
  c.batch = 64;
  while (c.batch > 1 && c.steps_of_a_pass(r) < 100) c.batch /= 2;
  const auto tokens = static_cast<double>(r.train_tokens);
  c.wanted = std::clamp(std::floor(1e7 / tokens), 1.0, 20.0);
  for (size_t i = kModelSizes.size(); i-- > 0;) {
    c.size = kModelSizes[i];
    const double pass = flops_of_a_token(c.size, r) * tokens;
    c.passes = std::min(c.wanted, std::floor(budget.flops() / pass));
    if (i == 0 && c.passes < 1) c.passes = budget.flops() / pass;
    c.seconds = seconds_of(pass * c.passes, budget);
    if (fits(c.size, r, budget) && c.passes >= std::min(c.wanted, 4.0)) break;
  }
  return c;
}

std::string data_section(const TextRequest& request, const TextSurvey& s, const Reading& r, double valid) {
  std::string text = "data:\n  files: " + inline_list(request.files) + "\n" +
                     (request.field.empty() ? "" : "  field: " + to_yaml(Node::string(request.field))) +
                     comment(r.reason, 2) + "  tokens: " + r.tokens + "\n";
  if (r.subwords())
    text += comment(str("Subwords that lmx learns from the text; each ", request.record(), " is a document."), 2) +
            str("  vocab_size: ", r.vocab, "\n  document: string\n");
  else if (r.tokens != "bytes") {
    const std::string signs = r.words() ? " Punctuation is cut off the words; `lmx generate` joins it again." : "";
    text +=
        comment("The text keeps its case. With `true`, \"The\" and \"the\" would be one word: a smaller vocabulary." +
                    signs,
                2) +
        "  lower_case: false\n";
    const std::string unit = r.unit();
    const std::string kept = r.vocab == kMostWords ? str("The ", count_text(r.vocab - 2), " most frequent ", unit)
                                                   : str("The ", count_text(r.vocab - 2), " ", unit,
                                                         " that the training text holds ", r.least, " times or more");
    text += comment(str(kept, ", <unk> and </s> (the end of a line). The other ", unit, ", ",
                        percent(r.lost, r.train_tokens), " of the training text, are read as <unk>."),
                    2) +
            str("  vocab_size: ", r.vocab, "\n");
  }
  return text +
         comment(str("This share of the ", count_text(s.lines), " ", request.record(),
                     "s is not trained on. It measures how well the model predicts text that it has not ", "seen."),
                 2) +
         str("  valid_fraction: ", valid, "\n\n");
}

std::string model_section(const Reading& r, const ModelChoice& c) {
  const int64_t tables = r.vocab * (c.size.embedding + c.size.output());
  std::string text =
      comment(str("A step trains on ", c.batch, " sequences of ", c.sequence, " ", r.unit(), ", ",
                  count_text(c.batch * c.sequence), " in all, so that a pass over the training text (",
                  count_text(r.train_tokens), " ", r.unit(), ") takes ", count_text(c.steps_of_a_pass(r)), " steps.")) +
      str("batcher: {sequence_length: ", c.sequence, "}\nbatch: {global: ", c.batch, "}\n\n");
  text += comment(str("An LSTM of ", count_text(c.size.cells), " cells: ", count_text(c.size.parameters()),
                      " parameters, and ", count_text(tables), " for the tables of the vocabulary. It is the largest ",
                      "of five sizes (64 to 1,024 cells) that has at most ",
                      r.words()      ? "two parameters for each word"
                      : r.subwords() ? "two parameters for each subword"
                                     : str("one parameter for each ", r.tokens == "bytes" ? "byte" : "character"),
                      " of the text and trains in the given time, or the smallest one if none has. A larger one learns "
                      "more from more text."));
  text += str("model: {embedding: ", c.size.embedding, ", cells: ", c.size.cells);
  if (c.size.projection > 0) text += str(", projection: ", c.size.projection);
  text += c.passes >= 5 && c.size.cells >= 128 ? ", dropout: 0.2}   # dropout, because the text is read many times\n"
                                               : "}\n";
  if (r.samples())
    text += str("loss: {samples: ", kSamples, "}   # a step scores so many ", r.unit(), " instead of all ",
                count_text(r.vocab), "; validation scores all\n");
  return text + str("optimizer: {lr: ", c.size.rate, "}\nclip: 1.0\n\n");
}

std::string train_section(const Reading& r, const ModelChoice& c, const Budget& budget, int64_t valid_tokens) {
  const double steps = std::max(1.0, c.passes * static_cast<double>(c.steps_of_a_pass(r)));
  const auto whole_steps = static_cast<int64_t>(steps);
  const int64_t log_every = std::clamp<int64_t>(whole_steps / 40, 1, 100);
  std::string why = c.passes < c.wanted
                        ? str("More passes (", c.wanted, ") would improve the model, but take more than the ",
                              budget.minutes, " minutes that `lmx new --minutes` allows.")
                        : std::string("The checkpoint with the best validation is kept.");
  std::string text =
      comment(str(c.passes < 1 ? "Less than one pass" : str(c.passes, c.passes == 1 ? " pass" : " passes"),
                  " over the training text: ", count_text(whole_steps), " steps, ", duration(c.seconds), ". ", why));
  text += c.passes < 1 ? str("train: {steps: ", whole_steps) : str("train: {epochs: ", c.passes);
  text += str(", log_every: ", log_every);
  if (c.passes < 5) text += str(", eval_every: ", std::max<int64_t>(1, whole_steps / 8));
  if (valid_tokens > kMostValidTokens) text += str(", eval_tokens: ", kMostValidTokens);
  return text + "}\n";
}

std::string defaults_section(const Reading& r) {
  return str("defaults:\n  - data: text\n",
             "  - batcher: tbptt              # reads the text in its order and keeps the LSTM's state between steps\n",
             "  - model: lstm\n", r.samples() ? "  - loss: sampled_softmax\n" : "  - loss: full_softmax\n",
             "  - optimizer: adam\n",
             "  - schedule: linear            # the learning rate falls to zero at the last step\n",
             "  - sync: allreduce\n  - comm: self                  # one process with all cores\n  - _self_\n\n");
}

}  // namespace

Written write_text_recipe(const TextRequest& request) {
  double valid = 0;
  const TextSurvey s = survey(request, valid);
  const Reading r = read_as(request.tokens, s);
  const ModelChoice c = choose(r, request.budget);
  const std::string spelled =
      str(", ", count_text(s.words), " words (", count_text(std::ssize(s.word_counts)), " different), ",
          count_text(s.characters), " characters (", count_text(std::ssize(s.character_counts)), " different)");
  const std::string counts =
      str("The text has ", plural(s.files, "file"), " with ", bytes_text(s.bytes), ": ", count_text(s.lines), " ",
          request.record(), "s", r.tokens == "bytes" ? "" : spelled, ".");
  const auto valid_tokens = static_cast<int64_t>(valid * static_cast<double>(r.train_tokens) / (1 - valid));
  Written w;
  w.yaml = heading("A language model of the text that `data.files` names", request.name, counts, request.budget) +
           defaults_section(r) + data_section(request, s, r, valid) + model_section(r, c) +
           train_section(r, c, request.budget, valid_tokens);
  w.summary = {
      counts, r.reason,
      str("The model is an LSTM of ", count_text(c.size.cells), " cells with a vocabulary of ", count_text(r.vocab),
          "; training takes ", duration(c.seconds), " on ", plural(request.budget.cores, "core"), ".")};
  return w;
}

}  // namespace lmx::app::new_recipe
