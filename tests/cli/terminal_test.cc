// Help on terminals of any width, with colours if the terminal supports them (tables: width_test.cc).
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
    TerminalOutcome outcome = run_on_terminal(words, all, columns);
    EXPECT_GE(outcome.code, 0) << "ended by a signal:\n" << outcome.text;
    std::erase(outcome.text, '\r');
    return outcome.text;
  }
  static std::string without_colours(const std::string& text) { return replaced(text, "\033\\[[0-9;]*m", ""); }
  static std::set<std::string> words_in(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
  static size_t columns(const std::string& line) {
    return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
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
