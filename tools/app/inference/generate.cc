// lmx generate: samples continuations of a prompt token by token.
#include "app/inference/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/runs/run_directory.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/model.h"
#include "train/signals.h"

namespace lmx::app {
namespace {

// `ids` (rows * n), row by row.
Batch batch_of(std::span<const int32_t> ids, int64_t rows, const Context& ctx) {
  Batch batch;
  batch.inputs = Tensor::from<int32_t>(ctx.host, {rows, std::ssize(ids) / rows}, ids);
  batch.targets = batch.inputs;
  batch.slots.resize(static_cast<size_t>(rows));
  std::iota(batch.slots.begin(), batch.slots.end(), 0);
  batch.fresh.resize(batch.slots.size());
  return batch;
}

// Returns the rows `from` of the leading dimension of a tensor.
Tensor copy_rows(Context& ctx, const Tensor& tensor, const std::vector<int64_t>& from) {
  Shape shape = tensor.shape();
  shape[0] = std::ssize(from);
  const Tensor chosen = ctx.empty(shape, tensor.dtype());
  for (int64_t r = 0; r < shape[0]; ++r) {
    const int64_t at = from[static_cast<size_t>(r)];
    chosen.slice(r, r + 1).copy_from(tensor.slice(at, at + 1));
  }
  return chosen;
}

void check(const GenerateOptions& o) {
  constexpr int64_t kMost = 1'000'000'000, kMostSamples = 10'000;  // weeks of work, and gigabytes of memory
  if (o.tokens < 1 || o.tokens > kMost)
    throw UserError(str("[generate] the number of tokens must be at least 1 and at most ", kMost, ", got ", o.tokens));
  if (o.samples < 1 || o.samples > kMostSamples)
    throw UserError(
        str("[generate] the number of samples must be at least 1 and at most ", kMostSamples, ", got ", o.samples));
  if (o.samples > 1 && o.temperature == 0)
    throw UserError(str("[generate] with temperature 0 all ", o.samples, " samples are the same text"));
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    throw UserError(str("[generate] the temperature must be a number >= 0, got ", o.temperature));
  if (o.top_k < 0) throw UserError(str("[generate] top-k must be >= 0, got ", o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1))
    throw UserError(str("[generate] top-p must be a number above 0 and at most 1, got ", o.top_p));
  if (o.held && !std::isfinite(static_cast<float>(o.held_value)))
    throw UserError(str("[generate] a unit can be held at a finite value in fp32, not at ", o.held_value));
}

// UserError: the prompt, its first token included, and the tokens to draw are longer than the model's positions. The
// last token that is drawn is not read.
void check_length(const SavedRun& run, int64_t prompt, int64_t tokens) {
  const int64_t most = run.longest - prompt + 1;
  if (tokens <= most) return;
  const std::string remedy = most > 0 ? str("--tokens must be at most ", most) : "the prompt must be shorter";
  throw UserError(str("[generate] the model has positions for ", run.longest, " tokens, and a prompt of ", prompt,
                      " tokens with ", tokens, " more is longer: ", remedy));
}

// Feeds tokens to the model: first the prompt, once for all texts, then one token after the other. A held unit is set
// to its value before each token. Models without a decoding cache use forward(): with the carried state if the model
// has one, otherwise with the whole texts each time.
class Reader {
 public:
  Reader(SavedRun& run, const GenerateOptions& options) : run_(run), options_(options) {
    state_ = run.network.initial_state(run.ctx, 1);
    if (!options.held) {
      text_ = start_text(*run.network.model, run.ctx, run.params, 1);
      return;
    }
    held_ = state_name(state_, options.held->state);
    static_cast<void>(state_units(state_, held_, options.held->unit));
    const auto value = static_cast<float>(options.held_value);
    held_value_ = run.ctx.upload(Tensor::from<float>(run.ctx.host, {1}, {&value, 1}));
  }
  // Returns the logits (rows, V) of the tokens that follow `texts`. At the first call all texts are the prompt; each
  // further call reads the last token of each text.
  Tensor read(const std::vector<std::vector<int32_t>>& texts) {
    if (!std::exchange(begun_, true)) return read_prompt(texts[0], texts.size());
    std::vector<int32_t> ids;
    for (const auto& text : texts) ids.insert(ids.end(), continues() ? text.end() - 1 : text.begin(), text.end());
    if (text_) return logits(text_->step(run_.ctx, ids));
    return held_.empty() ? read_part(ids, std::ssize(texts)) : read_held(ids);
  }

