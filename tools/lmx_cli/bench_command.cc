// lmx bench: seconds of a training step on a fixed workload, beside the machine's own GEMM peak.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/loss.h"
#include "lmx/matmul.h"
#include "lmx/model.h"
#include "lmx/optim.h"
#include "lmx/parallel.h"
#include "lmx/plugin.h"

namespace lmx_cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct Options {
  PluginDirectories directories;
  std::string workload = "word_lstm", precision = "all", trace;
  int64_t steps = 10, threads = 0;
  bool table = false;
};

lmx::DType compute_type(const std::string& precision) {
  return precision == "bf16" ? lmx::DType::bf16 : precision == "fp16" ? lmx::DType::f16 : lmx::DType::f32;
}

// A training step of one workload: parameters, random batches, loss, clipping, update.
class Workload {
 public:
  static constexpr int64_t kVocab = 100'000, kBatch = 32, kSteps = 20, kSamples = 1024;

  // Patwary's word model at its full size: LSTM 2048 cells, projection 512, embedding 512, sampled softmax 1024, SGD
  // 0.2, the LSTM's gradient norm clipped to 1.
  explicit Workload(lmx::Context& ctx) : ctx_(ctx) {
    const lmx::Node model = lmx::parse_yaml("{name: lstm, embedding: 512, cells: 2048, projection: 512}", "word_lstm");
    const lmx::Node loss = lmx::parse_yaml("{name: sampled_softmax, samples: 1024, bias: true}", "word_lstm");
    const lmx::Node optimizer = lmx::parse_yaml("{name: sgd, lr: 0.2}", "word_lstm");
    const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::model, model, "model");
    model_ = lmx::factory<lmx::ModelFactory>(plugin)(model, "model", {kVocab});
    loss_ = lmx::make_loss(loss, "loss", {kVocab, model_->feature_size(), nullptr});
    optimizer_ = lmx::make_optimizer(optimizer, "optimizer");
    clip_ = {{"lstm\\..*", 1.0}};
    for (const lmx::ParameterSpec& spec : model_->parameters()) params_.add(ctx, spec, lmx::RandomKey(1));
    for (const lmx::ParameterSpec& spec : loss_->parameters()) params_.add(ctx, spec, lmx::RandomKey(1));
    state_ = model_->initial_state(ctx, kBatch);
  }

  static int64_t tokens() { return kBatch * kSteps; }
  // Forward multiply-adds times 2, backward twice the forward: the analytic count of matrix products alone.
  double flops() const {
    return 6.0 * static_cast<double>(tokens()) *
           static_cast<double>(model_->macs_per_token() + loss_->macs_per_token(tokens()));
  }
  int64_t parameters() const { return params_.count(); }

  double step(int64_t number) {
    const lmx::Span span(ctx_.tracer, "step");
    const lmx::RandomKey key = lmx::RandomKey(7).fold(static_cast<uint64_t>(number));
    lmx::Batch batch;
    batch.inputs = zipf(key.fold("inputs"));
    batch.targets = zipf(key.fold("targets"));
    for (int64_t b = 0; b < kBatch; ++b) batch.slots.push_back(b);
    batch.fresh.assign(kBatch, 1);
    lmx::Tape tape;
    ctx_.tape = &tape;
    ctx_.key = key;
    lmx::ModelState state = state_;
    const lmx::Var features = model_->forward(ctx_, params_, batch, state);
    const lmx::Var loss = loss_->forward(ctx_, params_, features, batch.targets.reshape({-1}), {.sampler_key = key.fold("sampler")}).loss;
    const double nats = *loss.value().data<float>() / static_cast<double>(tokens());
    tape.backward(ctx_, loss, 1.0 / static_cast<double>(tokens()));
    ctx_.tape = nullptr;
    update(number + 1);
    return nats;
  }

 private:
  void update(int64_t step) {
    {
      const lmx::Span span(ctx_.tracer, "coalesce");
      for (const std::string& name : params_.names()) params_.at(name).grad().coalesce(ctx_);
    }
    {
      const lmx::Span span(ctx_.tracer, "clip");
      lmx::clip_gradients(ctx_, params_, clip_);
    }
    const lmx::Span span(ctx_.tracer, "update");
    for (const std::string& name : params_.names()) optimizer_->update(ctx_, params_.at(name), 0.2, step);
    params_.clear_gradients();
  }

  // Zipf-distributed ids, as in text: P(k) ~ 1/(k+1).
  lmx::Tensor zipf(lmx::RandomKey key) const {
    lmx::Tensor ids = ctx_.empty({kBatch, kSteps}, lmx::DType::i32);
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const double u = key.uniform(static_cast<uint64_t>(i));
      const auto id = static_cast<int64_t>(std::exp(u * std::log(kVocab + 1.0)) - 1.0);
      ids.data<int32_t>()[i] = static_cast<int32_t>(std::min(id, kVocab - 1));
    }
    return ids;
  }

  lmx::Context& ctx_;
  lmx::ParameterStore params_;
  std::unique_ptr<lmx::Model> model_;
  std::unique_ptr<lmx::Loss> loss_;
  std::unique_ptr<lmx::Optimizer> optimizer_;
  std::vector<lmx::ClipRule> clip_;
  lmx::ModelState state_;
};

