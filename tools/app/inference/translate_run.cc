// lmx translate and lmx score: process files with a saved run, in windows of lines so that memory stays bounded.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "app/inference/evaluate_run.h"
#include "app/inference/run_text.h"
#include "app/inference/saved_run.h"
#include "app/pairs/pair_files.h"
#include "app/pairs/parallel_text.h"
#include "app/runs/run_directory.h"
#include "app/text/subwords.h"
#include "app/translation/translate.h"
#include "base/output_file.h"
#include "base/text.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/parallel.h"

namespace lmx::app {

namespace {

// Number of batches in a window. Sentences are sorted by length within a window.
constexpr int64_t kWindowBatches = 64;
constexpr size_t kChunkBytes = 1 << 20;

// A run of an encoder-decoder, with its vocabulary and codecs for text.
struct TranslationRun {
  TranslationRun(const std::string& directory, const std::string& checkpoint, const std::string& device)
      : recipe(recipe_of_run(directory, device)),
        vocabulary(load_vocabulary(directory)),
        run(directory, recipe, vocabulary, checkpoint) {
    if (!run.network.model->translates())
      throw UserError(str("[translate] ", directory,
                          " holds a language model, which does not translate; `lmx generate` draws text from it, "
                          "`lmx eval --text` and `lmx score RUN FILE` evaluate a text under it"));
    codecs = load_text_codecs(directory);
  }
  TranslationModel model() const { return {run.ctx, run.network, run.params, codecs, vocabulary.size()}; }

  Recipe recipe;
  Vocabulary vocabulary;
  SavedRun run;
  TextCodecs codecs;
};

void say_progress(const char* what, int64_t lines) {
  progress_line(str(what, " ", count_text(lines), " sentences"));
}

const std::string& words_of(const Translation& t, bool tokenized) {
  return tokenized ? t.tokens : t.text;
}

std::string best_text(const std::vector<std::vector<Translation>>& lines, bool tokenized) {
  std::string text;
  for (const std::vector<Translation>& line : lines) text += words_of(line[0], tokenized) + "\n";
  return text;
}

std::string n_best_text(const std::vector<std::vector<Translation>>& lines, bool tokenized, int64_t first) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const Translation& t : lines[i]) {
      const std::string numbers =
          format(" ||| logprob=%.4f length=%lld ||| %.6f\n", t.logprob, static_cast<long long>(t.length), t.score);
      text += str(first + static_cast<int64_t>(i), " ||| ", words_of(t, tokenized), numbers);
    }
  }
  return text;
}

struct Pair {
  std::vector<int32_t> source, target;  // with </s>
};

class PairScorer {
 public:
  PairScorer(const TranslationModel& model, const ScorePairsOptions& options) : model_(model), options_(options) {
    check_scoring(options.batch, options.max_length);
  }

  // Returns one output line for each pair.
  std::string score(const Lines& sources, const Lines& targets) {
    std::vector<Pair> pairs(sources.size());
    std::vector<size_t> order;
    for (size_t i = 0; i < pairs.size(); ++i) {
      pairs[i] = {encode_line(*model_.codecs.source, sources[i], model_.vocabulary),
                  encode_line(*model_.codecs.target, targets[i], model_.vocabulary)};
      const auto longest = static_cast<int64_t>(std::max(pairs[i].source.size(), pairs[i].target.size())) - 1;
      if (longest <= options_.max_length) order.push_back(i);
    }
    too_long_ += static_cast<int64_t>(pairs.size() - order.size());
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return pairs[a].target.size() < pairs[b].target.size(); });
    std::vector<double> sums(pairs.size(), -INFINITY);
    for (size_t first = 0; first < order.size(); first += static_cast<size_t>(options_.batch))
      score_batch(pairs,
                  std::span(order).subspan(first, std::min(order.size() - first, static_cast<size_t>(options_.batch))),
                  sums);
    std::string text;
    for (size_t i = 0; i < pairs.size(); ++i)
      text += score_line(written_++, sums[i], std::isfinite(sums[i]) ? static_cast<int64_t>(pairs[i].target.size()) : 0,
                         options_.json);
    return text;
  }

  int64_t too_long() const { return too_long_; }

 private:
  void score_batch(const std::vector<Pair>& pairs, std::span<const size_t> numbers, std::vector<double>& sums) const {
    Batch batch;
    std::vector<int32_t> inputs, targets, source;
    for (const size_t i : numbers) {
      const Pair& p = pairs[i];
      inputs.push_back(Vocabulary::kEos);
      inputs.insert(inputs.end(), p.target.begin(), p.target.end() - 1);
      targets.insert(targets.end(), p.target.begin(), p.target.end());
      source.insert(source.end(), p.source.begin(), p.source.end());
      batch.slots.push_back(static_cast<int64_t>(batch.slots.size()));
      batch.fresh.push_back(1);
      batch.lengths.push_back(static_cast<int64_t>(p.target.size()));
      batch.source_lengths.push_back(static_cast<int64_t>(p.source.size()));
    }
    Context ctx = model_.ctx;
    ctx.tape = nullptr;
    ctx.training = false;
    const auto n = static_cast<int64_t>(targets.size());
    batch.inputs = Tensor::from<int32_t>(ctx.host, {n}, inputs);
    batch.targets = Tensor::from<int32_t>(ctx.host, {n}, targets);
    batch.source = Tensor::from<int32_t>(ctx.host, {static_cast<int64_t>(source.size())}, source);
    ModelState state = model_.network.initial_state(ctx, batch.sequences());
    const Var features = model_.network.forward(ctx, model_.params, batch, state);
    const auto nll =
        ctx.read<float>(model_.network.loss->evaluate(ctx, model_.params, features.value(), batch.targets));
    auto at = nll.get().begin();
    for (const size_t i : numbers) {
      sums[i] = 0;
      for (size_t k = 0; k < pairs[i].target.size(); ++k) sums[i] -= static_cast<double>(*at++);
    }
  }

  const TranslationModel model_;
  const ScorePairsOptions options_;
  int64_t too_long_ = 0, written_ = 0;
};

