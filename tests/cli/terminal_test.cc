// Help and tables on terminals of any width, with colours if the terminal supports them.
#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "paths.h"
#include "patterns.h"
#include "process/run_fixture.h"
#include "process/terminal_process.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class Terminal : public RunTest {
 protected:
  // The text that the command writes to a terminal with `columns` columns.
  std::string on_terminal(const Words& words, unsigned short columns,
                          const std::map<std::string, std::string>& settings = {}) const {
    std::map<std::string, std::string> all = environment();
    for (const auto& [name, value] : settings) all[name] = value;
    std::string text = run_on_terminal(words, all, columns).text;
    std::erase(text, '\r');
    return text;
  }
  static std::string without_colours(const std::string& text) { return replaced(text, "\033\\[[0-9;]*m", ""); }
  static std::set<std::string> words_in(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
  static size_t columns(const std::string& line) {
    return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static size_t widest(const std::string& text) {
    std::istringstream lines(text);
    size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, columns(line));
    return most;
  }
  // Every line fits, except a line of a single word and the commands of examples, which can be copied in one piece.
  static void expect_fits(const std::string& text, size_t width) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
      const bool example = line.starts_with("  lmx ") || line.starts_with("  echo ") || line.starts_with("  paste ");
      EXPECT_TRUE(columns(line) <= width || one_word || example) << columns(line) << " columns: " << line;
    }
  }
};

TEST_F(Terminal, HelpFitsAndKeepsItsWords) {
  for (const Words& words :
       {Words{"--help"}, {"run", "--help"}, {"sweep", "--help"}, {"bench", "--help"}, {"translate", "--help"}}) {
    const std::string whole = run_lmx(words, environment()).out;
    for (const unsigned short width : {40, 60, 80, 132}) {
      const std::string text = without_colours(on_terminal(words, width));
      expect_fits(text, width);
      EXPECT_EQ(words_in(text), words_in(whole)) << "at " << width << " columns";
    }
  }
}

// A line is too long only if it ends in a single word that is too long, such as a path in the last column.
TEST_F(Terminal, TablesFitAndKeepTheirWords) {
  const std::string recipe = path("r.yaml"), ott = source_path("/recipes/ott_wmt.yaml");
  write("r.yaml", std::string(kTinyRecipe) +
                      "\nstop: {patience: 3}  # a remark of many words, which is so long that no terminal of a usual "
                      "width can show it beside the key, the value and the place\n");
  // `--explain` has long keys and places beside its notes, so it needs more columns.
  const std::pair<Words, std::vector<unsigned short>> cases[] = {{{"config", recipe, "--explain"}, {132, 150}},
                                                                 {{"config", recipe, "--schema"}, {80, 100, 132}},
                                                                 {{"config", ott, "--schema"}, {80, 100, 132}},
                                                                 {{"data", "list"}, {60, 80, 100, 132}},
                                                                 {{"plugins", "list"}, {80, 100, 132}}};
  for (const auto& [words, widths] : cases) {
    SCOPED_TRACE(words[0] + " " + words.back());
    const std::string whole = run_lmx(words, environment()).out;
    EXPECT_GT(widest(whole), 160u) << "the text must have lines that need wrapping";
    for (const unsigned short width : widths) {
      const std::string text = without_colours(on_terminal(words, width));
      EXPECT_EQ(words_in(text), words_in(whole)) << "at " << width << " columns";
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        const size_t cell = line.rfind("  "), last = cell == std::string::npos ? 0 : cell + 2;
        EXPECT_TRUE(columns(line) <= width || line.find(' ', last) == std::string::npos)
            << columns(line) << " columns: " << line;
      }
    }
  }
}

TEST_F(Terminal, ColoursAreForTerminalsThatWantThem) {
  const auto no_colour = testing::ResultOf([](const std::string& text) { return without_colours(text) == text; }, true);
  const Words help{"run", "--help"}, wrong{"config", missing_path()};
  EXPECT_THAT(on_terminal(help, 80), HasSubstr("\033[1mExamples:\033[0m"));
  EXPECT_THAT(on_terminal(wrong, 80), HasSubstr("\033[1;31merror:\033[0m "));
  for (const auto& [name, value] : {std::pair{"NO_COLOR", "1"}, std::pair{"TERM", "dumb"}}) {
    EXPECT_THAT(on_terminal(help, 80, {{name, value}}), no_colour) << name;
    EXPECT_THAT(on_terminal(wrong, 80, {{name, value}}), no_colour) << name;
  }
  EXPECT_THAT(on_terminal(help, 80, {{"NO_COLOR", ""}}), Not(no_colour)) << "empty counts as unset";
  EXPECT_THAT(run_lmx(help, environment()).out, no_colour);
  EXPECT_THAT(run_lmx(wrong, environment()).err, no_colour);
}

TEST_F(Terminal, ColumnsDecidesWithoutATerminal) {
  auto narrow = environment();
  narrow["COLUMNS"] = "50";
  expect_fits(run_lmx({"run", "--help"}, narrow).out, 50);
}

}  // namespace
}  // namespace lmx_test
