// Documents: every link between the project's pages has its target, every path that a page names exists, every page is
// short and listed, and the version is the same wherever it is written.
#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "lmx/api.h"
#include "source_files.h"
#include "test.h"

namespace lmx_style {
namespace {

const fs::path kRoot = lmx_test::source_path();

std::vector<fs::path> pages() {
  std::vector<fs::path> found;
  for (const fs::path& folder : {kRoot, kRoot / "docs", kRoot / "docs/experiments", kRoot / "docs/history"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") found.push_back(entry.path());
    }
  }
  return found;
}

// The name by which a link reaches a heading: lower case, blanks as hyphens, no punctuation.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || (c & 0x80)) {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

std::set<std::string> anchors(const fs::path& page) {
  std::set<std::string> found;
  std::istringstream lines(lmx_test::read_file(page));
  for (std::string line; std::getline(lines, line);) {
    const size_t level = line.find_first_not_of('#');
    if (level != 0 && level != std::string::npos && line[level] == ' ') found.insert(anchor_of(line.substr(level + 1)));
  }
  return found;
}

// The text without fenced blocks and code spans, whose brackets are no links.
std::string prose(const std::string& text) {
  static const std::regex code("```[^`]*```|`[^`\n]*`");
  return std::regex_replace(text, code, "");
}

std::vector<std::string> broken_links(const fs::path& page) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  const std::string text = prose(lmx_test::read_file(page));
  std::vector<std::string> broken;
  for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
    const std::string target = (*it)[1];
    if (target.find("://") != std::string::npos) continue;
    const size_t hash = target.find('#');
    const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
    const bool good =
        fs::exists(file) && (hash == std::string::npos || anchors(file).contains(target.substr(hash + 1)));
    if (!good) broken.push_back(target);
  }
  return broken;
}

TEST(Documents, EveryLinkHasItsTarget) {
  const std::vector<fs::path> all = pages();
  EXPECT_GT(all.size(), 15u);
  for (const fs::path& page : all) {
    for (const std::string& target : broken_links(page)) ADD_FAILURE() << page.filename() << " links to " << target;
  }
}

TEST(Documents, BrokenLinksAreFound) {
  const lmx_test::TempFolder folder;
  const std::string page =
      folder.write("links.md",
                   "# A heading, with: signs\n[good](#a-heading-with-signs) [bad](#no-heading) [worse](absent.md)\n"
                   "`[code](absent.md)` [far](https://example.org/x)\n");
  EXPECT_EQ(broken_links(page), (std::vector<std::string>{"#no-heading", "absent.md"}));
}

// The pages of docs/ and its folders, relative to docs/.
std::vector<std::string> documents() {
  std::vector<std::string> found;
  for (const fs::path& page : pages()) {
    const std::string path = fs::relative(page, kRoot / "docs").string();
    if (!path.starts_with("..")) found.push_back(path);
  }
  return found;
}

TEST(Documents, TheOverviewListsEveryPage) {
  EXPECT_NE(lmx_test::read_file(kRoot / "README.md").find("(docs/README.md)"), std::string::npos);
  const std::string overview = lmx_test::read_file(kRoot / "docs/README.md");
  for (const std::string& page : documents()) {
    if (page == "README.md") continue;
    EXPECT_NE(overview.find("(" + page + ")"), std::string::npos) << "docs/README.md does not link to " << page;
  }
}

constexpr int64_t kPageLines = 250;
const std::map<std::string, std::string> kLongPages{{"errors.md", "a list that is searched, not read"}};

TEST(Documents, PagesAreShort) {
  EXPECT_GT(documents().size(), 40u);
  for (const std::string& page : documents()) {
    const std::string text = lmx_test::read_file(kRoot / "docs" / page);
    if (!kLongPages.contains(page)) {
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kPageLines) << "docs/" << page;
    }
  }
}

// Files that a user or an example writes. Their names look like paths of the repository.
const std::set<std::string> kFilesOfUsers{"experiments/mine.yaml",
                                          "recipes/experiment/wide.yaml",
                                          "recipes/machine/mine.yaml",
                                          "recipes/model/my_model.yaml",
                                          "recipes/my.toml",
                                          "recipes/my.yaml",
                                          "recipes/quickstrat.yaml",
                                          "recipes/sync/my_sync.yaml",
                                          "recipes/x.yaml"};

// The words of a line that can be paths, without the point at the end of a sentence.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("_./*<>$+-").find(c) != std::string_view::npos) {
      word += c;
      continue;
    }
    while (word.ends_with('.')) word.pop_back();
    if (!word.empty()) words.push_back(word);
    word.clear();
  }
  return words;
}

// "<name>_loss.cc", "NAME.yaml", "KIND": a part of a path that represents many names.
bool is_placeholder(const std::string& part) {
  const std::string stem = part.substr(0, part.find('.'));
  const auto capital = [](unsigned char c) { return std::isupper(c) || c == '_'; };
  return part.find('<') != std::string::npos || (!stem.empty() && std::all_of(stem.begin(), stem.end(), capital));
}

