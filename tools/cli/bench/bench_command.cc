// lmx bench: seconds of a training step on a fixed workload, compared with the machine's own GEMM peak; the work of
// batchers, and the composition of recipes.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/bench/batcher_bench.h"
#include "app/compose/compose.h"
#include "app/records/records.h"
#include "app/run/shipped.h"
#include "cli/bench/bench.h"
#include "cli/commands.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"
#include "recipe/components.h"
#include "recipe/recipe.h"

namespace lmx::app::cli {
namespace {

namespace fs = std::filesystem;

// `lmx bench batchers`: padding and stragglers of each batcher of parallel text, one JSON line per batcher.

struct BatchersBench {
  BatcherBenchOptions options;
  std::string model = "{name: transformer, encoder_layers: 3, decoder_layers: 3, d: 256, ffn: 1024, heads: 4}";
  std::vector<std::string> batchers{"token_budget", "same_shape", "time_balanced"};
  bool quick = false;  // use a tiny model and few pairs instead of `options`
};

// Returns options with which the benchmark ends in seconds on one core. They test that everything works, not the speed.
BatcherBenchOptions quick_options(BatcherBenchOptions o) {
  o.model = parse_yaml("{name: transformer, encoder_layers: 1, decoder_layers: 1, d: 32, ffn: 64, heads: 2}", "");
  o.vocabulary = 500;
  o.pairs = std::min<int64_t>(o.pairs, 2000);
  o.max_tokens = std::min<int64_t>(o.max_tokens, 400);
  o.ranks = std::min<int64_t>(o.ranks, 4);
  o.steps = std::min<int64_t>(o.steps, 2);
  o.repeats = 1;
  return o;
}

void bench_batchers(const BatchersBench& asked) {
  BatchersBench o = asked;
  o.options.model = parse_option(o.model, "--model");
  if (o.quick) o.options = quick_options(o.options);
  for (const std::string& name : o.batchers) {
    Context ctx;
    const BatcherBench b = bench_batcher(ctx, name, o.options);
    const nlohmann::ordered_json line{{"lmx", kVersion},
                                      {"workload", "batchers"},
                                      {"batcher", name},
                                      {"max_tokens", o.options.max_tokens},
                                      {"ranks", o.options.ranks},
                                      {"threads", num_threads()},
                                      {"sub_batches", b.sub_batches},
                                      {"sentences", rounded(b.sentences, 10)},
                                      {"target_tokens", rounded(b.target_tokens, 10)},
                                      {"padding", rounded(b.padding, 1e4)},
                                      {"steps", b.timed},
                                      {"sub_batch_s", rounded(b.mean_s, 1e5)},
                                      {"spread", rounded(b.spread, 1e4)},
                                      {"tokens_per_s", rounded(b.tokens_per_s, 10)},
                                      {"table_entries", b.table},
                                      {"table_s", rounded(b.table_s, 10)}};
    std::cout << line.dump() << std::endl;
  }
}

void add_batchers_options(Command command, BatchersBench& o) {
  const auto number = [&](const char* option, int64_t& value, const char* help) {
    command.add_option(option, value, help).show_default();
  };
  command.add_option("--batchers NAMES", o.batchers, "for batchers: names of batchers, separated by commas")
      .separated_by_commas()
      .show_default();
  command.add_option("--model VALUES", o.model, "for batchers: values of the model, written as in an override")
      .show_default();
  command.add_flag("--quick", o.quick,
                   "a tiny model and few tokens or pairs, to see that it works; the times mean nothing");
  number("--max-tokens N", o.options.max_tokens, "for batchers: target tokens of a sub-batch");
  number("--ranks N", o.options.ranks, "for batchers: sub-batches of a step, timed one after the other on all threads");
  number("--pairs N", o.options.pairs, "for batchers: generated pairs, with the lengths of news text in subwords");
  number("--repeats N", o.options.repeats,
         "for batchers: number of measurements of each sub-batch; the fastest counts");
}

// `lmx bench compose`: the time to compose and check recipes, one JSON line per recipe.

struct ComposeBench {
  std::vector<std::string> recipes;  // files; empty: those of ./recipes
};

std::vector<std::string> recipes_here() {
  std::vector<std::string> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("recipes", none))
    if (entry.path().extension() == ".yaml") found.push_back(entry.path().string());
  if (found.empty())
    throw UserError("[bench] no recipes: the current folder has no recipes/*.yaml; name some by --recipe FILE");
  std::sort(found.begin(), found.end());
  return found;
}

// Counts the fields at all levels.
int64_t values_of(const Node& node) {
  int64_t n = node.kind == Node::Kind::map || node.kind == Node::Kind::list ? 0 : 1;
  for (const Node& item : node.items) n += values_of(item);
  for (const auto& [key, value] : node.entries) n += values_of(value);
  return n;
}

void add_compose_options(Command command, ComposeBench& o) {
  command.add_option("--recipe FILE", o.recipes,
                     "for compose: a recipe (repeatable); by default all recipes of ./recipes");
}

// UserError: no recipe, or one that cannot be composed.
void bench_compose(const ComposeBench& o, int64_t repeats) {
  const ComposeOptions options = with_plugins({});
  for (const std::string& recipe : o.recipes.empty() ? recipes_here() : o.recipes) {
    const std::string name = fs::path(recipe).stem().string();
    std::vector<double> times;
    int64_t values = 0;
    for (int64_t i = 0; i <= repeats; ++i) {
      const auto start = BenchClock::now();
      values = values_of(full_recipe(app::compose(recipe, options), name));
      if (i > 0) times.push_back(seconds_since(start));  // the first one also loads the plugins
    }
    const nlohmann::ordered_json line{
        {"lmx", kVersion},
        {"workload", "compose"},
        {"recipe", name},
        {"values", values},
        {"ms", rounded(median(times) * 1e3, 100)},
        {"slowest_ms", rounded(*std::max_element(times.begin(), times.end()) * 1e3, 100)}};
    std::cout << line.dump() << std::endl;
  }
}

// `lmx bench`: the steps of workloads.

struct BenchFlags {
  PluginDirectories directories;
  std::string workload = "word_lstm", precision = "all", products = "exact", device = "cpu", scale = "cpu", trace;
  int64_t steps = 10, threads = 0;
  BatchersBench batchers;
  ComposeBench compose;
  bool table = false, counts = false;
};

Arithmetic arithmetic_of(const BenchFlags& options, const std::string& precision) {
  const DType compute = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  return {compute, products_named(options.products)};
}

// Until a device has done all its work.
void wait_for(Device device) {
  if (device.kind == Device::Kind::cuda) cuda_device(device).fence()->wait();
}

DeviceCounts counts_of(Device device) {
  return device.kind == Device::Kind::cuda ? cuda_device(device).counts() : DeviceCounts();
}

// Median GFLOP/s of size^3 products in the workload's precision.
struct GemmPeak {
  double plain;   // gemm() with two plain matrices
  double packed;  // with a matrix that was packed before
};
GemmPeak gemm_peak(Context& ctx, int64_t size) {
  Tensor values = Tensor::empty(ctx.host, {size, size}, DType::f32), c = ctx.empty({size, size});
  initialise(values, {"uniform", 1.0}, RandomKey(3));
  const Tensor a = ctx.upload(values), in = to_compute(ctx, a);
  const PackedMatrix packed(ctx, a, false, size);
  const auto gflops = [&](const auto& multiply) {
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      const auto start = BenchClock::now();
      multiply();
      wait_for(ctx.device);
      if (i >= 2) times.push_back(seconds_since(start));
    }
    const auto n = static_cast<double>(size);
    return 2 * n * n * n / median(times) / 1e9;
  };
  return {gflops([&] { gemm(ctx, in, false, in, false, c); }), gflops([&] { packed.multiply(ctx, in, c); })};
}

