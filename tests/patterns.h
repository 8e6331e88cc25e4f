// Regular expressions (ECMAScript). Tests use these functions, because each file that uses std::regex itself takes
// three seconds more to compile.
#pragma once

#include <string>
#include <vector>

namespace lmx_test {

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
