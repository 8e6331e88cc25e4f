// Makes every mistake of docs/errors.md; lmx must print the message of that page. tools/dev/errors --update writes the
// messages into the page.
#include <algorithm>
#include <cstdlib>

#include "process/lmx_process.h"

namespace lmx_test {
namespace {

// The mistakes of docs/errors.md: their files, commands and messages.

struct Mistake {
  std::string title, file, content, command, message;
};

// Calls `visit(title, block, line)` for each line. `block` is the language of the code block that contains the line
// ("yaml", "console" or "text"); it is empty for a line outside of blocks, and for the lines that begin and end a
// block.
template <class Visit>
void visit_lines(const std::string& document, const Visit& visit) {
  std::istringstream lines(document);
  std::string title, block;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```"), begins = fence && block.empty();
    if (fence) block.clear();
    if (block.empty() && line.starts_with("## ")) title = line.substr(3);
    visit(title, block, line);
    if (begins) block = line.substr(3);
  }
}

// The blocks of each section: an optional file (its name in backquotes, then yaml), then a console, where lines that
// begin with "$ " are the command and the others the message. Sections without a console are left out: their messages
// need a GPU, and tests/run/cuda_run_test.cc compares them.
std::vector<Mistake> mistakes_of(const std::string& document) {
  std::vector<Mistake> all;
  visit_lines(document, [&](const std::string& title, const std::string& block, const std::string& line) {
    if (block.empty() && line.starts_with("## ")) all.push_back({title, "", "", "", ""});
    if (block.empty() && line.starts_with("`") && line.ends_with("`:"))
      all.back().file = line.substr(1, line.size() - 3);
    if (block == "yaml") all.back().content += line + "\n";
    if (block != "console") return;
    if (line.starts_with("$ ")) {
      all.back().command += line.substr(2) + "\n";
    } else {
      all.back().message += line + "\n";
    }
  });
  std::erase_if(all, [](const Mistake& m) { return m.command.empty(); });
  return all;
}

// Returns the document with another message in the section `title`. Everything else is unchanged.
std::string with_message(const std::string& document, const std::string& title, const std::string& message) {
  std::string text;
  bool console = false;
  visit_lines(document, [&](const std::string& section, const std::string& block, const std::string& line) {
    if (console && block.empty()) text += message;
    console = section == title && block == "console";
    if (!console || line.starts_with("$ ")) text += line + "\n";
  });
  return text;
}

const std::string kPage = source_path("/docs/errors.md");

std::vector<Mistake> mistakes() {
  return mistakes_of(read_file(kPage));
}

// tools/dev/errors --update writes the messages into the page instead of comparing them.
bool updates() {
  const char* update = std::getenv("LMX_ERRORS_UPDATE");
  return update && *update;
}

class ErrorsDocument : public testing::TestWithParam<Mistake> {};

TEST_P(ErrorsDocument, LmxPrintsWhatItSays) {
  const Mistake& m = GetParam();
  const TempFolder folder;
  fs::copy(source_path("/recipes"), folder.path("recipes"), fs::copy_options::recursive);
  if (!m.file.empty()) folder.write(m.file, m.content);
  const std::string script = "cd '" + folder.root().string() + "' && " + m.command;
  const Outcome o = run_process({"/bin/bash", "-c", script}, {{"PATH", build_path("/bin:") + std::getenv("PATH")},
                                                              {"LMX_CACHE_DIR", folder.path("cache")}});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  if (updates() && !HasFailure()) {
    const std::string page = with_message(read_file(kPage), m.title, o.err);
    std::ofstream(kPage) << page;
  } else {
    EXPECT_EQ(o.err, m.message) << m.title << "; tools/dev/errors --update writes the messages of lmx into the page";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ErrorsDocument, testing::ValuesIn(mistakes()), [](const auto& one) {
  std::string name;
  for (const char c : one.param.title)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

TEST(ErrorsDocumentUpdate, ChangesTheMessageOfOneSection) {
  const std::string page =
      "# Title\n\n## 1. One\n\n```console\n$ lmx a\nerror: a\n  1 | old\n```\n\n"
      "## 2. Two\n\n`x.yaml`:\n\n```yaml\n## no section\n```\n\n```console\n$ lmx b\nerror: b\n```\n\n"
      "## No command\n\n```text\nerror: c\n```\n";
  const std::vector<Mistake> before = mistakes_of(page);
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].command, "lmx a\n");
  EXPECT_EQ(before[0].message, "error: a\n  1 | old\n");
  EXPECT_EQ(before[1].file, "x.yaml");
  EXPECT_EQ(before[1].content, "## no section\n");
  EXPECT_EQ(with_message(page, "1. One", before[0].message), page);
  const std::string after = with_message(page, "1. One", "error: new\n");
  EXPECT_EQ(mistakes_of(after)[0].message, "error: new\n");
  EXPECT_EQ(with_message(after, "1. One", before[0].message), page) << "everything else must be unchanged";
  EXPECT_EQ(with_message(with_message(page, "1. One", ""), "1. One", before[0].message), page) << "an empty block";
  const std::string real = read_file(kPage);
  for (const Mistake& m : mistakes_of(real)) EXPECT_EQ(with_message(real, m.title, m.message), real) << m.title;
}

TEST(ErrorsDocument, HasTwentyOrMore) {
  EXPECT_GE(mistakes().size(), 20u);
}

}  // namespace

}  // namespace lmx_test