 private:
  // False: the model takes the whole texts each time.
  bool continues() const { return text_ || !state_.empty(); }
  // After a signal a model with a state may leave out the last tokens.
  Tensor read_prompt(std::span<const int32_t> ids, size_t rows) {
    Tensor next;
    if (text_) {
      next = logits(text_->read(run_.ctx, ids, 1));
    } else {
      const size_t piece = !held_.empty() ? 1 : continues() ? kStatePiece : ids.size();
      for (size_t at = 0; at < ids.size() && (at == 0 || SignalGuard::received() == 0); at += piece) {
        const auto part = ids.subspan(at, std::min(piece, ids.size() - at));
        next = held_.empty() ? read_part(part, 1) : read_held(part);
      }
    }
    if (rows == 1) return next;
    const std::vector<int64_t> first(rows, 0);
    if (text_) text_->select(run_.ctx, first);
    for (auto& [name, tensor] : state_) tensor = copy_rows(run_.ctx, tensor, first);
    return copy_rows(run_.ctx, next, first);
  }
  Tensor logits(const Tensor& features) { return run_.network.loss->logits(run_.ctx, run_.params, features); }
  Tensor read_held(std::span<const int32_t> ids) {
    const Tensor& state = state_.at(held_);
    const int64_t units = state.numel() / std::ssize(ids);
    for (int64_t at = options_.held->unit; at < state.numel(); at += units)
      state.reshape({state.numel()}).slice(at, at + 1).copy_from(held_value_);
    return read_part(ids, std::ssize(ids));
  }
  Tensor read_part(std::span<const int32_t> ids, int64_t rows) {
    const Tensor features = run_.network.forward(run_.ctx, run_.params, batch_of(ids, rows, run_.ctx), state_).value();
    if (features.dim(0) == rows) return logits(features);
    std::vector<int64_t> last;
    for (int64_t end = features.dim(0) / rows; end <= features.dim(0); end += features.dim(0) / rows)
      last.push_back(end - 1);
    return logits(copy_rows(run_.ctx, features, last));
  }
  SavedRun& run_;
  const GenerateOptions& options_;
  ModelState state_;
  std::unique_ptr<Decoding> text_;  // null if the model has no cache, or if a unit of its state is held
  bool begun_ = false;              // the prompt has been read
  std::string held_;
  Tensor held_value_;  // (1)
};

// Shows the text while it grows or, without `show`, a line of progress if the work takes longer than a second.
class Progress {
 public:
  Progress(const GenerateOptions& options, const std::function<void(const std::string&)>& show)
      : options_(options), show_(show), due_(Clock::now() + (show ? kPause : std::chrono::seconds(1))) {}
  ~Progress() {
    if (shown_ && !show_) progress_line("");
  }
  template <class Text>
  void drawn(int64_t count, const Text& text) {
    if (Clock::now() < due_) return;
    if (show_)
      show_(text());
    else
      progress_line(str("drawn ", count_text(count), " of ", count_text(options_.tokens), " tokens",
                        options_.samples > 1 ? str(" of ", count_text(options_.samples), " samples") : ""));
    shown_ = true;
    due_ = Clock::now() + kPause;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{100};
  const GenerateOptions& options_;
  const std::function<void(const std::string&)>& show_;
  Clock::time_point due_;
  bool shown_ = false;
};

// The random numbers of each sample: the same however many samples there are.
std::vector<RandomKey> keys_of(const GenerateOptions& options) {
  std::vector<RandomKey> keys{RandomKey(static_cast<uint64_t>(options.seed)).fold("generate")};
  for (int64_t k = 1; k < options.samples; ++k) keys.push_back(keys[0].fold(static_cast<uint64_t>(k)));
  return keys;
}

// Draws the tokens that follow `prompt`. Returns the ids of the texts.
std::vector<std::vector<int32_t>> draw_texts(SavedRun& run, const GenerateOptions& options, int32_t unknown,
                                             const std::vector<int32_t>& prompt,
                                             const std::function<void(int64_t, const std::vector<int32_t>&)>& drawn) {
  std::vector<std::vector<int32_t>> texts(static_cast<size_t>(options.samples), prompt);
  const std::vector<RandomKey> keys = keys_of(options);
  Reader reader(run, options);
  for (int64_t i = 0; i < options.tokens && SignalGuard::received() == 0; ++i) {
    drawn(i, texts[0]);
    const auto logits = run.ctx.read<float>(reader.read(texts));
    if (SignalGuard::received() != 0) break;
    const size_t words = logits.get().size() / texts.size();
    for (size_t t = 0; t < texts.size(); ++t) {
      const double uniform = keys[t].uniform(static_cast<uint64_t>(i));
      texts[t].push_back(draw_token(logits.get().subspan(t * words, words), unknown, options, uniform));
    }
  }
  return texts;
}

}  // namespace

std::vector<std::string> generate_texts(const std::string& directory, const GenerateOptions& options,
                                        const std::function<void(const std::string& text)>& show) {
  check(options);
  const Recipe recipe = recipe_of_run(directory, options.device);
  const Vocabulary vocabulary = load_vocabulary(directory);
  RunText text(recipe, vocabulary, directory);
  const std::vector<int32_t> prompt = text.prompt(options.prompt, "[generate] the prompt");
  text.warn_of_losses("[generate] the prompt");
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  if (run.network.model->translates()) {
    throw UserError(str("[generate] ", directory, " holds a translation model, which writes nothing without a source: ",
                        "use lmx translate ", directory));
  }
  check_length(run, std::ssize(prompt), options.tokens);
  const auto written = [&](const std::vector<int32_t>& ids) {
    const std::vector<int32_t> own(ids.begin() + text.leading(), ids.end());
    return options.tokenized ? text.text_of(own) : text.detokenized(own);
  };
  std::vector<std::string> texts;
  {
    Progress progress(options, show);
    const auto drawn = [&](int64_t count, const auto& ids) { progress.drawn(count, [&] { return written(ids); }); };
    for (const auto& ids : draw_texts(run, options, vocabulary.unk(), prompt, drawn)) texts.push_back(written(ids));
  }
  return texts;
}

std::string options_for_text(const Recipe& recipe, const Vocabulary& vocabulary) {
  if (!has_text(recipe.data)) return "";
  const TextRules rules = text_rules(recipe.data);
  const bool begins =
      rules.rules.unit != Unit::subword || (rules.document_token != DocumentToken::none && vocabulary.eos() >= 0);
  const int64_t before = !begins ? 4 : rules.puri ? 2 : 1;  // tokens; "The" has at most four
  const int64_t tokens = std::clamp(longest_of(recipe.model) - before + 1, int64_t{1}, int64_t{40});
  return str(begins ? "" : "--prompt The ", "--tokens ", tokens);
}

namespace {

// Orders ids by their logits, largest first.
struct Likelier {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

// Keeps the likeliest ids of `order` whose probabilities sum up to `top_p`, but at least one.
void keep_top_p(std::vector<int32_t>& order, std::span<const float> logits, const GenerateOptions& options) {
  const auto logit = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::sort(order.begin(), order.end(), Likelier{logits});
  const auto weight = [&](int32_t id) { return std::exp((logit(id) - logit(order[0])) / options.temperature); };
  double sum = 0, kept = 0;
  for (const int32_t id : order) sum += weight(id);
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.top_p * sum)) kept += weight(order[count++]);
  order.resize(count);
  std::sort(order.begin(), order.end());
}

}  // namespace

int32_t draw_token(std::span<const float> logits, int32_t without, const GenerateOptions& options, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase(order, without);
  LMX_CHECK(!order.empty(), "no id to choose from ", logits.size(), " logits");
  const Likelier likelier{logits};
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + options.top_k - 1, order.end(), likelier);
    order.resize(static_cast<size_t>(options.top_k));
    std::sort(order.begin(), order.end());  // nth_element leaves an order that may differ between standard libraries
  }
  if (options.top_p < 1) keep_top_p(order, logits, options);
  float top = -INFINITY;
  for (const int32_t id : order) top = std::max(top, logits[static_cast<size_t>(id)]);
  std::vector<double> sums(order.size());
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i)
    sums[i] = sum += std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / options.temperature);
  const auto at = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return order[std::min(static_cast<size_t>(at - sums.begin()), order.size() - 1)];
}

}  // namespace lmx::app
