#include "backend/counting/record.h"

#include <tuple>

namespace lmx {

double macs_of(const std::vector<CountedWork>& part) {
  double macs = 0;
  for (const CountedWork& work : part) macs += work.macs();
  return macs;
}

void StepRecord::begin_pass(int64_t tokens) {
  last_ = {tokens, {{}}, {{}}, {}};
  part_ = &last_.forward;
}

void StepRecord::begin_backward() {
  part_ = &last_.backward;
}

void StepRecord::end_pass() {
  if (last_.tokens > largest_.tokens) largest_ = last_;
  part_ = nullptr;
}

void StepRecord::begin_update() {
  update_ = {{}};
  part_ = &update_;
}

void StepRecord::ready(const std::string& parameter, const std::function<void()>& exchange) {
  const CountedWork& last = part_->back();
  if (last.m + last.kernels + last.written > 0) part_->emplace_back();  // what follows is no part of these entries
  last_.ready.emplace_back(parameter, part_->size() - 1);
  std::vector<CountedWork>* const part = std::exchange(part_, nullptr);
  exchange();
  part_ = part;
}

void StepRecord::product(const CountedWork& product, const void* output, int64_t bytes) {
  if (!part_) return;
  const auto kind = [](const CountedWork& w) { return std::tuple(w.m, w.n, w.k, w.packed, w.within); };
  CountedWork& last = part_->back();
  if (kind(last) == kind(product))
    last.times += product.times;
  else
    part_->push_back(product);
  if (loop_ && !loop_->insert(output).second) part_->back().rewritten += bytes;
}

void StepRecord::kernel() {
  if (!part_) return;
  ++part_->back().kernels;
  part_->back().in_loops += loop_.has_value();
}

void StepRecord::transfer() {
  if (part_) ++part_->back().transfers;
}

void StepRecord::allocated(MemClass c, int64_t bytes) {
  if (!part_)
    outside_ += bytes;
  else if (c == MemClass::activations)
    part_->back().written += bytes;
}

}  // namespace lmx
