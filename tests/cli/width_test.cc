// Everything that the commands print for people fits into the terminal, and no word is broken.
#include <algorithm>
#include <iterator>
#include <set>

#include "base/text.h"
#include "process/run_fixture.h"
#include "process/sweep_fixture.h"
#include "process/terminal_process.h"

namespace lmx_test {
namespace {

constexpr unsigned short kWidths[] = {60, 80, 140};

std::set<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

Words lines_of(std::string text) {
  text = replaced(text, "\033\\[[0-9;]*[A-Za-z]", "");  // colours, and what moves the cursor
  std::replace(text.begin(), text.end(), '\r', '\n');
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A line may be longer if it is a command to be copied, or ends in a cell of a single word that cannot be broken.
void expect_fits(const std::string& text, size_t width) {
  for (const std::string& line : lines_of(text)) {
    if (lmx::width_of(line) <= width) continue;
    const bool command = line.starts_with("  " + build_path("/bin/lmx")) || line.starts_with("  lmx ");
    const size_t cell = line.rfind("  "), last = cell == std::string::npos ? 0 : cell + 2;
    EXPECT_TRUE(command || line.find(' ', last) == std::string::npos)
        << lmx::width_of(line) << " columns of " << width << ": " << line;
  }
}

// Messages quote a line of a recipe; what is left out of a long line is marked by "...".
bool is_cut_excerpt(const std::string& word, const std::set<std::string>& known) {
  if (!word.ends_with("...")) return false;
  const std::string begin = word.substr(0, word.size() - 3);
  return std::any_of(known.begin(), known.end(), [&](const std::string& k) { return k.starts_with(begin); });
}

class Width : public SweepTest {
 protected:
  Outcome at(const Words& words, const std::string& columns) const {
    auto settings = environment();
    if (!columns.empty()) settings["COLUMNS"] = columns;
    return run_process(joined({build_path("/bin/lmx")}, words), settings);
  }

  // The outputs at all widths have the words of the output without a limit, and no others.
  void expect_fits_everywhere(const Words& words) const {
    SCOPED_TRACE(words[0] + " " + words[1]);
    const Outcome whole = at(words, "");
    const std::set<std::string> known = words_in(whole.out + " " + whole.err);
    EXPECT_GT(known.size(), 3u);
    for (const unsigned short width : kWidths) {
      const Outcome o = at(words, std::to_string(width));
      EXPECT_EQ(o.code, whole.code);
      expect_fits(o.out + o.err, width);
      for (const std::string& word : words_in(o.out + " " + o.err))
        EXPECT_TRUE(known.contains(word) || is_cut_excerpt(word, known)) << "at " << width << ": '" << word << "'";
    }
  }
};

TEST_F(Width, TablesOfRunsAndSweeps) {
  ASSERT_THAT(run("a", {"train.steps=14", "--ranks", "2"}), Succeeds());
  ASSERT_THAT(run("b", {"train.steps=14", "--ranks", "2", "optimizer.lr=0.02"}), Succeeds());
  ASSERT_THAT(sweep("s", {"train.steps=7", "optimizer.lr=0.001,0.002", "clip=1,2", "--seeds", "2"}), Succeeds());
  const Words seeds{"compare", path("s/points/0-lr=0.001-clip=1-seed=1"), path("s/points/1-lr=0.001-clip=1-seed=2"),
                    "--to",    path("s/points/2-lr=0.001-clip=2-seed=1"), path("s/points/3-lr=0.001-clip=2-seed=2")};
  EXPECT_THAT(at(seeds, ""), Succeeds());
  for (const Words& words :
       {Words{"report", path("a")},
        {"report", path("a"), path("b"), "--html", path("both.html")},
        {"report", path("s")},
        {"compare", path("a"), path("b")},
        seeds,
        {"sweep", path("tiny.yaml"), "optimizer.lr=0.001,0.002", "clip=1,2", "--seeds", "2", "--dry-run"},
        {"run", path("tiny.yaml"), "--dry-run", "--ranks", "4"},
        {"plan", path("b"), "--memory"}})
    expect_fits_everywhere(words);
}

TEST_F(Width, TablesOfPlansAndExperiments) {
  const std::string recipe = source_path("/recipes/patwary_word_1b.yaml");
  for (const Words& words :
       {Words{"plan", recipe, "--machine", "h100_node", "--ranks", "8,64", "sync=allgather,unique"},
        {"plan", recipe, "--machine", "h100_node", "--ranks", "8,64", "sync=allgather,unique", "--find", "tokens=1e9"},
        {"experiment", "list"},
        {"experiment", "show", "patwary2018/table3_hours"},
        {"experiment", "show", "patwary2018/table3_memory", "--scale", "paper"},
        {"experiment", "run", "patwary2018/table3_memory", "--dry-run"}})
    expect_fits_everywhere(words);
}

TEST_F(Width, ListsAndDescriptions) {
  write("remark.yaml", std::string(kTinyRecipe) +
                           "stop: {patience: 3}  # a remark of many words, which is so long that " +
                           "no terminal of a usual width can show it beside the key, the value and the place\n");
  for (const Words& words : {Words{"plugins", "list"},
                             {"plugins", "info", "lstm"},
                             {"plugins", "info", "adam"},
                             {"data", "list"},
                             {"config", path("remark.yaml"), "--explain"},
                             {"config", source_path("/recipes/ott_wmt.yaml"), "--schema"}})
    expect_fits_everywhere(words);
}

TEST_F(Width, Errors) {
  write("wrong.yaml", std::string(kTinyRecipe) + "modle: {cells: 3}  # " + std::string(300, 'x') + "\nclipp: 3\n");
  for (const Words& words : {Words{"run", path("wrong.yaml")},
                             {"run", path("tiny.yaml"), "optimizer.name=adamw_with_a_name_that_nobody_has_ever_heard"},
                             {"run", path("tiny.yaml"), "data.vocab_size=0", "model.cells=0"},
                             {"plan", path("tiny.yaml"), "--machine", "none"},
                             {"report", path("none")},
                             {"experiment", "show", "patwary2018/table3_ours"}})
    expect_fits_everywhere(words);
}

// On a terminal: the progress line, messages and the result of a run, and the table of a sweep that runs.
TEST_F(Width, ProgressOnATerminal) {
  const std::string parts =
      "(  (ETA [0-9a-z]+|sampled loss [0-9.]+|[0-9.]+[kM]? words/s|lr [0-9.e+-]+|gnorm [0-9.]+))*";
  for (const unsigned short width : kWidths) {
    const std::string dir = "r" + std::to_string(width);
    const std::string text =
        run_on_terminal({"run", path("tiny.yaml"), "run.dir=" + path(dir), "--ranks", "2", "train.steps=21"},
                        environment(), width)
            .text;
    expect_fits(text, width);
    size_t seen = 0;
    for (const std::string& line : lines_of(text)) {
      if (!line.starts_with("step ") || line.find(" valid ") != std::string::npos) continue;
      ++seen;
      EXPECT_FALSE(first_match(line, "^step [0-9]+/21" + parts + "$").empty()) << line;
    }
    EXPECT_GT(seen, 3u) << text;
    const std::string swept = run_on_terminal({"sweep", path("tiny.yaml"), "optimizer.lr=0.0010001,0.0010002",
                                               "train.steps=150", "--seeds", "2", "--out", path("s" + dir)},
                                              environment(), width)
                                  .text;
    expect_fits(swept, width);
    EXPECT_THAT(swept, HasSubstr("POINT"));
  }
}

// A table that is wider than its words allow is continued below itself, with the first column of each row.
TEST_F(Width, AWideTableIsContinuedBelow) {
  const std::string recipe = source_path("/recipes/patwary_word_1b.yaml");
  const std::string out = at({"plan", recipe, "--machine", "h100_node", "--ranks", "8,64"}, "60").out;
  size_t heads = 0;
  for (const std::string& line : lines_of(out)) heads += line.starts_with("RANKS ");
  EXPECT_GT(heads, 1u) << out;
  EXPECT_THAT(at({"experiment", "show", "patwary2018/table3_hours"}, "80").out,
              testing::AllOf(Not(HasSubstr(source_path())), Not(HasSubstr("|")), Not(HasSubstr("**"))));
}

TEST(Folded, LinesAndIndents) {
  EXPECT_EQ(lmx::folded("one two three", 0), "one two three");
  EXPECT_EQ(lmx::folded("one two three\n", 9), "one two\n  three\n");
  EXPECT_EQ(lmx::folded("  a b\n    one two three", 12), "  a b\n    one\n      two\n      three");
  EXPECT_EQ(lmx::folded("unbreakable_word and", 8), "unbreakable_word\n  and");
  EXPECT_EQ(lmx::folded("a  b   c", 80), "a  b   c");
  EXPECT_EQ(lmx::folded("größer als", 10), "größer als");
  EXPECT_EQ(lmx::shortened("step 1/2  ETA 3s  loss 4", 18), "step 1/2  ETA 3s");
  EXPECT_EQ(lmx::shortened("step 1/2  ETA 3s  loss 4", 24), "step 1/2  ETA 3s  loss 4");
  EXPECT_EQ(lmx::shortened("reading the first text", 17), "reading the first");
  EXPECT_EQ(lmx::shortened("unbreakable_word", 5), "");
}

// Help on terminals of any width, with colours if the terminal supports them (tables: width_test.cc).

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
  ASSERT_THAT(run("run", {"train.steps=20"}), Succeeds());
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
