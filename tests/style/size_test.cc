// Sizes and traces of a machine: files and functions stay readable, and no file knows where it was written.
#include <gtest/gtest.h>

#include <map>

#include "source_files.h"

namespace lmx_style {
namespace {

constexpr size_t kFileLines = 500, kFunctionLines = 80;

struct AllowedSize {
  std::string what, reason;  // what: a path, or "path:first words of the function's last signature line"
};
const std::vector<AllowedSize> kLongFiles{
    {"tests/config/more_cases.yaml", "cases with their results, written by tools/parity/config_cases.py"},
};
const std::vector<AllowedSize> kLongFunctions{
    {"tools/app/corpora/registry.cc:return {", "the table of corpora, one entry after the other"},
};

bool allowed_size(const std::vector<AllowedSize>& exceptions, const std::string& what) {
  return std::any_of(exceptions.begin(), exceptions.end(),
                     [&](const AllowedSize& e) { return what.starts_with(e.what); });
}

std::vector<SourceFile> all_code() {
  return source_files({"core", "plugins", "tools", "tests"}, kCode);
}

struct Block {
  size_t line, length;
  std::string head;
};

// Blocks that open at the margin or one step in (functions, methods), but namespaces and types. The format that
// .clang-format fixes closes a block at the column where its first line begins, which spares a parser.
std::vector<Block> blocks(const SourceFile& file) {
  std::vector<Block> found;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos || indent > 2 || !line.ends_with("{")) continue;
    const std::string head = line.substr(indent);
    const std::vector<std::string> types{"namespace", "class", "struct", "enum", "union", "extern", "template <", "#"};
    if (std::any_of(types.begin(), types.end(), [&](const std::string& t) { return head.starts_with(t); })) continue;
    const std::string close = std::string(indent, ' ') + "}";
    size_t end = i + 1;
    while (end < file.lines.size() && !file.lines[end].starts_with(close)) ++end;
    found.push_back({i + 1, end - i + 1, head});
  }
  return found;
}

TEST(Size, FilesAreAtMost500Lines) {
  const std::vector<std::string> text{".cc", ".h", ".cu", ".cuh", ".cmake", "CMakeLists.txt", ".py", ".yaml"};
  for (const SourceFile& file : source_files({"core", "plugins", "tools", "tests", "recipes"}, text)) {
    if (allowed_size(kLongFiles, file.path)) continue;
    EXPECT_LE(file.lines.size(), kFileLines) << file.path;
  }
}

TEST(Size, FunctionsAreAtMost80Lines) {
  size_t functions = 0;
  for (const SourceFile& file : all_code()) {
    for (const Block& block : blocks(file)) {
      ++functions;
      if (allowed_size(kLongFunctions, file.path + ":" + block.head)) continue;
      EXPECT_LE(block.length, kFunctionLines) << file.path << ":" << block.line << ": " << block.head;
    }
  }
  EXPECT_GT(functions, 100u);
}

TEST(Size, BlocksAreMeasured) {
  const SourceFile file{"x.cc",
                        {"namespace a {", "int f() {", "  if (x) {", "  }", "}", "struct S {", "  int g() {",
                         "    return 1;", "  }", "};", "}  // namespace a"}};
  const std::vector<Block> found = blocks(file);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].length, 4u);
  EXPECT_EQ(found[1].length, 2u);
  EXPECT_EQ(found[2].length, 3u);
}

// Words are put together here so that this file does not find itself.
TEST(Words, NoPathOfAMachineAndNoPromise) {
  const std::vector<std::string> words{std::string("/wor") + "k/", std::string("/ro") + "ot/",
                                       std::string("/hom") + "e/", std::string("TO") + "DO",
                                       std::string("FIX") + "ME",  std::string("for n") + "ow)"};
  std::vector<std::string> text = kCode;
  text.insert(text.end(),
              {".cmake", "CMakeLists.txt", ".py", ".yaml", ".md", ".toml", ".json", "setup", "build", "test"});
  for (const SourceFile& file :
       source_files({"core", "plugins", "tools", "tests", "recipes", "docs", "third_party"}, text)) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& word : words) {
        EXPECT_EQ(file.lines[i].find(word), std::string::npos) << file.path << ":" << i + 1 << ": '" << word << "'";
      }
    }
  }
}

}  // namespace
}  // namespace lmx_style
