// Patterns of parameter names in recipes: sync.RULE.params, clip.N.params, train.ema_params, model.weight_norm and the
// patterns of sampled_rows. All of them have the same meaning.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/api.h"

namespace lmx {

// A regular expression that is searched for in a name: "softmax" matches "softmax.weight" and "softmax.bias";
// "^embedding" matches names that begin with it, "\.bias$" names that end with it, ".*" all names. The syntax is RE2's:
// Perl's without look-ahead and back-references. The time of a match is linear in the name's length.
class LMX_API ParamPattern {
 public:
  // The longest pattern, in bytes.
  static constexpr size_t kLongest = 4096;

  // `place` begins the messages: "recipes/my.yaml:4:11: clip.0.params: ". UserError: `text` is not a regular
  // expression, is too long, or compiles to more than 8 MiB.
  explicit ParamPattern(std::string text, std::string place = "");

  bool matches(std::string_view name) const;
  // The elements of `names` that match, in their order. UserError at the pattern's place if none does.
  std::vector<std::string> select(const std::vector<std::string>& names) const;

  const std::string& text() const { return text_; }
  const std::string& place() const { return place_; }

 private:
  struct Compiled;
  std::string text_, place_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace lmx