int64_t peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

constexpr int64_t kWarmUp = 3;  // steps before those that are timed

struct StepTimes {
  std::vector<double> seconds;
  DeviceCounts counts;  // of the last step
};

// On a device a step is enqueued while the one before it is computed, and lasts from the end of that one to its own
// end. The first step lasts from the time when the host begins with it.
StepTimes time_steps(Workload& workload, Device device, int64_t steps) {
  StepTimes times;
  const auto enqueue = [&](int64_t i) {
    const DeviceCounts before = counts_of(device);
    const Reading<float> loss = workload.step(kWarmUp + i);
    times.counts = counts_of(device).since(before);
    return loss;
  };
  const bool ahead = device.kind == Device::Kind::cuda;
  Reading<float> next;
  auto start = BenchClock::now();
  for (int64_t i = 0; i < steps; ++i) {
    const Reading<float> loss = ahead && i > 0 ? next : enqueue(i);
    if (ahead && i + 1 < steps) next = enqueue(i + 1);
    const double nats = static_cast<double>(loss.value()) / static_cast<double>(workload.tokens());
    times.seconds.push_back(seconds_since(start));
    start = BenchClock::now();
    if (!std::isfinite(nats)) throw RunError(str("[bench] the loss of step ", i, " is ", nats));
  }
  return times;
}

