// Everything that the commands print for people fits into the terminal, and no word is broken.
#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/text.h"
#include "paths.h"
#include "patterns.h"
#include "process/sweep_fixture.h"
#include "process/terminal_process.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

constexpr unsigned short kWidths[] = {60, 80, 140};

std::set<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> lines_of(std::string text) {
  text = replaced(text, "\033\\[[0-9;]*[A-Za-z]", "");  // colours, and what moves the cursor
  std::replace(text.begin(), text.end(), '\r', '\n');
  std::istringstream in(text);
  std::vector<std::string> lines;
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
    Words all{build_path("/bin/lmx")};
    all.insert(all.end(), words.begin(), words.end());
    return run_process(all, settings);
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
  ASSERT_EQ(run("a", {"train.steps=14", "--ranks", "2"}).code, 0);
  ASSERT_EQ(run("b", {"train.steps=14", "--ranks", "2", "optimizer.lr=0.02"}).code, 0);
  ASSERT_EQ(sweep("s", {"train.steps=7", "optimizer.lr=0.001,0.002", "clip=1,2", "--seeds", "2"}).code, 0);
  const Words seeds{"compare", path("s/points/0-lr=0.001-clip=1-seed=1"), path("s/points/1-lr=0.001-clip=1-seed=2"),
                    "--to",    path("s/points/2-lr=0.001-clip=2-seed=1"), path("s/points/3-lr=0.001-clip=2-seed=2")};
  EXPECT_EQ(at(seeds, "").code, 0);
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

}  // namespace
}  // namespace lmx_test
