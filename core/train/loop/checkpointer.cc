#include "train/loop/checkpointer.h"

#include <algorithm>
#include <cstdint>

#include "backend/cuda.h"
#include "runfiles/checkpoint.h"
#include "train/loop/update.h"

namespace lmx {
namespace {

// True if an element's exponent, the bits of `mask`, has the value of infinities and NaN.
template <class Bits>
bool any_not_finite(const Tensor& t, Bits mask) {
  const Bits* bits = static_cast<const Bits*>(t.raw());
  const auto elements = static_cast<size_t>(t.bytes()) / sizeof(Bits);
  return std::any_of(bits, bits + elements, [mask](Bits b) { return (b & mask) == mask; });
}

bool is_finite(const Tensor& t) {
  const Tensor here = t.device().kind == Device::Kind::cpu ? t : copy_to(t, Allocator::cpu());
  switch (t.dtype()) {
    case DType::f64:
      return !any_not_finite<uint64_t>(here, 0x7ff0000000000000);
    case DType::f32:
      return !any_not_finite<uint32_t>(here, 0x7f800000);
    case DType::bf16:
      return !any_not_finite<uint16_t>(here, 0x7f80);
    case DType::f16:
      return !any_not_finite<uint16_t>(here, 0x7c00);
    default:
      return true;
  }
}

// "the parameter W" for the first one that has an infinite or NaN element; "" if there is none.
std::string first_not_finite(const StateDict& model) {
  for (const auto& [name, value] : model)
    if (!is_finite(value)) return "the parameter " + name;
  return "";
}

}  // namespace

Checkpointer::Checkpointer(RunState& run, RunLog& log) : run_(run), s_(run.s), log_(log) {
  if (run_.at.step > 0) saved_ = run_.at.step;
}

bool Checkpointer::due() const {
  const bool evaluated = run_.at.evaluated == run_.at.step;
  const CheckpointConfig& c = s_.recipe.checkpoint;
  if (c.every > 0 ? run_.at.step % c.every == 0 : evaluated) return true;
  return (c.keep_best && evaluated && run_.at.best_step == run_.at.step) || run_.at.step == run_.last_step();
}

void Checkpointer::save(StateDict own) {
  const Span span(s_.ctx.tracer, "checkpoint");
  log_.count_traffic();
  log_.fold_window();
  static_cast<void>(log_.tokens_until(run_.at.step));  // a resumed run may have another batch size after this step
  TrainState state = pack_state(s_, run_.at);
  {
    const std::vector<std::string> windows = s_.comm.gather_texts(run_.at.open.to_json(), "checkpoint");
    if (s_.leads()) state.numbers.merge(window_texts(windows));
  }
  log_.sync();
  own.merge(s_.sync->state());
  // Rank 0 has the parameters, and replicas their own values. All ranks end if some are not finite.
  constexpr double kOwnState = 1, kNotFinite = 2;
  std::string broken = first_not_finite(state.model);
  if (broken.empty() && s_.replicas) broken = first_not_finite(s_.replicas->values());
  const double mine[] = {broken.empty() ? (own.empty() ? 0 : kOwnState) : kNotFinite};
  const std::vector<double> all = s_.comm.gather_numbers(mine, "checkpoint");
  if (std::find(all.begin(), all.end(), kNotFinite) != all.end()) {
    const std::vector<std::string> texts = s_.comm.gather_texts(broken, "checkpoint");
    const auto first = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
    end_diverged(
        s_, str("[train] step ", run_.at.step, ": ", *first,
                " is not finite any more, so this step gets no checkpoint. Try a lower optimizer.lr, a clip, or, if "
                "the records count overflows of a codec, a smaller scale of the codec"));
  }
  const bool by_rank = std::find(all.begin(), all.end(), kOwnState) != all.end();
  if (s_.leads()) begin_checkpoint(run_.directory, run_.at.step);
  s_.comm.barrier();
  if (by_rank) add_to_checkpoint(run_.directory, run_.at.step, s_.ctx.rank, own);
  s_.comm.barrier();
  if (s_.leads()) {
    finish_checkpoint(run_.directory, run_.at.step, state, by_rank ? s_.comm.size() : 0);
    std::vector<int64_t> protect;
    if (s_.recipe.checkpoint.keep_best && run_.at.best_step >= 0) protect.push_back(run_.at.best_step);
    prune_checkpoints(run_.directory, static_cast<int>(s_.recipe.checkpoint.keep_last), protect);
  }
  s_.comm.barrier();  // no rank may continue before the checkpoint exists: it could fail and rely on it
  saved_ = run_.at.step;
  log_.count_traffic();
}

}  // namespace lmx