void measure(const BenchFlags& options, const std::string& precision) {
  Context ctx;
  compute_on(ctx, device_named(options.device, "[bench] --device "));
  const Arithmetic arithmetic = arithmetic_of(options, precision);
  ctx.compute = arithmetic.compute;
  ctx.products = arithmetic.products;
  const WorkloadScale scale{options.scale == "paper", options.batchers.quick};
  const bool on_cpu = ctx.device.kind == Device::Kind::cpu;
  Tracer tracer;
  const std::unique_ptr<Workload> workload = make_workload(options.workload, ctx, scale);
  for (int64_t i = 0; i < kWarmUp; ++i) workload->step(i);
  wait_for(ctx.device);
  if (!options.trace.empty() || options.table) {
    ctx.tracer = &tracer;
    if (!on_cpu) tracer.measure_device(cuda_device(ctx.device).clock());
  }
  const auto [times, counts] = time_steps(*workload, ctx.device, options.steps);
  ctx.tracer = nullptr;
  const int64_t rss = peak_rss_mb();  // measured before gemm_peak() allocates its matrices
  const CountedWorkload work = count_workload(options.workload, ctx.device.kind, arithmetic, scale);
  const double step = median(times), gflops = work.flops / step / 1e9;
  const GemmPeak peak = gemm_peak(ctx, scale.quick ? 64 : 2048);
  nlohmann::ordered_json line{{"lmx", kVersion},
                              {"workload", options.workload},
                              {"scale", scale.quick ? "quick" : options.scale},
                              {"precision", precision},
                              {"products", options.products},
                              {"mode", on_cpu ? cpu_isa() : "cuda"},
                              {"threads", num_threads()},
                              {"device", name_of(ctx.device)},
                              {"step_s", rounded(step, 1e5)},
                              {"tokens_per_s", rounded(static_cast<double>(workload->tokens()) / step, 10)},
                              {"gflops", rounded(gflops, 10)},
                              {"gemm_peak_gflops", rounded(peak.plain, 10)},
                              {"packed_peak_gflops", rounded(peak.packed, 10)},
                              {"efficiency", rounded(gflops / peak.plain, 1e3)},
                              {"peak_rss_mb", rss},
                              {"params", workload->parameters()}};
  const auto json_of = [](const Node& part) { return nlohmann::ordered_json::parse(to_json(part)); };
  line["model"] = json_of(workload->model_config());
  line["loss"] = json_of(workload->loss_config());
  line["optimizer"] = json_of(workload->optimizer_config());
  if (options.counts) line["counts"] = counts_json(counts);
  std::cout << line.dump() << std::endl;
  if (options.counts) std::cerr << counts_table(counts);
  if (options.table) std::cerr << tracer.table();
  if (!options.trace.empty()) tracer.write(options.trace);
}

// Whether a step is counted and not timed: --counts on a CPU, or for a GPU on a machine that has none.
bool counts_only(const BenchFlags& options) {
  if (!options.counts) return false;
  try {
    return device_named(options.device, "").kind == Device::Kind::cpu;
  } catch (const UserError&) {
    return options.device == "cuda";
  }
}