// Median GFLOP/s of a 2048^3 product in the workload's precision.
double gemm_peak(lmx::Context& ctx) {
  constexpr int64_t kSize = 2048;
  lmx::Tensor a = ctx.empty({kSize, kSize}), c = ctx.empty({kSize, kSize});
  lmx::initialise(a, {"uniform", 1.0}, lmx::RandomKey(3));
  const lmx::Tensor in = lmx::to_compute(ctx, a);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto start = Clock::now();
    lmx::gemm(ctx, in, false, in, false, c);
    if (i >= 2) times.push_back(seconds_since(start));
  }
  return 2.0 * kSize * kSize * kSize / median(times) / 1e9;
}

int64_t peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

double rounded(double value, double unit) {
  return std::round(value / unit) * unit;
}

void measure(const Options& options, const std::string& precision) {
  lmx::Context ctx;
  ctx.compute = compute_type(precision);
  lmx::Tracer tracer;
  Workload workload(ctx);
  for (int64_t i = 0; i < 3; ++i) workload.step(i);
  if (!options.trace.empty() || options.table) ctx.tracer = &tracer;
  std::vector<double> times;
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = Clock::now();
    const double nats = workload.step(3 + i);
    times.push_back(seconds_since(start));
    if (!std::isfinite(nats)) throw lmx::RunError(lmx::str("[bench] the loss of step ", i, " is ", nats));
  }
  ctx.tracer = nullptr;
  const int64_t rss = peak_rss_mb();  // before the peak's own matrices
  const double step = median(times), peak = gemm_peak(ctx), gflops = workload.flops() / step / 1e9;
  const nlohmann::ordered_json line{{"lmx", lmx::kVersion},
                                    {"workload", options.workload},
                                    {"scale", "cpu"},
                                    {"precision", precision},
                                    {"mode", lmx::cpu_isa()},
                                    {"threads", lmx::num_threads()},
                                    {"device", lmx::name_of(ctx.device)},
                                    {"step_s", rounded(step, 1e-5)},
                                    {"tokens_per_s", rounded(static_cast<double>(Workload::tokens()) / step, 0.1)},
                                    {"gflops", rounded(gflops, 0.1)},
                                    {"gemm_peak_gflops", rounded(peak, 0.1)},
                                    {"efficiency", rounded(gflops / peak, 1e-3)},
                                    {"peak_rss_mb", rss},
                                    {"params", workload.parameters()}};
  std::cout << line.dump() << std::endl;
  if (options.table) std::cerr << tracer.table();
  if (!options.trace.empty()) tracer.write(options.trace);
}

void bench(const Options& options) {
  const std::vector<std::string> workloads{"word_lstm"}, precisions{"fp32", "bf16", "fp16"};
  if (options.workload != "word_lstm") {
    throw lmx::UserError(lmx::str("[bench] unknown workload '", options.workload, "'",
                                  lmx::did_you_mean(options.workload, workloads), "; there is word_lstm"));
  }
  if (options.precision != "all" &&
      std::find(precisions.begin(), precisions.end(), options.precision) == precisions.end()) {
    throw lmx::UserError(lmx::str("[bench] unknown precision '", options.precision, "'",
                                  lmx::did_you_mean(options.precision, precisions), "; one of fp32, bf16, fp16, all"));
  }
  if (options.steps < 1)
    throw lmx::UserError(lmx::str("[bench] --steps ", options.steps, ": at least one step is timed"));
  if (options.threads < 0) throw lmx::UserError(lmx::str("[bench] --threads ", options.threads, " is negative"));
  if (options.threads) lmx::set_num_threads(static_cast<int>(options.threads));
  options.directories.load();
  for (const std::string precision : {"fp32", "bf16"}) {
    if (options.precision == "all" || options.precision == precision) {
      if (precision == "bf16" && !lmx::cpu_has_bf16()) {
        lmx::log_info("this CPU has no bf16 instructions: bf16 products round their inputs and run in fp32");
      }
      measure(options, precision);
    }
  }
  if (options.precision == "fp16") measure(options, "fp16");
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "time a training step and compare it with the GEMM peak");
  set_examples(*command,
               {{"lmx bench word_lstm --precision fp32", "one JSON line: step_s, tokens_per_s, gflops, efficiency"},
                {"lmx bench word_lstm --table", "where the step's time goes, on stderr"},
                {"lmx bench --precision bf16 --trace t.json", "the same as a Chrome trace (ui.perfetto.dev)"}});
  command->add_option("WORKLOAD", options->workload, "word_lstm: Patwary's word model at its full size, 32 x 20 words")
      ->type_name("")
      ->capture_default_str();
  command->add_option("--precision", options->precision, "fp32, bf16, fp16, or all (fp32 and bf16)")
      ->type_name("P")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "steps timed after three that are not; the median counts")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads; 0: all cores")->type_name("N")->capture_default_str();
  command->add_option("--trace", options->trace, "write a Chrome trace of the timed steps")->type_name("FILE");
  command->add_flag("--table", options->table, "print the time of each part of the step to stderr");
  options->directories.add_to(*command);
  command->callback([options] { bench(*options); });
}

}  // namespace lmx_cli
