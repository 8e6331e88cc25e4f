// lmx run --dry-run: the resources that a recipe needs, and whether its data and enough memory are available.
#include "app/run/dry_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "app/datasets/open.h"
#include "app/run/init.h"
#include "app/run/machine_memory.h"
#include "backend/cuda.h"
#include "base/text.h"
#include "config/error_collector.h"
#include "data/data_config.h"
#include "data/dataset.h"
#include "lmx/error.h"
#include "lmx/launch.h"
#include "lmx/matmul.h"
#include "lmx/plugin.h"
#include "lmx/row_sampling.h"
#include "ops/losses/output_layer.h"
#include "recipe/comm_config.h"
#include "recipe/components.h"
#include "recipe/planned_batcher.h"
#include "recipe/sync_rules.h"
#include "train/evaluate.h"

namespace lmx {
namespace {

using namespace train;

// Sizes for the rank with the largest part of the batch.
struct Shares {
  int ranks = 1;
  int64_t step_tokens = 0, vocab = 0;                                     // of all ranks
  int64_t sequences = 0, length = 1, own_tokens = 0, forward_tokens = 0;  // of the rank; of one forward pass of it
  int64_t samples = 0;  // words that the loss samples in addition to the targets; 0: it uses all words
  bool blocks = false;  // logits are computed in blocks of bounded memory
  bool twice = false;   // the gradients of logits need separate memory (two_stage_softmax)
  bool pairs = false;   // a sequence is a sub-batch of sentence pairs with at most `length` target tokens
  bool draws() const { return samples > 0; }  // only sampled rows of the output table are read
};

// Assumed tokens of each side of a pair, if only the total of many pairs is known: about the mean of news text in
// subwords.
constexpr int64_t kSentence = 28;

Shares shares_of(const Recipe& r, const BatchPlan& batch, const LossPlan& loss, int ranks) {
  const bool pairs = batch.items == Items::sub_batches;
  const int64_t sequences = (r.batch.global + ranks - 1) / ranks, length = batch.item_tokens;
  return {.ranks = ranks,
          .step_tokens = r.batch.global * length,
          .vocab = data::vocabulary_size(r.data),
          .sequences = sequences,
          .length = length,
          .own_tokens = sequences * length,
          .forward_tokens = forward_shape(r, ranks, batch).sequences * length,
          .samples = loss.samples,
          .blocks = loss.blocks,
          .twice = loss.keeps_gradients,
          .pairs = pairs};
}

// Formats the number of parameters by the first part of their names, in order of declaration.
std::string parameter_lines(const Network& network, int64_t& total) {
  std::vector<std::pair<std::string, int64_t>> groups;
  int64_t gains = 0;
  const std::string* before = nullptr;
  for (const ParameterSpec& spec : network.specs) {
    const std::string group = spec.name.substr(0, spec.name.find('.'));
    if (groups.empty() || groups.back().first != group) groups.emplace_back(group, 0);
    groups.back().second += spec.shape.numel();
    total += spec.shape.numel();
    const std::string stem = spec.name.ends_with("_g") ? spec.name.substr(0, spec.name.size() - 2) : "";
    if (before && !stem.empty() && *before == stem + "_v") gains += spec.shape.numel();
    before = &spec.name;
  }
  std::string text;
  for (const auto& [group, count] : groups) text += str("  ", group, " ", count_text(count), "\n");
  if (gains > 0)
    text += str("  of these ", count_text(gains), " are gains of weight normalisation, ", count_text(total - gains),
                " the model's own\n");
  return text;
}

// Returns the bytes that units receive, and the bytes of their sums.
int64_t communication_bytes(const SyncRules& sync, const Network& network, const Shares& s) {
  const auto of_output = [](const ParameterSpec& spec) { return spec.name.starts_with("softmax"); };
  const bool tied = std::none_of(network.specs.begin(), network.specs.end(), of_output);
  const auto rows = [&](const ParameterSpec& spec) {
    const int64_t samples = tied || of_output(spec) ? s.samples : 0;  // an input table has no candidates
    const int64_t own = s.own_tokens + samples, all = s.step_tokens + sync.candidate_sets() * samples;
    return TableRows{own, expected_words(own, spec.shape[0]), expected_words(all, spec.shape[0]), s.own_tokens};
  };
  int64_t kept = 0, passing = 0;
  for (const UnitPlan& unit : sync.plan(network.specs, rows)) {
    // A rank receives about as much as it sends, and stores its own part in addition. Data that it keeps is not counted
    // twice.
    const int64_t moved = unit.sent + unit.sent / (s.ranks - 1);
    kept += unit.kept.sums + unit.kept.gathered;
    passing = std::max(passing, unit.kept.gathered > 0 ? unit.kept.sums : moved);
  }
  return kept + passing;
}

// Returns the maximum memory for the logits of `tokens` features over `words` words. Includes the operands that are
// rounded for their products: features, the gradient of the logits and, if words are sampled, their rows.
int64_t loss_bytes(const Shares& s, int64_t width, DType compute) {
  const int64_t tokens = s.forward_tokens, words = s.samples > 0 ? s.samples + 1 : s.vocab;
  // The full softmax uses blocks of bounded memory, in which gradients replace the logits (core/ops/output_layer.h).
  const int64_t rows = s.blocks ? ops::logit_block_rows(tokens, words, width, true) : tokens;
  const DType type = operand_type(compute);  // data type of the gradient of the logits
  const auto kept = static_cast<int64_t>(size_of(compute)), operand = static_cast<int64_t>(size_of(type));
  int64_t bytes = (s.twice ? 8 : 4) * rows * words + (s.draws() ? kept * words * width : 0);
  if (compute != DType::f32) bytes += kept * tokens * width + operand * rows * words;
  return bytes + std::max(gemm_scratch_bytes(type, compute, rows, width, words, false),
                          gemm_scratch_bytes(type, compute, words, width, rows, true));
}

// Validation computes the logits of all words, even if training samples them. Its sequences are also divided among
// ranks.
int64_t evaluation_bytes(const Recipe& r, const Shares& s, int64_t width, DType compute) {
  const int64_t tokens =
      s.pairs ? r.train.eval_batch * kSentence : (r.train.eval_batch + s.ranks - 1) / s.ranks * s.length;
  const int64_t rows = ops::logit_block_rows(tokens, s.vocab, width, false);
  int64_t bytes = 4 * (tokens * width + rows * s.vocab);
  if (compute != DType::f32) bytes += 2 * (tokens + s.vocab) * width;
  return bytes + gemm_scratch_bytes(compute, compute, rows, s.vocab, width, false);
}

struct MemoryEstimate {
  std::string lines;
  int64_t rank = 0;     // bytes of one rank
  int here = 1;         // ranks known to be on this machine; 1 for processes that a launcher will start
  int64_t machine = 0;  // bytes of these ranks
};

// Processes can be on any machine of a cluster. If a launcher has started this process, it has set how many of them are
// here.
int ranks_here(const Recipe& r, int ranks) {
  return in_one_process(r.comm, "comm") ? ranks : std::min(ranks, detect_launch().local_size);
}

// Returns the bytes of the recurrent state that a model carries for one sequence. A memory of past positions can be
// most of it.
int64_t state_bytes(const Network& network) {
  if (network.model->translates()) return 0;
  Context ctx;
  int64_t bytes = 0;
  for (const auto& [name, t] : network.initial_state(ctx, 1))
    bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  return bytes;
}

MemoryEstimate estimate_memory(const Recipe& r, const Network& network, const Shares& shares, int64_t communication,
                               int64_t bytes_of_pair) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(r.optimizer, "optimizer");
  int64_t parameters = 0, gradients = 0, state = 0;
  for (const ParameterSpec& spec : network.specs) {
    const int64_t bytes = spec.shape.numel() * 4;
    parameters += bytes;
    if (spec.frozen) continue;
    state += optimizer->state_bytes(spec);
    // A row-sparse gradient has at most one row for each token of the rank's step and for each sampled word.
    const int64_t rows = std::min(spec.shape[0], shares.own_tokens + shares.samples);
    gradients += spec.sparse ? bytes / spec.shape[0] * rows : bytes;
  }
  // The peak is either at the loss, with features and their gradient, or during the backward pass of the model.
  const DType compute = compute_of(r);
  const int64_t width = network.model->feature_size();
  const int64_t at_loss = shares.forward_tokens * (network.model->activation_bytes_per_token(compute) + 8 * width) +
                          loss_bytes(shares, width, compute);
  const int64_t in_model =
      network.model->activation_bytes(shares.forward_tokens / shares.length, shares.length, compute);
  const int64_t activations = std::max({at_loss, in_model, evaluation_bytes(r, shares, width, compute)}) +
                              state_bytes(network) * (shares.own_tokens / shares.length);
  if (r.train.ema > 0) state += parameters;
  const bool rounds_output = !shares.draws() && compute != DType::f32;
  const int64_t copies = network.model->copy_bytes(compute) + (rounds_output ? 2 * shares.vocab * width : 0);
  // Ranks that are threads send after their backward pass, when the activations are released. Processes send during it.
  const bool in_turn = shares.ranks > 1 && in_one_process(r.comm, "comm");
  const int64_t passing = in_turn ? std::max(activations, communication) : activations + communication;
  MemoryEstimate e;
  for (const auto& [name, bytes] :
       {std::pair{"parameters", parameters}, std::pair{"gradients", gradients}, std::pair{"optimizer", state},
        std::pair{"activations", activations}, std::pair{"weights packed for products", copies},
        std::pair{"communication", communication}})
    if (bytes > 0 || name == std::string("optimizer")) e.lines += str("  ", name, " ", bytes_text(bytes), "\n");
  const int64_t shared = parameters + state + copies, own = gradients + passing;
  e.rank = shared + own;
  // Ranks in one process share the parameters and the state of the optimizer.
  const int64_t pairs = in_turn ? bytes_of_pair * shares.ranks * shares.ranks : 0;
  e.here = ranks_here(r, shares.ranks);
  e.machine = in_turn ? shared + e.here * own + pairs : e.here * e.rank;
  e.lines += str("  total ", bytes_text(e.rank),
                 in_turn && communication > 0 ? ": activations go before communication comes\n" : "\n");
  if (pairs > e.rank)
    e.lines += str("  all ", shares.ranks, " ranks in this process ", bytes_text(e.machine), ", ", bytes_text(pairs),
                   " of it for the messages between pairs of ranks\n");
  return e;
}

// The memory in which the ranks of this machine compute.
struct Place {
  MachineMemory memory;
  std::string cuda;            // the line of the dry run about the CUDA device; "": the CPU
  std::string missing_device;  // why the recipe's device is not available
};

Place place_of(const Recipe& r) {
  try {
    const Device device = device_named(r.device, r.device_place);
    if (device.kind == Device::Kind::cpu) return {machine_memory(), "", ""};
    const CudaDeviceInfo info = cuda_device_info(device.index);
    return {{info.memory, name_of(device)},
            str("device ", name_of(device), " (", describe(info), ") with ", bytes_text(info.memory), "\n"),
            ""};
  } catch (const UserError& e) {  // jobs of a sweep may run on another machine, which has the device
    return {{}, "", e.what()};
  }
}

// Example: "this machine has 25 GB".
std::string text_of(const MachineMemory& there) {
  const bool device = there.limit.starts_with("cuda:");
  const std::string who = there.limit.empty() ? "this machine has " : str(there.limit, device ? " has " : " allows ");
  return str(who, bytes_text(there.bytes));
}

// Compares the memory that the ranks of this machine need with the memory that they can use; "": enough.
std::string missing_memory(const MemoryEstimate& e, const Shares& shares, const MachineMemory& there) {
  if (there.bytes == 0 || e.machine <= there.bytes) return {};
  const std::string who = e.here > 1         ? str(" for ", e.here, " ranks on this machine")
                          : shares.ranks > 1 ? " for one rank"
                                             : "";
  return str(bytes_text(e.machine), who, ", and ", text_of(there));
}

// Returns a line that helps to distribute ranks over machines; "" if the ranks of this machine are known.
std::string machines_text(const Recipe& r, const MemoryEstimate& e, const Shares& shares, const MachineMemory& there) {
  if (shares.ranks == 1 || in_one_process(r.comm, "comm") || detect_launch().launcher != Launcher::none) return {};
  std::string text = str("memory of a machine that holds k ranks: k times ", bytes_text(e.rank));
  if (const int64_t fit = there.bytes / std::max<int64_t>(e.rank, 1); fit > 0)
    text += str("; ", text_of(there), ", enough for ",
                fit >= shares.ranks ? str("all ", shares.ranks) : str(fit, " of the ", shares.ranks), " ranks");
  return text + "\n";
}

// Returns the owner of the memory (run or rank), the lines of the estimate, and a list of what they do not include.
std::string memory_text(const Recipe& r, const Network& network, const SyncRules& sync, const Shares& shares,
                        MemoryEstimate& e) {
  sync.check_loss(*network.loss);
  if (shares.ranks == 1) {
    const bool open = comm_ranks(r.comm, "comm") == 0;
    e = estimate_memory(r, network, shares, 0, 0);
    return str("memory (estimate",
               open ? ", as one rank: how many there are the launcher says; comm.ranks=N plans for N" : "", ")\n",
               e.lines);
  }
  const int64_t communication = communication_bytes(sync, network, shares);
  e = estimate_memory(r, network, shares, communication, sync.pair_bytes());
  return str("memory of a rank (estimate), one of ", shares.ranks, " with ", shares.sequences, " of the ",
             r.batch.global, shares.pairs ? " sub-batches\n" : " sequences\n", e.lines, "  not counted: ",
             sync.servers().empty() ? "errors that a codec keeps for the next step"
                                    : str(in_one_process(r.comm, "comm") ? "the server that workers share"
                                                                         : "the server's values in each process",
                                          ", about the parameters once more, and what is on its way"),
             "; buffers inside an MPI library\n");
}

// Returns the errors that would end a run over this data before its first step.
std::vector<std::string> findings_of(const Recipe& r, const Network& network, const Dataset& data) {
  ErrorCollector wrong;
  wrong.keep([&] { check_validation(r, data); });
  wrong.keep([&] {
    check_model_fits_data(r, *network.model, data);
    check_batcher_fits_model(r, *make_batcher(r, batcher_env(r, data, Allocator::cpu())), *network.model);
  });
  return wrong.messages();
}

std::vector<std::string> missing_data(const Recipe& r, const Network& network, const Shares& shares) {
  DataCheck check = check_dataset(r.data);
  if (check.dataset)
    check.findings = findings_of(r, network, *check.dataset);
  else if (!shares.pairs && check.train_tokens &&
           *check.train_tokens <= shares.step_tokens)  // the last input needs a target after it
    check.findings.push_back(str("[batch] the train split is shorter than one batch: ", r.batch.global,
                                 " sequences (batch.global) of ", shares.step_tokens / r.batch.global, " take ",
                                 shares.step_tokens + 1, " tokens, it holds ", *check.train_tokens));
  return check.findings;
}

}  // namespace

