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

// Text of others neither changes the terminal nor hides: names of files, arguments, recipes, records, statuses.
TEST_F(Terminal, NoForeignTextIsExecutedOrInvisible) {
  const std::string odd = "a\033]0;x\007\u200b\u202e\u00a0", json_odd = R"(a\u001b]0;x\u0007\u200b\u202e\u00a0)";
  const std::string file = path(odd + ".yaml"), dir = path("run");
  write(odd + ".yaml", "data: {name: synthetic}\nmodel:\n  " + std::string("ce\u200blls: 3\n"));
  write("shown.yaml", "name: \"" + json_odd + "\"\n");
  write("texts.csv", "s" + odd + ",label\na,b\n");
  ASSERT_EQ(run("run", {"train.steps=20"}).code, 0);
  write("run/status.json", R"({"state": "failed", "step": 20, "reason": ")" + json_odd + R"(", "cause": ""})");
  write("run/metrics.jsonl", read_file(path("run/metrics.jsonl")) + R"({"step": 20, "split": "train", "rows/)" +
                                 json_odd + R"(": 1, "loss/)" + json_odd + "\": 1}\n");
  std::filesystem::copy(dir, path(odd), std::filesystem::copy_options::recursive);
  const std::string checkpoint = path(odd) + "/checkpoints/step-20";
  for (const Words& words : {Words{"run", file},
                             {"run", path("tiny.yaml"), "model." + odd + "=1"},
                             {"config", file},
                             {"config", path("shown.yaml"), "--composed"},
                             {"report", dir},
                             {"report", dir, "--json"},
                             {"report", path(odd)},
                             {"eval", path(odd), "--checkpoint", odd},
                             {"run", "--" + odd},
                             {odd},
                             {"plan", path("tiny.yaml"), "--machine", odd},
                             {"bleu", odd},
                             {"average", path(odd + ".safetensors"), checkpoint, checkpoint},
                             {"eval", path(odd), "--checkpoint", path(odd + ".safetensors")},
                             {"features", dir, path("texts.csv"), "--out", path("f.csv")},
                             {"plugins", "info", odd},
                             {"generate", dir, "--prompt", odd}}) {
    const std::string text = on_terminal(words, 80);
    EXPECT_THAT(text, HasSubstr("<U+200B>")) << words[0];
    for (const char* hidden : {"\033]", "\007", "\u200b", "\u202e", "\u00a0"})
      EXPECT_THAT(text, Not(HasSubstr(hidden))) << words[0];
  }
}

TEST_F(Terminal, ColumnsDecidesWithoutATerminal) {
  auto narrow = environment();
  narrow["COLUMNS"] = "50";
  expect_fits(run_lmx({"run", "--help"}, narrow).out, 50);
}

}  // namespace
}  // namespace lmx_test
