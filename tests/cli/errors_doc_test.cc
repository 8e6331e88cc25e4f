// Makes every mistake of docs/errors.md; lmx must print the message of that page. tools/errors --update writes the
// messages into the page.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "cli/errors_document.h"
#include "paths.h"
#include "process/lmx_process.h"
#include "temp_folder.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;

const std::string kPage = source_path("/docs/errors.md");

std::vector<Mistake> mistakes() {
  return mistakes_of(read_file(kPage));
}

// tools/errors --update writes the messages into the page instead of comparing them.
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
    EXPECT_EQ(o.err, m.message) << m.title << "; tools/errors --update writes the messages of lmx into the page";
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
