// For most tests: GoogleTest with its matchers of texts, the folders of the sources and of the build,
// temporary folders, regular expressions, errors, child processes, and the facts of a message.
#pragma once

#include <gmock/gmock.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "lmx/error.h"
#include "paths.h"
#include "temp_folder.h"

namespace lmx_test {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// A matcher for the facts of a message: its place, its keys, values and shapes. docs/errors.md pins its wording.
class NamesMatcher {
 public:
  using is_gtest_matcher = void;

  // An empty fact would always hold, so it is refused.
  explicit NamesMatcher(std::vector<std::string> facts) : facts_(std::move(facts)) {
    for (const std::string& fact : facts_) EXPECT_NE(fact, "") << "an empty fact holds for every text";
  }

  bool MatchAndExplain(const std::string& text, std::ostream* explanation) const {
    bool all = true;
    for (const std::string& fact : facts_) {
      if (text.find(fact) != std::string::npos) continue;
      if (explanation) *explanation << (all ? "which does not name " : ", ") << testing::PrintToString(fact);
      all = false;
    }
    return all;
  }

  void DescribeTo(std::ostream* out) const { *out << "names each of " << testing::PrintToString(facts_); }
  void DescribeNegationTo(std::ostream* out) const { *out << "lacks one of " << testing::PrintToString(facts_); }

 private:
  std::vector<std::string> facts_;
};

// The text contains each of these facts, in any order.
template <typename... Facts>
NamesMatcher Names(const Facts&... facts) {
  static_assert(sizeof...(Facts) > 0, "name at least one fact");
  return NamesMatcher({std::string(facts)...});
}

// The text of the error of this type that `call` throws, or "no error". Errors of other types are not caught.
template <class Error, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
template <class Call>
std::string user_error(const Call& call) {
  return error_of<lmx::UserError>(call);
}
template <class Call>
std::string run_error(const Call& call) {
  return error_of<lmx::RunError>(call);
}

// Starts a process that runs `body`, and ends with what it returns as exit code. An exception of `body` is printed, and
// the exit code is 255.
pid_t start_child(const std::function<int()>& body);

// Waits for the process to end. Returns its exit code, 128 plus the signal that has ended it, or -1 if there is none.
int exit_code_of(pid_t child);

inline int in_child(const std::function<int()>& body) {
  return exit_code_of(start_child(body));
}

// Regular expressions (ECMAScript). Tests use these functions, because each file that uses std::regex itself takes
// three seconds more to compile.

// A match: the whole text of it, and then that of each group, which is empty if the group takes no part.
using Match = std::vector<std::string>;

// The first match in the text, and all of them. Empty if there is none.
Match first_match(const std::string& text, const std::string& pattern);
std::vector<Match> all_matches(const std::string& text, const std::string& pattern);

// The text with `by` in the place of each match; $1 in it is the first group.
std::string replaced(const std::string& text, const std::string& pattern, const std::string& by);

// How often a text contains `part`.
size_t count_of(const std::string& text, const std::string& part);

// The number behind a name at the beginning of a line but the first one; NaN if there is no such line.
double number_behind(const std::string& text, const std::string& name);

// The first group of the first match, as a number. If there is none, the test fails, and NaN is returned.
double number_in(const std::string& text, const std::string& pattern);

}  // namespace lmx_test
