// Sizes and traces of a machine: files and functions stay readable, and no file knows where it was written.
#include <gmock/gmock.h>

#include <map>
#include <regex>

#include "source_files.h"

namespace lmx_style {
namespace {

constexpr size_t kFileLines = 500, kFunctionLines = 80;

// Cases with their results, which tools/dev/parity/config_cases.py writes.
const std::string kLongFile = "tests/config/more_cases.yaml";

std::vector<SourceFile> all_code() {
  return source_files({"core", "plugins", "tools", "tests"}, kCode);
}

struct Block {
  size_t line, length;
  std::string head;
};

// Blocks that open at the margin or one step in (functions, methods), but namespaces, types and values. The format that
// .clang-format fixes closes a block at the column where its first line begins, which spares a parser.
std::vector<Block> blocks(const SourceFile& file) {
  std::vector<Block> found;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos || indent > 2 || !line.ends_with("{")) continue;
    const std::string head = line.substr(indent);
    const std::vector<std::string> others{"namespace", "class",      "struct", "enum",    "union",
                                          "extern",    "template <", "#",      "return {"};
    if (std::any_of(others.begin(), others.end(), [&](const std::string& o) { return head.starts_with(o); })) continue;
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
    if (file.path == kLongFile) continue;
    EXPECT_LE(file.lines.size(), kFileLines) << file.path;
  }
}

TEST(Size, FunctionsAreAtMost80Lines) {
  size_t functions = 0;
  for (const SourceFile& file : all_code()) {
    for (const Block& block : blocks(file)) {
      ++functions;
      EXPECT_LE(block.length, kFunctionLines) << file.path << ":" << block.line << ": " << block.head;
    }
  }
  EXPECT_GT(functions, 100u);
}

TEST(Size, BlocksAreMeasured) {
  const SourceFile file{"x.cc",
                        {"namespace a {", "int f() {", "  if (x) {", "  }", "}", "struct S {", "  int g() {",
                         "    return 1;", "  }", "};", "S s() {", "  return {", "      1};", "}", "}  // namespace a"}};
  const std::vector<Block> found = blocks(file);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].length, 4u);
  EXPECT_EQ(found[1].length, 2u);
  EXPECT_EQ(found[2].length, 3u);
  EXPECT_EQ(found[3].length, 4u);
}

// The name of the constant that a line declares outside of functions and classes; "" for any other line.
std::string constant_of(const std::string& line) {
  if (line.find("constexpr ") == std::string::npos) return "";
  static const std::regex declared("(inline |static )*constexpr [^=({;]*\\b(k[A-Z]\\w*)(\\[\\w*\\])? *(=|\\{).*");
  std::smatch found;
  return std::regex_match(line, found, declared) ? found[2].str() : "";
}

// The constants of source files that have the name of another one in a header of the same folder. Files of a folder are
// compiled together, so one of them hides the other without a warning.
std::vector<std::string> hidden_constants(const std::vector<SourceFile>& files) {
  std::map<std::pair<std::string, std::string>, std::string> in_headers;  // by folder and name: the header
  const auto folder_of = [](const SourceFile& f) { return f.path.substr(0, f.path.rfind('/')); };
  for (const SourceFile& file : files)
    for (const std::string& line : file.lines)
      if (const std::string name = constant_of(line); !name.empty() && file.path.ends_with(".h"))
        in_headers[{folder_of(file), name}] = file.path;
  std::vector<std::string> hidden;
  for (const SourceFile& file : files)
    for (const std::string& line : file.lines)
      if (const auto found = in_headers.find({folder_of(file), constant_of(line)});
          found != in_headers.end() && found->second != file.path)
        hidden.push_back(file.path + ": " + found->first.second + " of " + found->second);
  return hidden;
}

TEST(Constants, HideNone) {
  EXPECT_THAT(hidden_constants(source_files({"core", "plugins", "tools", "tests"}, kCode)), testing::IsEmpty());
}