// Whether a file of the folder matches the pattern, which contains one `*`.
bool has_match(const fs::path& folder, const std::string& pattern) {
  const size_t star = pattern.find('*');
  const std::string begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) return true;
  }
  return false;
}

// Whether `path` exists below `folder`, as far as it has no placeholder.
bool exists_below(fs::path folder, const std::string& path) {
  for (const fs::path& part : fs::path(path)) {
    if (is_placeholder(part.string())) return true;
    if (part.string().find('*') != std::string::npos) return has_match(folder, part.string());
    folder /= part;
    if (!fs::exists(folder)) return false;
  }
  return true;
}

// Whether a word is a path of the repository that does not exist. A path begins at the root. A header or source may
// also begin at the rooms of the core or of the application, or at the public headers ("lmx/ops.h").
bool names_a_missing_file(const std::string& word) {
  if (kFilesOfUsers.contains(word)) return false;
  for (const std::string_view top :
       {".ci/", "core/", "docs/", "experiments/", "plugins/", "recipes/", "tests/", "third_party/", "tools/"}) {
    if (word.starts_with(top)) return !exists_below(kRoot, word);
  }
  const size_t slash = word.find('/');
  if (slash == 0 || slash == std::string::npos || !ends_with_any(word, kCode)) return false;
  for (const fs::path& folder : {kRoot / "core", kRoot / "core/include", kRoot / "tools", kRoot / "tools/app"}) {
    if (fs::is_directory(folder / word.substr(0, slash))) return !exists_below(folder, word);
  }
  return false;
}

// Without the targets of links, which EveryLinkHasItsTarget checks.
std::vector<std::string> missing_files(const fs::path& page) {
  static const std::regex target(R"(\]\([^)]*\))");
  std::vector<std::string> missing;
  std::ifstream in(page);
  for (std::string line; std::getline(in, line);)
    for (const std::string& word : words_of(std::regex_replace(line, target, "]")))
      if (names_a_missing_file(word)) missing.push_back(word);
  return missing;
}

TEST(Documents, EveryPathExists) {
  for (const fs::path& page : pages()) {
    if (page.filename() == "CHANGELOG.md") continue;  // older versions had other files
    for (const std::string& path : missing_files(page))
      ADD_FAILURE() << page.filename() << " names " << path << ", which does not exist";
  }
}

TEST(Documents, MissingPathsAreFound) {
  const lmx_test::TempFolder folder;
  const std::string page = folder.write(
      "paths.md",
      "`core/base/files.h` `tests/style/absent_test.cc` [x](tools/absent) tools/lmx. tools/absent. `core/optim/*.cc`\n"
      "`core/optim/absent*.cc` `core/nn/<name>_loss.cc` `recipes/NAME.yaml` `recipes/my.yaml` "
      "share/recipes/absent.yaml\n"
      "`lmx/ops.h` `lmx/absent.h` `base/files.h` `base/absent.h` `absent/x.h` `model/absent.yaml`\n");
  EXPECT_EQ(missing_files(page), (std::vector<std::string>{"tests/style/absent_test.cc", "tools/absent",
                                                           "core/optim/absent*.cc", "lmx/absent.h", "base/absent.h"}));
}

// The lines that begin with one of `words`, without it.
std::vector<std::string> lines_after(const std::string& text, const std::vector<std::string>& words) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const std::string& word : words)
      if (line.starts_with(word)) found.push_back(line.substr(word.size()));
  return found;
}

// Podman and Apptainer build the same image: from the same base, with the same commands in the same order.
TEST(Documents, BothImagesHaveTheSameSteps) {
  const std::string container = lmx_test::read_file(kRoot / "tools/Containerfile"),
                    apptainer = lmx_test::read_file(kRoot / "tools/lmx.def");
  const std::vector<std::string> commands = lines_after(container, {"RUN "});
  EXPECT_EQ(commands.size(), 2u);
  EXPECT_EQ(lines_after(apptainer, {"    cd ", "    apt-get "}).size(), commands.size());
  for (const std::string& command : commands)
    EXPECT_NE(apptainer.find("\n    " + command + "\n"), std::string::npos) << command;
  std::vector<std::string> bases = lines_after(container, {"FROM "});
  ASSERT_EQ(bases.size(), 2u);
  bases[0] = bases[0].substr(0, bases[0].find(" AS "));
  EXPECT_EQ(lines_after(apptainer, {"From: "}), bases);
  EXPECT_EQ(lines_after(apptainer, {"Bootstrap: "}), std::vector<std::string>(2, "docker"));
}

TEST(Documents, TheVersionIsTheSameEverywhere) {
  const std::string version = lmx::kVersion;
  std::smatch first;
  const std::string changes = lmx_test::read_file(kRoot / "CHANGELOG.md");
  ASSERT_TRUE(std::regex_search(changes, first, std::regex(R"(\n## (\d+\.\d+\.\d+))")));
  EXPECT_EQ(first[1], version) << "the newest heading of CHANGELOG.md";
  EXPECT_NE(lmx_test::read_file(kRoot / "CITATION.cff").find("\nversion: " + version + "\n"), std::string::npos);
}

}  // namespace
}  // namespace lmx_style