// Writes scores to a file, window by window.
class ScoringRun {
 public:
  ScoringRun(const std::string& run, const ScorePairsOptions& options, const std::string& output)
      : options_(options),
        opened_(run, options.checkpoint, options.device),
        scorer_(opened_.model(), options),
        out_(output) {}
  int64_t window() const { return options_.batch * kWindowBatches; }
  int64_t pairs() const { return pairs_; }
  OutputFile& output() { return out_; }
  void write(const Lines& sources, const Lines& targets) {
    if (!sources.empty()) out_.write(scorer_.score(sources, targets));
    pairs_ += static_cast<int64_t>(sources.size());
    say_progress("scored", pairs_);
  }
  int64_t finish() {
    progress_line("");
    if (scorer_.too_long() > 0)
      log_warn(str("[score] ", scorer_.too_long(), " pairs have a side of more than ", options_.max_length,
                   " tokens and are not scored (-inf)"));
    return pairs_;
  }

 private:
  const ScorePairsOptions options_;
  const TranslationRun opened_;
  PairScorer scorer_;
  OutputFile out_;
  int64_t pairs_ = 0;
};

int64_t count_rest(Windows& windows) {
  int64_t lines = 0;
  for (size_t n; (n = windows.next().size()) > 0;) lines += static_cast<int64_t>(n);
  return lines;
}

}  // namespace

struct Translator::Impl {
  Impl(const std::string& directory, const TranslateOptions& options)
      : run(directory, options.checkpoint, options.device), translator(run.model(), options) {}
  TranslationRun run;
  TextTranslator translator;
};

Translator::Translator(const std::string& run, const TranslateOptions& options)
    : impl_(std::make_unique<Impl>(run, options)) {}
Translator::~Translator() = default;

std::vector<std::vector<Translation>> Translator::translate(std::span<const std::string> lines,
                                                            const std::function<void(int64_t)>& done) const {
  return impl_->translator.translate(lines, done);
}

const std::string& Translator::checkpoint() const {
  return impl_->run.run.checkpoint;
}

TranslatedFile translate_file(const std::string& run, const TranslateOptions& options, const std::string& input,
                              const std::string& output, const TranslationWriter& write) {
  const Translator translator(run, options);
  const auto begin = std::chrono::steady_clock::now();
  Windows windows(input, options.batch * std::max<int64_t>(kWindowBatches, num_threads()));
  OutputFile out(output);
  TranslatedFile done;
  write_lines(out, [&] {
    for (Lines window; !(window = windows.next()).empty();) {
      const auto found = translator.translate(window, [&](int64_t n) { say_progress("translated", done.lines + n); });
      out.write(write                ? write(done.lines, window, found)
                : options.n_best > 1 ? n_best_text(found, options.tokenized, done.lines)
                                     : best_text(found, options.tokenized));
      done.lines += static_cast<int64_t>(window.size());
      for (const std::vector<Translation>& line : found) done.tokens += line[0].length;
    }
  });
  progress_line("");
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done;
}

int64_t score_files(const std::string& run, const ScorePairsOptions& options, const std::string& source,
                    const std::string& target, const std::string& output) {
  if (source == "-" && target == "-") throw UserError("[score] only one side can be standard input");
  ScoringRun scoring(run, options, output);
  Windows sources(source, scoring.window()), targets(target, scoring.window());
  write_lines(scoring.output(), [&] {
    for (size_t both = 1; both > 0;) {
      Lines left = sources.next(), right = targets.next();
      both = std::min(left.size(), right.size());
      const int64_t left_over = static_cast<int64_t>(left.size() - both),
                    right_over = static_cast<int64_t>(right.size() - both);
      left.resize(both);
      right.resize(both);
      scoring.write(left, right);
      if (left_over + right_over > 0)
        throw UserError(str("[score] ", source, " has ", scoring.pairs() + left_over + count_rest(sources),
                            " lines and ", target, " has ", scoring.pairs() + right_over + count_rest(targets),
                            "; line i of one must translate line i of the other"));
    }
  });
  return scoring.finish();
}

int64_t score_pairs(const std::string& run, const ScorePairsOptions& options, const PairTextFiles& files,
                    const std::string& output) {
  const std::vector<PairFiles> found = find_pair_files(files);
  ScoringRun scoring(run, options, output);
  Lines left, right;
  const auto write = [&] {
    scoring.write(left, right);
    left.clear();
    right.clear();
  };
  PairReader reader(found, kChunkBytes, "");
  write_lines(scoring.output(), [&] {
    for (PairChunk chunk; reader.next(chunk);) {
      try {
        for_each_pair(found[chunk.file], chunk, [&](const PairLine& pair) {
          left.emplace_back(pair.source);
          right.emplace_back(pair.target);
          if (static_cast<int64_t>(left.size()) == scoring.window()) write();
        });
      } catch (const UserError&) {  // error of a line: write the lines before it
        write();
        throw;
      }
    }
    write();
  });
  return scoring.finish();
}

}  // namespace lmx::app