void show_counts(const BenchFlags& options, const std::string& precision) {
  const bool cuda = options.device == "cuda";
  const WorkloadScale scale{options.scale == "paper", options.batchers.quick};
  const CountedWorkload work = count_workload(options.workload, cuda ? Device::Kind::cuda : Device::Kind::cpu,
                                              arithmetic_of(options, precision), scale);
  const nlohmann::ordered_json line{{"lmx", kVersion},
                                    {"workload", options.workload},
                                    {"scale", scale.quick ? "quick" : options.scale},
                                    {"precision", precision},
                                    {"products", options.products},
                                    {"device", cuda ? "cuda" : "cpu"},
                                    {"counted", true},
                                    {"gflop", rounded(work.flops / 1e9, 1e3)},
                                    {"peak_bytes", work.memory.total_peak},
                                    {"counts", counts_json(work.counts)}};
  std::cout << line.dump() << std::endl;
  std::cerr << counts_table(work.counts);
}

// UserError: options that the workload does not read.
void check_workload(Command command, const BenchFlags& options) {
  const bool batchers = options.workload == "batchers", compose = options.workload == "compose";
  const std::string where = "by " + options.workload;
  if (batchers || compose)
    refuse_given(command, {"--device", "--scale", "--precision", "--products", "--counts", "--trace", "--table"}, where);
  if (!batchers)
    refuse_given(command, {"--batchers", "--model", "--max-tokens", "--ranks", "--pairs", "--repeats"}, where);
  if (compose) refuse_given(command, {"--quick", "--threads"}, where);
  if (!compose) refuse_given(command, {"--recipe"}, where);
}

// UserError: there is no such device, or no step is timed there whose parts could be shown.
void check_device(Command command, const BenchFlags& options) {
  if (counts_only(options))
    return refuse_given(command, {"--trace", "--table"}, "with --counts if there is no GPU: the step is not timed");
  static_cast<void>(device_named(options.device, "[bench] --device "));
}

// UserError if --products asks for tensor cores that a measurement would not use.
void check_products(const BenchFlags& options) {
  if (options.products == "exact") return;
  const std::string begin = str("[bench] --products ", options.products, ": ");
  if (options.precision != "fp32")
    throw UserError(str(begin, "it says how products of fp32 are computed; add --precision fp32"));
  const bool on_cpu =
      counts_only(options) ? options.device != "cuda" : device_named(options.device, "").kind == Device::Kind::cpu;
  if (on_cpu)
    throw UserError(str(begin, "it runs on the tensor cores of a GPU, and --device ", options.device,
                        " computes on the CPU; add --device cuda"));
}

const std::vector<std::string> kPrecisions{"fp32", "bf16", "fp16", "all"}, kProducts{"exact", "tf32", "bf16x3"},
    kScales{"cpu", "paper"};

// UserError, with the nearest allowed value.
void check_choice(const std::string& what, const std::string& value, const std::vector<std::string>& allowed,
                  const std::string& list) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw UserError(str("[bench] unknown ", what, " '", value, "'", did_you_mean(value, allowed), "; ", list, " ",
                      config::join(allowed)));
}

// Returns the training steps, and the two workloads that are none.
std::vector<std::string> all_workloads() {
  std::vector<std::string> names = workload_names();
  names.insert(names.end(), {"batchers", "compose"});
  return names;
}

void bench(Command command, BenchFlags& options) {
  check_choice("workload", options.workload, all_workloads(), "there are");
  check_choice("precision", options.precision, kPrecisions, "one of");
  check_choice("value of --products", options.products, kProducts, "one of");
  check_choice("scale", options.scale, kScales, "one of");
  if (options.steps < 1) throw UserError(str("[bench] --steps ", options.steps, ": at least one step is timed"));
  if (options.threads < 0) throw UserError(str("[bench] --threads ", options.threads, " is negative"));
  check_workload(command, options);
  check_device(command, options);
  check_products(options);
  if (options.threads) set_num_threads(static_cast<int>(options.threads));
  options.directories.load();
  if (options.workload == "batchers") {
    options.batchers.options.steps = options.steps;
    return bench_batchers(options.batchers);
  }
  if (options.workload == "compose") return bench_compose(options.compose, options.steps);
  for (const std::string precision : {"fp32", "bf16"}) {
    if (options.precision == "all" || options.precision == precision) {
      if (precision == "bf16" && options.device == "cpu" && multiplies_in_f32(DType::bf16)) {
        log_info("this CPU multiplies bf16 no faster than fp32: products round their inputs and run in fp32");
      }
      counts_only(options) ? show_counts(options, precision) : measure(options, precision);
    }
  }
  if (options.precision == "fp16") counts_only(options) ? show_counts(options, "fp16") : measure(options, "fp16");
}

}  // namespace

