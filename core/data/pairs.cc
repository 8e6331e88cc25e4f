#include <algorithm>

#include "lmx/data.h"
#include "lmx/error.h"

namespace lmx {
namespace {

std::shared_ptr<const std::vector<int64_t>> ends_of(const TokenArray& tokens, const char* side) {
  auto ends = std::make_shared<std::vector<int64_t>>();
  const std::span<const int32_t> ids = tokens.tokens();
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == Vocabulary::kEos) ends->push_back(static_cast<int64_t>(i) + 1);
  if (!ids.empty() && ids.back() != Vocabulary::kEos)
    throw UserError(
        str("[data] the ", side, " side of parallel text does not end with </s>: its last sentence is cut"));
  return ends;
}

std::span<const int32_t> sentence(const TokenArray& tokens, const std::vector<int64_t>& ends, int64_t i) {
  LMX_CHECK(i >= 0 && i < static_cast<int64_t>(ends.size()), i, " of ", ends.size());
  const auto at = static_cast<size_t>(i);
  const int64_t begin = i ? ends[at - 1] : 0;
  return tokens.tokens().subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
}

}  // namespace

PairArray::PairArray(TokenArray source, TokenArray target)
    : source_(std::move(source)),
      target_(std::move(target)),
      source_ends_(ends_of(source_, "source")),
      target_ends_(ends_of(target_, "target")) {
  if (source_ends_->size() != target_ends_->size())
    throw UserError(str("[data] parallel text has ", source_ends_->size(), " source and ", target_ends_->size(),
                        " target sentences; sentence i of one side must translate sentence i of the other"));
}

std::span<const int32_t> PairArray::source(int64_t i) const {
  return sentence(source_, *source_ends_, i);
}
std::span<const int32_t> PairArray::target(int64_t i) const {
  return sentence(target_, *target_ends_, i);
}

}  // namespace lmx
