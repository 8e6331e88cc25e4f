#include "train/pair_costs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/error.h"
#include "lmx/pair_batches.h"
#include "train/signals.h"

namespace lmx {
namespace {

// Two neighbouring points of an axis with `parts` points between powers of two, and the relative position of x between
// them (0 at the lower, 1 at the upper one).
struct Between {
  int64_t low, high;
  double share;
};
Between between(int64_t x, int64_t parts) {
  int64_t base = 1;
  while (2 * base <= x) base *= 2;
  const int64_t step = std::max<int64_t>(1, base / parts);
  const int64_t low = base + (x - base) / step * step;
  return {low, low + step, static_cast<double>(x - low) / static_cast<double>(step)};
}

// The grid is fine enough that a point is at most about twice as large as the requested sub-batch: the point must also
// fit into memory.
constexpr int64_t kSentences = 2, kLength = 2;

TokenArray sentences_of(int64_t n, int64_t length, int64_t vocabulary, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<int32_t> ids(static_cast<size_t>(n * length), Vocabulary::kEos);
  for (size_t i = 0; i < ids.size(); ++i)
    if ((i + 1) % static_cast<size_t>(length) != 0)
      ids[i] = static_cast<int32_t>(2 + key.below(i, static_cast<uint64_t>(std::max<int64_t>(vocabulary - 2, 1))));
  return TokenArray::of(std::move(ids));
}

}  // namespace

PairCosts::PairCosts(Measure measure) : measure_(std::move(measure)) {}

PairCosts::PairCosts(const std::string& text, std::string from) : from_(std::move(from)) {
  try {
    const auto table = nlohmann::json::parse(text);
    for (const auto& row : table.at("seconds"))
      table_[{row.at(0).get<int64_t>(), row.at(1).get<int64_t>(), row.at(2).get<int64_t>()}] = row.at(3).get<double>();
  } catch (const nlohmann::json::exception& e) {
    throw UserError(str("[batcher] ", from_, ", the times of sub-batches, is damaged: ", e.what()));
  }
}

double PairCosts::entry(const Shape3& shape) {
  const auto found = table_.find(shape);
  if (found != table_.end()) return found->second;
  if (!measure_)
    throw UserError(str("[batcher] ", from_, " has no time of ", shape[0], " sentences of ", shape[1], " and ",
                        shape[2],
                        " tokens: it is not this recipe's, so the run's order of sub-batches cannot be repeated"));
  return table_[shape] = measure_(shape, 2);  // the first repeat also packs weights and allocates memory
}

bool PairCosts::settle() {
  if (!measure_ || table_.empty()) return false;
  for (int round = 0; round < 2; ++round)
    for (auto& [shape, seconds] : table_) seconds = std::min(seconds, measure_(shape, 1));
  return true;
}

double PairCosts::seconds(int64_t sentences, int64_t source, int64_t target) {
  LMX_CHECK(sentences > 0 && source > 0 && target > 0, sentences, " x ", source, " x ", target);
  const Between n = between(sentences, kSentences), s = between(source, kLength), t = between(target, kLength);
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    const bool up[] = {(corner & 1) != 0, (corner & 2) != 0, (corner & 4) != 0};
    const double share =
        (up[0] ? n.share : 1 - n.share) * (up[1] ? s.share : 1 - s.share) * (up[2] ? t.share : 1 - t.share);
    if (share > 0) sum += share * entry({up[0] ? n.high : n.low, up[1] ? s.high : s.low, up[2] ? t.high : t.low});
  }
  return sum;
}

std::string PairCosts::to_json() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [shape, seconds] : table_) rows.push_back({shape[0], shape[1], shape[2], seconds});
  return nlohmann::json{{"columns", {"sentences", "source", "target", "seconds"}}, {"seconds", rows}}.dump() + "\n";
}

double measure_pairs(Context& ctx, const Network& network, ParameterStore& params, int64_t vocabulary,
                     const PairCosts::Shape3& shape, int64_t repeats) {
  const auto [n, source, target] = shape;
  const PairArray pairs(sentences_of(n, source, vocabulary, 1), sentences_of(n, target, vocabulary, 2));
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  return time_pairs(ctx, network, params, make_pair_batch(pairs, numbers, ctx.host), repeats);
}

double time_pairs(Context& ctx, const Network& network, ParameterStore& params, const Batch& batch, int64_t repeats) {
  Tape tape;
  Context own = ctx;
  own.tape = &tape;
  double best = INFINITY;
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    SignalGuard::end_before_training();
    const auto begin = std::chrono::steady_clock::now();
    ModelState state = network.initial_state(own, batch.sequences());
    const Var features = network.forward(own, params, batch, state);
    const LossValue loss = network.loss->forward(own, params, features, batch.targets, StepPlan{});
    tape.backward(own, loss.loss, 1 / static_cast<double>(batch.tokens()));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    params.clear_gradients();
  }
  return best;
}

double macs_of_pairs(const Network& network, int64_t sentences, int64_t source, int64_t target) {
  const int64_t output = network.loss->parameters().front().shape.numel();  // the softmax of a target
  return static_cast<double>(sentences * (network.model->macs_per_pair(source, target) + target * output));
}

}  // namespace lmx