void add_bench(Command app) {
  auto options = std::make_shared<BenchFlags>();
  const Command command = app.add_subcommand("bench", "time a training step and compare it with the GEMM peak");
  set_examples(command,
               {{"lmx bench word_lstm --precision fp32", "one JSON line: step_s, tokens_per_s, gflops, efficiency"},
                {"lmx bench char_mlstm", "characters; also char_rhn"},
                {"lmx bench nmt_transformer --precision bf16", "translation; also as --precision fp16"},
                {"lmx bench gpt --precision bf16", "a decoder-only language model"},
                {"lmx bench word_lstm --table", "the time of each part of the step, on stderr"},
                {"lmx bench word_lstm --device cuda --counts", "with its kernels, copies and waits; needs no GPU"},
                {"lmx bench char_rhn --device cuda --scale paper", "the size of the paper, for a GPU"},
                {"lmx bench word_lstm --device cuda --precision fp32 --products tf32", "fp32 on tensor cores"},
                {"lmx bench batchers --steps 6", "padding and stragglers of the batchers of parallel text"},
                {"lmx bench compose", "milliseconds in which each recipe of ./recipes is composed and checked"},
                {"lmx bench --precision bf16 --trace t.json", "the same as a Chrome trace (ui.perfetto.dev)"}});
  command
      .add_option(
          "WORKLOAD", options->workload,
          "word_lstm: Patwary's word model at its full size, 32 x 20 words; char_mlstm: a multiplicative LSTM of 1,024 "
          "cells, 32 x 64 bytes; char_rhn: a recurrent highway network of 512 units and depth 10, 32 x 50 characters; "
          "nmt_transformer: a base Transformer, 64 pairs of 24 and 26 words; gpt: a decoder of 6 layers of width "
          "384, 8 x 256 tokens (--scale has larger sizes); batchers: sub-batches of translation over 8 ranks; compose: "
          "composing and checking of recipes")
      .offers(all_workloads())
      .show_default();
  command
      .add_option("--scale S", options->scale,
                  "cpu, or paper: the sizes of the papers, for a GPU. word_lstm: 128 x 20 words; char_mlstm: 4,096 "
                  "cells, 128 x 256 bytes; char_rhn: 1,792 units, 128 x 150 characters; nmt_transformer: a big "
                  "Transformer, 192 pairs of 27 and 27 words; gpt: 12 layers of width 768, 16 x 1,024 tokens; not for "
                  "batchers and compose")
      .offers(kScales)
      .show_default();
  command.add_option("--precision P", options->precision, "type of the inputs of matrix products; all: fp32 and bf16")
      .offers(kPrecisions)
      .show_default();
  command
      .add_option("--products P", options->products,
                  "how a GPU multiplies with --precision fp32: exact, or on tensor cores (tf32, bf16x3)")
      .offers(kProducts)
      .show_default();
  command
      .add_option(
          "--device D", options->device,
          "cpu, cuda, cuda:N, or auto (cuda:0 if there is a CUDA device, else cpu); not for batchers and compose")
      .show_default();
  command.add_flag(
      "--counts", options->counts,
      "count the kernels, copies and waits of one step, as a table on stderr and in the JSON line; without a GPU, the "
      "step is counted and not timed");
  command.add_option("--steps N", options->steps, "steps timed after three that are not; the median counts")
      .show_default();
  command.add_option("--threads N", options->threads, "threads; 0: all cores").show_default();
  command.add_option("--trace FILE", options->trace, "write a Chrome trace of the timed steps").output_file();
  command.add_flag("--table", options->table, "print the time of each part of the step to stderr");
  add_batchers_options(command, options->batchers);
  add_compose_options(command, options->compose);
  options->directories.add_to(command);
  command.callback([command, options] { bench(command, *options); });
}

}  // namespace lmx::app::cli
