// The output and the errors of lmx bleu.
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class BleuCommand : public RunTest {
 protected:
  void SetUp() override {
    write("ref", "the cat sat on the mat\na well-known fact\n");
    write("hyp", "the cat sat on a mat\na well known fact\n");
  }
  Outcome bleu(const Words& more) const {
    return run_lmx(joined({"bleu", path("ref"), "--hypothesis", path("hyp")}, more));
  }
};

TEST_F(BleuCommand, PrintsScoresWithTheirSignatures) {
  Outcome o = bleu({});
  EXPECT_THAT(o, Succeeds());
  EXPECT_THAT(o.out,
              Names("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-", "hyp_len = 10 ref_len = 9)"));
  o = bleu({"--metric", "multi-bleu,chrf,chrf++", "--split-compounds"});
  EXPECT_THAT(o.out, Names("BLEU = ", "hyp_len=10, ref_len=11)",
                           "chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:lmx-", "chrF2++|nrefs:1"));
  o = bleu({"--score-only", "--smooth", "floor", "--smooth-value", "0.5"});
  EXPECT_THAT(o.out, testing::MatchesRegex("[0-9]+\\.[0-9][0-9]\n"));
}

// Three sentences that the baseline translates worse. tests/data compares the statistics with sacreBLEU's.
TEST_F(BleuCommand, ComparesTwoSystems) {
  write("ref", "the cat sat on the mat\na dog runs in the park\nno more than that is known\n");
  write("hyp", "the cat sat on the mat\na dog runs in a park\nno more than that is known\n");
  write("base", "a cat sits on mats\ndogs run in the park\nthat is all that is known\n");
  const Words against{"--baseline", path("base"), "--samples", "100"};
  const auto with = [&](const Words& more) { return bleu(joined(more, against)); };
  Outcome o = with({});
  EXPECT_THAT(o, Prints("BLEU|nrefs:1|bs:100|seed:12345|case:mixed", "\nbaseline BLEU|",
                        "(\xce\xbc = ", "BLEU difference = +", "better at the 5 %"));
  // The interval of each system is the one that it has alone.
  const auto interval_in = [](const std::string& out) { return first_match(out, "\\(\xce\xbc = [^)]*\\)"); };
  EXPECT_EQ(interval_in(o.out), interval_in(bleu({"--confidence", "100"}).out));
  EXPECT_EQ(interval_in(o.out.substr(o.out.find("\nbaseline"))),
            interval_in(run_lmx({"bleu", path("ref"), "--hypothesis", path("base"), "--confidence", "100"}).out));
  o = with({"--metric", "ter", "--test", "randomization"});
  EXPECT_THAT(o.out,
              AllOf(Names("TER|nrefs:1|ar:100|seed:12345|case:lc|tok:tercom", "TER difference = -", "100 trials"),
                    Not(HasSubstr("\xce\xbc"))));
  const Json json = Json::parse(with({"--metric", "bleu,ter", "--json"}).out);
  ASSERT_EQ(json["scores"].size(), 2u);
  for (const Json& score : json["scores"]) {
    EXPECT_LT(score["p_value"].get<double>(), 0.05) << score;
    EXPECT_GT(score["interval"]["half_width"].get<double>(), 0) << score;
    EXPECT_EQ(score["baseline"]["metric"], score["metric"]);
  }
  EXPECT_LT(json["scores"][1]["score"].get<double>(), json["scores"][1]["baseline"]["score"].get<double>());
}

TEST_F(BleuCommand, ScoresSentencesAndIntervals) {
  const Outcome lines = bleu({"--sentences"});
  EXPECT_THAT(lines.out, testing::MatchesRegex("[0-9]+\\.[0-9][0-9]\n[0-9]+\\.[0-9][0-9]\n"));
  EXPECT_THAT(bleu({"--effective-order"}).out, HasSubstr("|eff:yes|"));
  EXPECT_THAT(bleu({"--confidence"}).out, Names("|bs:1000|seed:12345|", " \xc2\xb1 "));
  EXPECT_THAT(bleu({"--confidence", "50", "--metric", "chrf"}).out, HasSubstr("chrF2|nrefs:1|bs:50|seed:12345|"));
  const Json json = Json::parse(bleu({"--sentences", "--json"}).out);
  EXPECT_EQ(json["scores"][0]["sentences"].size(), 2u);
}

// The text is already tokenized, so full stops are separate words, and lmx's tokenizer must not be applied again.
TEST_F(BleuCommand, WarnsOfTokenizedText) {
  write("ref", "The cat sat .\nA dog runs .\nNo , it does not !\n");
  write("hyp", "The cat sat.\nA dog runs.\nNo, it doesn't!\n");
  const auto warned = [](const Outcome& o) { return o.err.find("warning: ") != std::string::npos; };
  EXPECT_THAT(bleu({}), Warns(Names(path("ref"), "--metric multi-bleu"), Not(HasSubstr(path("hyp")))));
  EXPECT_TRUE(warned(bleu({"--metric", "multi-bleu,chrf"})));
  EXPECT_FALSE(warned(bleu({"--metric", "multi-bleu"})));
  EXPECT_FALSE(warned(bleu({"--tokenize", "none"})));
  write("ref", "The cat sat.\nA dog runs .\nSo it does.\n");  // a single such line causes no warning
  EXPECT_FALSE(warned(bleu({})));
  write("hyp", "The cat sat .\nA dog runs .\nSo it does.\n");
  EXPECT_THAT(bleu({}).err, Names(path("hyp")));
}

TEST_F(BleuCommand, RefusesWithOneMessage) {
  const auto refused = [&](Words more, const NamesMatcher& facts) {
    const Outcome o = bleu(std::move(more));
    EXPECT_THAT(o, Refuses(facts));
    EXPECT_EQ(o.out, "");
  };
  refused({"--metric", "tre"}, Names("'ter'?"));
  refused({"--test", "bootstrp", "--baseline", path("hyp")}, Names("'bootstrap'?"));
  refused({"--samples", "100"}, Names("--samples", "--baseline"));
  refused({"--sentences", "--confidence"}, Names("--sentences"));
  refused({"--metric", "bleu,chfr"}, Names("'chfr'", "'chrf'?"));
  refused({"--tokenize", "14a"}, Names("'14a'"));
  refused({"--metric", "chrf,ter", "--tokenize", "zh"}, Names("--tokenize", "without --metric bleu"));
  refused({"--ter-case-sensitive"}, Names("--ter-case-sensitive", "without --metric ter"));
  EXPECT_THAT(run_lmx({"bleu", "-"}), Refuses("only one of REF, --hypothesis and --baseline"));
  refused({"--smooth", "exp", "--smooth-value", "1"}, Names("no value"));
  write("short", "one line\n");
  refused({path("short")}, Names("2 lines", "reference 2 has 1"));
  write("latin",
        "fa\xE7"
        "ade\nx\n");
  refused({path("latin")}, Names("latin:1:", "0xE7", "offset 2"));
  refused({path("missing")}, Names(path("missing")));
  EXPECT_THAT(run_lmx({"bleu"}), Refuses("REF"));
}

}  // namespace
}  // namespace lmx_test
