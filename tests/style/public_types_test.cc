// Plugins may be compiled by another release of g++ than the core, so the public headers use only types of the standard
// library whose layout is the same in all of them. libstdc++ promises this for the types of C++17. The layout of a type
// of C++20 may change until a release of g++ calls its C++20 stable; std::span, a pointer and a size, is the only one
// here.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "source_files.h"

namespace lmx_style {
namespace {

const std::set<std::string> kTypes{
    "array", "atomic", "bad_alloc", "byte", "function", "initializer_list", "map", "numeric_limits", "optional",
    "ostream", "pair", "runtime_error", "set", "shared_ptr", "span", "string", "string_view", "type_info", "unique_ptr",
    "variant", "vector",
    // Functions and traits, which have no layout.
    "abs", "accumulate", "as_bytes", "bit_cast", "conditional_t", "convertible_to", "copy_n", "forward",
    "index_sequence", "is_constructible_v", "is_same_v", "is_trivially_copyable_v", "isfinite", "make_index_sequence",
    "make_shared", "make_unique", "max", "memory_order_relaxed", "min", "move", "pow", "remove_pointer_t", "sqrt",
    "static_pointer_cast"};

TEST(PublicTypes, HaveOneLayoutInEveryReleaseOfTheCppLibrary) {
  static const std::regex kName(R"(\bstd::(\w+))");
  size_t found = 0;
  for (const SourceFile& file : source_files({"core/include/lmx"}, kCode))
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string line = file.lines[i].substr(0, file.lines[i].find("//"));
      for (std::sregex_iterator match(line.begin(), line.end(), kName), end; match != end; ++match, ++found)
        EXPECT_TRUE(kTypes.contains(match->str(1))) << file.path << ":" << i + 1 << ": " << match->str();
    }
  EXPECT_GT(found, 500u);
}

}  // namespace
}  // namespace lmx_style
