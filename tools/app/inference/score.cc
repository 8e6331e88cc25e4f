// lmx score for a language model: the likelihood of each line of a text, independent of the other lines.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/inference/score.h"
#include "app/runs/run_directory.h"
#include "base/json_object.h"
#include "base/output_file.h"
#include "base/text.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {
namespace {

using namespace train;
using Ids = std::vector<int32_t>;  // of a line: the token before it, then its targets

constexpr int64_t kBatchesPerWindow = 64;
constexpr int64_t kBatchTokens = 1 << 15;  // tokens per forward pass
constexpr int64_t kPiece = 512;            // steps that a recurrent model reads at a time

int64_t targets_of(const Ids& line) {
  return std::max<int64_t>(0, std::ssize(line) - 1);
}

class LineScorer {
 public:
  LineScorer(SavedRun& run, const ScoreLinesOptions& options) : run_(run), options_(options) {}

  // Returns the log-likelihoods of the lines in nats; -inf for a line that is too long.
  std::vector<double> score(const std::vector<Ids>& lines) {
    std::vector<double> sums(lines.size(), 0);
    std::vector<size_t> order;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (targets_of(lines[i]) > options_.max_length)
        sums[i] = -INFINITY;
      else if (targets_of(lines[i]) > 0)
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lines[a].size() < lines[b].size(); });
    for (size_t first = 0; first < order.size();) {
      size_t end = first + 1;
      while (end < order.size() && static_cast<int64_t>(end - first) < options_.batch &&
             static_cast<int64_t>(end + 1 - first) * targets_of(lines[order[end]]) <= kBatchTokens)
        ++end;
      score_batch(lines, std::span(order).subspan(first, end - first), sums);
      first = end;
    }
    return sums;
  }

 private:
  // Scores the lines as one batch, each padded at its end to the longest. Padding does not change the results before
  // it.
  void score_batch(const std::vector<Ids>& lines, std::span<const size_t> numbers, std::vector<double>& sums) {
    const auto rows = static_cast<int64_t>(numbers.size());
    const int64_t longest = targets_of(lines[numbers.back()]);
    ModelState state = run_.network.model->initial_state(run_.ctx, rows);
    const int64_t piece = state.empty() ? longest : kPiece;
    for (int64_t begin = 0; begin < longest; begin += piece) {
      const int64_t steps = std::min(piece, longest - begin);
      const auto nats = run_.ctx.read<float>(nats_of(batch_of(lines, numbers, begin, steps), state));
      const std::span<const float> at = nats.get();
      for (int64_t row = 0; row < rows; ++row) {
        const size_t line = numbers[static_cast<size_t>(row)];
        const int64_t own = std::clamp<int64_t>(targets_of(lines[line]) - begin, 0, steps);
        for (int64_t t = 0; t < own; ++t) sums[line] -= static_cast<double>(at[static_cast<size_t>(row * steps + t)]);
      }
    }
  }

  Batch batch_of(const std::vector<Ids>& lines, std::span<const size_t> numbers, int64_t begin, int64_t steps) const {
    const auto rows = static_cast<int64_t>(numbers.size());
    Ids inputs(static_cast<size_t>(rows * steps)), targets(inputs.size());
    Batch batch;
    for (int64_t row = 0; row < rows; ++row) {
      const Ids& line = lines[numbers[static_cast<size_t>(row)]];
      const int64_t own = std::clamp<int64_t>(targets_of(line) - begin, 0, steps);
      std::copy_n(line.begin() + begin, own, inputs.begin() + row * steps);
      std::copy_n(line.begin() + begin + 1, own, targets.begin() + row * steps);
      batch.slots.push_back(row);
      batch.fresh.push_back(begin == 0);
    }
    batch.inputs = Tensor::from<int32_t>(run_.ctx.host, {rows, steps}, inputs);
    batch.targets = Tensor::from<int32_t>(run_.ctx.host, {rows, steps}, targets);
    return batch;
  }

  Tensor nats_of(const Batch& batch, ModelState& state) {
    const Var features = run_.network.model->forward(run_.ctx, run_.params, batch, state);
    return run_.network.loss->evaluate(run_.ctx, run_.params, features.value(),
                                       batch.targets.reshape({batch.targets.numel()}));
  }

  SavedRun& run_;
  const ScoreLinesOptions& options_;
};

void check(const ScoreLinesOptions& o) {
  if (o.batch < 1 || o.max_length < 1)
    throw UserError(
        str("[score] a batch and the greatest length must be at least 1, got ", o.batch, " and ", o.max_length));
}

// Returns one output line per line of text, and adds to the totals.
std::string text_of(const std::vector<Ids>& lines, const std::vector<double>& sums, bool json, LineScores& total) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool scored = std::isfinite(sums[i]);
    const int64_t tokens = scored ? targets_of(lines[i]) : 0;
    text += score_line(total.lines + total.too_long, sums[i], tokens, json);
    total.lines += scored;
    total.too_long += !scored;
    total.tokens += tokens;
    if (scored) total.nats -= sums[i];
  }
  return text;
}

}  // namespace

LineScores score_lines(const std::string& directory, const ScoreLinesOptions& options, const std::string& input,
                       const std::string& output) {
  check(options);
  const Recipe recipe = recipe_of_run(directory, options.device);
  const Vocabulary vocabulary = load_vocabulary(directory);
  SavedRun run(directory, recipe, vocabulary, options.checkpoint);
  if (run.network.model->translates())
    throw UserError(str("[score] ", directory,
                        " holds a model that translates: name SRC and TGT, a file of each side, "
                        "or --tsv and files with a pair a line"));
  RunText text(recipe, vocabulary, directory);
  LineScorer scorer(run, options);
  Windows windows(input, options.batch * kBatchesPerWindow);
  OutputFile out(output);
  LineScores total;
  total.unit = text.unit_name();
  int64_t read = 0;
  for (Lines window; !(window = windows.next()).empty();) {
    std::vector<Ids> ids;
    for (const std::string& line : window) ids.push_back(text.line(line, str("[score] ", input, ":", ++read)));
    out.write(text_of(ids, scorer.score(ids), options.json, total));
    progress_line(str("scored ", count_text(read), " lines"));
  }
  out.close();
  progress_line("");
  text.warn_of_losses("[score] the text");
  total.unknown = text.unknown();
  if (total.too_long > 0)
    log_warn(str("[score] ", total.too_long, " lines have more than ", options.max_length,
                 " tokens and are not scored (-inf); --max-length raises the limit"));
  return total;
}

}  // namespace lmx

namespace lmx::train {

std::string score_line(int64_t line, double sum, int64_t tokens, bool json) {
  const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : sum;
  if (json) return JsonObject().add("line", line).add("mean", mean).add("sum", sum).add("tokens", tokens).text() + "\n";
  char text[96];
  std::snprintf(text, sizeof text, "%.6f\t%.6f\t%lld\n", mean, sum, static_cast<long long>(tokens));
  return text;
}

}  // namespace lmx::train
