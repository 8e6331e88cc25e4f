// lmx generate: a prompt's continuation, drawn token by token.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/data_config.h"
#include "data/tokenizer.h"
#include "lmx/corpora.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "train/run_directory.h"
#include "train/saved_run.h"

namespace lmx {
namespace {

using namespace train;

data::TokenizerRules rules_of(const Node& data) {
  const Node* name = data.find("name");
  if (!name || name->text != "text") return {false, true};  // made-up words stand between spaces
  const auto config = read_config<data::TextConfig>(data, "data");
  bool tokenized = config.tokenizer == "whitespace";
  if (config.tokenizer == "auto" && !config.corpus.empty())
    tokenized = find_corpus(config.corpus).tokenizer == "whitespace";
  return {config.lower_case, tokenized};
}

// </s>, which ends the line before, then the prompt's words.
std::vector<int32_t> prompt_ids(const std::string& prompt, const data::TokenizerRules& rules,
                                const Vocabulary& vocabulary) {
  data::Tokenizer tokenizer(rules);
  std::vector<std::string_view> words;
  const size_t wrong = tokenizer.split(prompt, words);
  if (wrong != data::Tokenizer::kValid) throw UserError(str("[generate] the prompt is no valid UTF-8 at byte ", wrong));
  std::vector<int32_t> ids{Vocabulary::kEos};
  for (const std::string_view word : words) {
    ids.push_back(vocabulary.id(word));
    if (ids.back() == Vocabulary::kUnk)
      log_warn(str("[generate] '", word, "' is not in the vocabulary; it counts as <unk>"));
  }
  return ids;
}

Batch batch_of(const std::vector<int32_t>& ids, const Context& ctx) {
  const auto n = static_cast<int64_t>(ids.size());
  Batch batch;
  batch.inputs = Tensor::from<int32_t>(ctx.allocator, {1, n}, ids);
  batch.targets = batch.inputs;
  batch.slots = {0};
  batch.fresh = {0};
  return batch;
}

// One draw from softmax(logits / temperature) among the `top_k` likeliest words; <unk> is none of them.
int32_t draw(std::span<const float> logits, const GenerateOptions& options, double uniform) {
  std::vector<int32_t> order(logits.size() - 1);
  std::iota(order.begin(), order.end(), Vocabulary::kUnk + 1);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + options.top_k - 1, order.end(), likelier);
    order.resize(static_cast<size_t>(options.top_k));
    std::sort(order.begin(), order.end());  // nth_element leaves an order that may differ between libraries
  }
  float top = -INFINITY;
  for (const int32_t id : order) top = std::max(top, logits[static_cast<size_t>(id)]);
  std::vector<double> sums(order.size());
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i)
    sums[i] = sum += std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / options.temperature);
  const auto at = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return order[std::min(static_cast<size_t>(at - sums.begin()), order.size() - 1)];
}

void check(const GenerateOptions& o) {
  if (o.tokens < 1) throw UserError(str("[generate] the number of tokens must be at least 1, got ", o.tokens));
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    throw UserError(str("[generate] the temperature must be a number >= 0, got ", o.temperature));
  if (o.top_k < 0) throw UserError(str("[generate] top-k must be >= 0, got ", o.top_k));
}

// Words with spaces between them; </s> ends a line.
std::string text_of(const std::vector<int32_t>& ids, const Vocabulary& vocabulary) {
  std::string text;
  bool line_start = true;
  for (const int32_t id : ids) {
    if (id == Vocabulary::kEos) {
      text += '\n';
      line_start = true;
      continue;
    }
    text += (line_start ? "" : " ") + vocabulary.word(id);
    line_start = false;
  }
  return text;
}

}  // namespace

std::string generate_text(const std::string& directory, const GenerateOptions& options) {
  check(options);
  const Recipe recipe = recipe_of_run(directory);
  const Vocabulary vocabulary = load_vocabulary(directory);
  std::vector<int32_t> ids = prompt_ids(options.prompt, rules_of(recipe.data), vocabulary);
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  const RandomKey key = RandomKey(static_cast<uint64_t>(options.seed)).fold("generate");
  ModelState state = run.network.model->initial_state(run.ctx, 1);
  std::vector<int32_t> input = ids;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const Tensor features = run.network.model->forward(run.ctx, run.params, batch_of(input, run.ctx), state).value();
    const Tensor logits =
        run.network.loss->logits(run.ctx, run.params, features.slice(features.dim(0) - 1, features.dim(0)));
    ids.push_back(draw(logits.values<float>(), options, key.uniform(static_cast<uint64_t>(i))));
    // A model that carries no state reads the whole text again.
    input = state.empty() ? ids : std::vector<int32_t>{ids.back()};
  }
  ids.erase(ids.begin());
  return text_of(ids, vocabulary);
}

}  // namespace lmx
