// Makes every mistake of docs/errors.md; lmx must print the message of that page.
#include <gmock/gmock.h>

#include <algorithm>

#include "process/lmx_process.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;

struct Mistake {
  std::string title, file, content, command, message;
};

// The blocks of a section: an optional file (its name in backquotes, then yaml), the command (sh), the message (text).
std::vector<Mistake> mistakes() {
  std::istringstream lines(read_file(LMX_SOURCE_DIR "/docs/errors.md"));
  std::vector<Mistake> all;
  std::string block;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      block = block.empty() ? line.substr(3) : "";
    } else if (block.empty() && line.starts_with("## ")) {
      all.push_back({line.substr(3), "", "", "", ""});
    } else if (block.empty() && line.starts_with("`") && line.ends_with("`:")) {
      all.back().file = line.substr(1, line.size() - 3);
    } else if (block == "yaml") {
      all.back().content += line + "\n";
    } else if (block == "sh") {
      all.back().command += line + "\n";
    } else if (block == "text") {
      all.back().message += line + "\n";
    }
  }
  // Messages without a command need a GPU; tests/run/cuda_run_test.cc compares them.
  std::erase_if(all, [](const Mistake& m) { return m.command.empty(); });
  return all;
}

class ErrorsDocument : public testing::TestWithParam<Mistake> {};

TEST_P(ErrorsDocument, LmxPrintsWhatItSays) {
  const Mistake& m = GetParam();
  std::string pattern = (fs::temp_directory_path() / "lmx_errors_XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern;
  fs::copy(LMX_SOURCE_DIR "/recipes", folder / "recipes", fs::copy_options::recursive);
  if (!m.file.empty()) {
    fs::create_directories((folder / m.file).parent_path());
    std::ofstream(folder / m.file) << m.content;
  }
  const std::string script = "cd '" + folder.string() + "' && " + m.command;
  const Outcome o =
      run_process({"/bin/bash", "-c", script},
                  {{"PATH", std::string(LMX_BINARY_DIR "/bin:") + std::getenv("PATH")}, {"LMX_COMMAND", ""}});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.err, m.message) << m.title;
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, ErrorsDocument, testing::ValuesIn(mistakes()), [](const auto& one) {
  std::string name;
  for (const char c : one.param.title)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

TEST(ErrorsDocument, HasTwentyOrMore) {
  EXPECT_GE(mistakes().size(), 20u);
}

}  // namespace
}  // namespace lmx_test
