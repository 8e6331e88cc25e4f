// lmx data list, prepare and stats.
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

class DataCommand : public testing::Test, protected TempFolder {
 protected:
  DataCommand() {
    std::ofstream text(folder_ / "a.txt");
    for (int i = 0; i < 4000; ++i) text << "word" << i % 997 << " is one of " << i * i % 1009 << "\n";
    std::ofstream(folder_ / "r.yaml") << "data: {name: text, files: [" << path("a.txt") << "], vocab_size: 100}\n";
  }
  Outcome lmx(const Words& arguments) const {
    return run_lmx(arguments, {{"LMX_CACHE_DIR", path("cache")}, {"LMX_DATA_DIR", path("none")}});
  }
};

TEST_F(DataCommand, ListSaysWhereAndHow) {
  EXPECT_THAT(lmx({"data", "list"}),
              Prints(Names("one_billion_word", path("none/gutenberg"), "to get it:  ", "licence     MIT"),
                     StartsWith("CORPUS")));
}

TEST_F(DataCommand, PrepareReports) {
  const std::string recipe = path("r.yaml");
  for (int i = 0; i < 2; ++i) {  // first built, then found
    EXPECT_THAT(lmx({"data", "prepare", recipe}), Prints("100 entries", "OOV", "first lost word", "directory: "));
  }
  EXPECT_THAT(lmx({"data", "prepare", recipe, "data.vocab_size=50"}).out, HasSubstr("50 entries"));
  EXPECT_THAT(lmx({"data", "prepare", recipe, "data.vocab_size=50000"}), Refuses("vocab_size 50000"));
}

TEST_F(DataCommand, StatsFitsAndPlots) {
  const std::string plot = path("plot.svg");
  for (const Words& source : {Words{path("r.yaml")}, {"--files", path("a.txt")}}) {
    EXPECT_THAT(lmx(joined({"data", "stats", "--plot", plot, "--draws", "2"}, source)),
                Prints("RESIDUAL %", "\n640 ", "U = ", "plot: " + plot));
    EXPECT_THAT(read_file(plot), HasSubstr("</svg>"));
  }
}

// The plot has a point for each row of the table, the fit and the paper's law; the records contain the same numbers.
TEST_F(DataCommand, StatsPlotAndRecordsHoldEveryPoint) {
  const std::string plot = path("plot.svg"), records = path("records.jsonl");
  const Outcome o = lmx({"data", "stats", path("r.yaml"), "--plot", plot, "--records", records});
  ASSERT_THAT(o, Succeeds());
  const auto count = [](const std::string& text, const std::string& word) {
    size_t n = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
    return n;
  };
  const std::string svg = read_file(plot), lines = read_file(records);
  const size_t points = count(lines, "\"split\":\"types\"");
  EXPECT_GE(points, 2u);
  EXPECT_EQ(count(svg, "<circle"), points);
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_THAT(svg, AllOf(HasSubstr("N^0.64"), Not(HasSubstr("nan"))));
  const std::string key = "\"exponent\":";
  const double exponent = std::stod(lines.substr(lines.find(key) + key.size()));
  char text[32];
  std::snprintf(text, sizeof text, "N^%.3f", exponent);
  EXPECT_THAT(o.out, HasSubstr(text));
  EXPECT_THAT(svg, HasSubstr(text));
}

TEST_F(DataCommand, StatsErrors) {
  EXPECT_EQ(lmx({"data", "stats"}).code, 2);
  EXPECT_THAT(lmx({"data", "stats", "--corpus", "gutenberg", "--files", "x"}).err, Names("name one of"));
  EXPECT_THAT(lmx({"data", "stats", "--corpus", "ptb"}).err, Names("'ptb'", "missing"));
  const Outcome o = lmx({"data", "stats", "--files", path("a.txt"), "--plot", path("no/such/plot.svg")});
  EXPECT_EQ(o.code, 2);  // before the files are read
  EXPECT_THAT(o.err, Names("--plot", path("no/such/plot.svg"), "there is no folder"));
}

class PairsCommand : public DataCommand {
 protected:
  PairsCommand() {
    std::ofstream en(folder_ / "a.en"), de(folder_ / "a.de"), scores(folder_ / "scores");
    for (int i = 0; i < 300; ++i) {
      en << "one man number " << i << " sees it\n";
      de << (i % 10 ? "ein Mann Nummer " : "eine sehr lange und ganz andere Zeile von Worten ") << i << " sieht es\n";
      scores << -i << "\n";
    }
    std::ofstream(folder_ / "p.yaml") << "data: {name: parallel, source_files: [" << file("a.en")
                                      << "], target_files: [" << file("a.de")
                                      << "], source_language: en, target_language: de, vocab_size: 60}\n";
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
};

TEST_F(PairsCommand, PrepareAndStatsKnowBothSides) {
  for (int i = 0; i < 2; ++i) {  // first built, then found
    EXPECT_THAT(lmx({"data", "prepare", file("p.yaml"), "data.max_ratio=1.5"}),
                Prints("60 subwords of en and de", "by max_ratio", "pairs: train 2"));
  }
  EXPECT_THAT(lmx({"data", "stats", file("p.yaml")}), Prints("LONGEST", "train en", "valid de"));
  const Outcome list = lmx({"data", "list"});
  EXPECT_THAT(list.out, Names("wmt16_en_de", "parallel    en and fr"));
  EXPECT_THAT(lmx({"data", "prepare", file("p.yaml"), "data.subword_model=none.model"}), Refuses("none.model"));
}

TEST_F(PairsCommand, FilterAndTopReportWhatTheyDrop) {
  const Outcome o =
      lmx({"data", "filter", "--source", file("a.en"), "--target", file("a.de"), "--out-tsv", file("b.tsv.gz")});
  EXPECT_THAT(o, Prints("ratio of lengths  30", "270 of 300 pairs (90.00 %)"));
  const Outcome top = lmx({"data", "top", "--k", "2", "--scores", file("scores"), "--source", file("a.en"), "--target",
                           file("a.de"), "--out-source", file("c.en"), "--out-target", file("c.de")});
  EXPECT_THAT(top, Prints("2 of 300 pairs", "-1"));
  EXPECT_EQ(read_file(file("c.en")), "one man number 0 sees it\none man number 1 sees it\n");
  EXPECT_THAT(lmx({"data", "top", "--k", "2", "--scores", file("scores"), "--tsv", file("b.tsv.gz"), "--out-tsv",
                   file("d.tsv")}),
              Refuses("300 scores", "270 pairs"));
  EXPECT_FALSE(fs::exists(file("d.tsv")));
  EXPECT_THAT(lmx({"data", "filter", "--source", file("a.en"), "--out-tsv", file("d.tsv")}),
              Refuses("1 source", "0 target"));
}

}  // namespace
}  // namespace lmx_test
