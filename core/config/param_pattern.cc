#include "lmx/config.h"

#include <re2/re2.h>

#include <algorithm>

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx {

struct ParamPattern::Compiled {
  explicit Compiled(const std::string& text) : expression(text, RE2::Quiet) {}
  RE2 expression;
};

ParamPattern::ParamPattern(std::string text, std::string place) : text_(std::move(text)), place_(std::move(place)) {
  if (text_.size() > kLongest)
    throw UserError(str(place_, "the pattern '", text_.substr(0, 40), "...' has ", text_.size(),
                        " bytes; a pattern of parameter names has at most ", kLongest));
  compiled_ = std::make_shared<const Compiled>(text_);
  if (!compiled_->expression.ok())
    throw UserError(str(place_, "'", text_, "' is no regular expression: ", compiled_->expression.error()));
}

bool ParamPattern::matches(std::string_view name) const {
  return RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), compiled_->expression);
}

std::vector<std::string> ParamPattern::select(const std::vector<std::string>& names) const {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (matches(name)) found.push_back(name);
  if (!found.empty()) return found;
  constexpr size_t kShown = 30;
  std::vector<std::string> shown(names.begin(), names.begin() + static_cast<int64_t>(std::min(kShown, names.size())));
  throw UserError(str(place_, "'", text_, "' matches no parameter; there are: ", config::join(shown),
                      names.size() > kShown ? str(" and ", names.size() - kShown, " others") : ""));
}

}  // namespace lmx