TEST(Constants, HiddenOnesAreFound) {
  const SourceFile header{"a/b.h", {"inline constexpr int64_t kSteps = 3;", "constexpr double kShare{0.5};"}};
  EXPECT_THAT(hidden_constants({header, {"a/c.cc", {"constexpr int kSteps[] = {1, 2};", "constexpr int kOther = 1;"}}}),
              testing::ElementsAre("a/c.cc: kSteps of a/b.h"));
  EXPECT_THAT(hidden_constants({header, {"a/d.h", {"constexpr const char* kShare = \"\";"}}}).size(), 1u);
  EXPECT_THAT(hidden_constants(
                  {header, {"b/c.cc", {"constexpr int kSteps = 1;"}}, {"a/e.cc", {"  constexpr int kSteps = 1;"}}}),
              testing::IsEmpty());
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

// Functions have few parameters; more of them are a struct of named fields.

constexpr int kParameters = 6;

struct AllowedFunction {
  std::string path, function, reason;
};
const std::vector<AllowedFunction> kAllowedFunctions{
    {"core/include/lmx/matmul.h", "gemm", "BLAS's order, which every reader knows"},
    {"core/include/lmx/matmul.h", "matmul", "as gemm()"},
    {"core/backend/matmul.cc", "gemm", "as gemm()"},
    {"core/backend/matmul.cc", "matmul", "as gemm()"},
    {"tests/cuda_emulator/blas.cc", "cublasLtMatmul", "NVIDIA's signature"},
    {"tests/cuda_emulator/blas.cc", "cublasLtMatmulAlgoGetHeuristic", "NVIDIA's signature"},
    {"tests/cuda_emulator/include/cublasLt.h", "cublasLtMatmul", "NVIDIA's signature"},
    {"tests/cuda_emulator/include/cublasLt.h", "cublasLtMatmulAlgoGetHeuristic", "NVIDIA's signature"},
    {"tests/cuda_emulator/nccl/api.cc", "ncclAllReduce", "NVIDIA's signature"},
    {"tests/cuda_emulator/nccl/api.cc", "ncclBroadcast", "NVIDIA's signature"},
    {"plugins/comm/nccl/nccl_api.h", "ncclAllReduce", "NVIDIA's signature"},
    {"plugins/comm/nccl/nccl_api.h", "ncclBroadcast", "NVIDIA's signature"},
};
// Inner loops, whose pointers and sizes the compiler keeps in registers.
const std::vector<std::string> kLoops{"core/backend/panel_gemm."};

// The text without comments and string literals, which keep their line ends.
std::string code_of(const SourceFile& file) {
  static const std::regex literal(R"("(\\.|[^"\\])*")"), comment("//.*");
  std::string text;
  for (const std::string& line : file.lines)
    text += std::regex_replace(std::regex_replace(line, literal, "\"\""), comment, "") + "\n";
  return text;
}

struct Function {
  std::string name;
  int parameters;
};

// Returns the index after the bracket that closes the one before `begin`. `commas` counts the commas outside of inner
// brackets.
size_t close_of(const std::string& text, size_t begin, int& commas) {
  int depth = 1;
  size_t i = begin;
  for (; i < text.size() && depth > 0; ++i) {
    const bool arrow = text[i] == '>' && i > 0 && (text[i - 1] == '-' || text[i - 1] == '=');
    if (std::string_view("(<[{").find(text[i]) != std::string_view::npos) ++depth;
    if (std::string_view(")>]}").find(text[i]) != std::string_view::npos && !arrow) --depth;
    if (text[i] == ',' && depth == 1) ++commas;
  }
  return i;
}

// Functions that are declared or defined at the margin or up to two steps in: a type, a name, and parameters.
std::vector<Function> functions(const std::string& text) {
  static const std::regex head(
      R"(\n {0,4}(?!return|throw|else|case|using|#)[A-Za-z_][\w:<>,&*\[\] ]*[ &*]([A-Za-z_][\w:~]*)\()");
  static const std::regex tail(R"(^\s*(const|noexcept|override|final|=|:|->|\{|;))"), typed(R"(\w[&*>]? +[&*]?\w)");
  std::vector<Function> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), head); it != std::sregex_iterator(); ++it) {
    const auto begin = static_cast<size_t>(it->position() + it->length());
    int commas = 0;
    const size_t end = close_of(text, begin, commas);
    const std::string inside = text.substr(begin, end - begin - 1), after = text.substr(end, 40);
    if (!std::regex_search(after, tail) || !std::regex_search(inside, typed)) continue;
    found.push_back({(*it)[1], commas + 1});
  }
  return found;
}

bool allowed(const std::string& path, const std::string& function) {
  const auto listed = [&](const AllowedFunction& e) { return e.path == path && e.function == function; };
  const auto loop = [&](const std::string& prefix) { return path.starts_with(prefix); };
  return std::any_of(kAllowedFunctions.begin(), kAllowedFunctions.end(), listed) ||
         std::any_of(kLoops.begin(), kLoops.end(), loop);
}

TEST(Parameters, AreAtMostSix) {
  size_t count = 0;
  for (const SourceFile& file : source_files({"core", "plugins", "tools", "tests"}, kCode)) {
    for (const Function& f : functions(code_of(file))) {
      ++count;
      if (allowed(file.path, f.name)) continue;
      EXPECT_LE(f.parameters, kParameters) << file.path << ": " << f.name << "()";
    }
  }
  EXPECT_GT(count, 1000u);
}

TEST(Parameters, AreCounted) {
  const SourceFile file{"x.cc",
                        {"int a(std::map<int, int> x, int y);", "  void b(const char* text = \",\", int n = 1) {",
                         "  return call(a, b, c, d);", "void c(std::function<void(int, int)> f,", "       int n);"}};
  const std::vector<Function> found = functions("\n" + code_of(file));
  ASSERT_EQ(found.size(), 3u);
  for (const Function& f : found) EXPECT_EQ(f.parameters, 2) << f.name;
}

}  // namespace
}  // namespace lmx_style