DryRun dry_run(const Node& composed, const std::string& name) {
  const Recipe r = read_recipe(composed, name);
  const int64_t vocab = data::vocabulary_size(r.data);
  const Network network = make_network(r, vocab, nullptr);
  check_patterns(r, network.specs);
  const auto ranks = static_cast<int>(std::max<int64_t>(1, comm_ranks(r.comm, "comm")));
  const BatchPlan batch = planned_batcher(r.batcher)->plan();
  const Shares shares = shares_of(r, batch, network.loss->plan(), ranks);
  const SyncRules sync(r.sync, "sync", network.specs, 0, ranks, RandomKey());
  int64_t total = 0;
  MemoryEstimate memory;
  const std::string parameters = parameter_lines(network, total);
  std::string text = str("recipe ", name, "\n", "parameters ", count_text(total), "\n", parameters);
  text += str("batch ", r.batch.global,
              shares.pairs ? " sub-batches = at most " : " sequences = ", count_text(shares.step_tokens),
              shares.pairs ? " target" : "", " tokens, vocabulary ", count_text(vocab), "\n");
  const int64_t model =
      shares.pairs ? network.model->macs_per_pair(kSentence, kSentence) / kSentence : network.model->macs_per_token();
  const int64_t macs = model + network.loss->macs_per_token(shares.forward_tokens);
  char flops[32];
  std::snprintf(flops, sizeof flops, "%.3g",
                6e-9 * static_cast<double>(macs) * static_cast<double>(shares.step_tokens));
  text += str("arithmetic ", flops, " GFLOP a step, forward and backward, in matrix products",
              shares.pairs ? str(" (sentences of ", kSentence, " tokens on both sides)") : "", "\n");
  text += memory_text(r, network, sync, shares, memory);
  for (const std::string& line : describe(take_parameters(r.init, network.specs, nullptr, nullptr)))
    text += line + "\n";
  for (const std::string& line : warnings_of(r, network, sync, ranks, batch)) text += str("warning: ", line, "\n");
  const Place place = place_of(r);
  text += place.cuda;
  DryRun result{std::move(text),
                count_text(total),
                bytes_text(memory.rank),
                total,
                memory.rank,
                missing_data(r, network, shares),
                missing_memory(memory, shares, place.memory),
                place.missing_device};
  result.text += machines_text(r, memory, shares, place.memory);
  result.text += place.missing_device.empty() ? "" : str("device: not available: ", place.missing_device, "\n");
  result.text += result.missing_memory.empty() ? "" : str("memory: not enough: ", result.missing_memory, "\n");
  result.text += result.missing_data.empty() ? "data: available\n" : "data: not ready\n";
  for (const std::string& finding : result.missing_data) result.text += "  " + finding + "\n";
  return result;
}

}  // namespace lmx
