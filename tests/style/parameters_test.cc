// Functions have few parameters; more of them are a struct of named fields.
#include <gtest/gtest.h>

#include <regex>

#include "source_files.h"

namespace lmx_style {
namespace {

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
