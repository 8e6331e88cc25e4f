// lmx bleu: what it prints and refuses.
#include <gmock/gmock.h>

#include "run_fixture.h"

namespace lmx_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BleuCommand : public RunTest {
 protected:
  void SetUp() override {
    write("ref", "the cat sat on the mat\na well-known fact\n");
    write("hyp", "the cat sat on a mat\na well known fact\n");
  }
  Outcome bleu(std::vector<std::string> more) const {
    more.insert(more.begin(), {"bleu", path("ref"), "--hypothesis", path("hyp")});
    return run_lmx(std::move(more));
  }
};

TEST_F(BleuCommand, PrintsScoresWithTheirSignatures) {
  Outcome o = bleu({});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:lmx-"),
                           HasSubstr("hyp_len = 10 ref_len = 9)")));
  o = bleu({"--metric", "multi-bleu,chrf,chrf++", "--split-compounds"});
  EXPECT_THAT(o.out, AllOf(HasSubstr("BLEU = "), HasSubstr("hyp_len=10, ref_len=11)"),
                           HasSubstr("chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:lmx-"),
                           HasSubstr("chrF2++|nrefs:1")));
  o = bleu({"--score-only", "--smooth", "floor", "--smooth-value", "0.5"});
  EXPECT_THAT(o.out, testing::MatchesRegex("[0-9]+\\.[0-9][0-9]\n"));
}

// Its own tokenizer would see full stops that are words already.
TEST_F(BleuCommand, WarnsOfTokenizedText) {
  write("ref", "The cat sat .\nA dog runs .\nNo , it does not !\n");
  write("hyp", "The cat sat.\nA dog runs.\nNo, it doesn't!\n");
  const auto warned = [](const Outcome& o) { return o.err.find("warning: ") != std::string::npos; };
  Outcome o = bleu({});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, AllOf(HasSubstr(path("ref")), HasSubstr("--metric multi-bleu"), Not(HasSubstr(path("hyp")))));
  EXPECT_TRUE(warned(bleu({"--metric", "multi-bleu,chrf"})));
  EXPECT_FALSE(warned(bleu({"--metric", "multi-bleu"})));
  EXPECT_FALSE(warned(bleu({"--tokenize", "none"})));
  write("ref", "The cat sat.\nA dog runs .\nSo it does.\n");  // one odd line is none
  EXPECT_FALSE(warned(bleu({})));
  write("hyp", "The cat sat .\nA dog runs .\nSo it does.\n");
  EXPECT_THAT(bleu({}).err, HasSubstr(path("hyp")));
}

TEST_F(BleuCommand, RefusesWithOneMessage) {
  const auto refused = [&](std::vector<std::string> more, const std::string& message) {
    const Outcome o = bleu(std::move(more));
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, HasSubstr(message));
    EXPECT_EQ(o.out, "");
  };
  refused({"--metric", "bleu,chfr"}, "no metric 'chfr' (did you mean 'chrf'?)");
  refused({"--tokenize", "14a"}, "no tokenizer '14a'");
  refused({"--smooth", "exp", "--smooth-value", "1"}, "has no value");
  write("short", "one line\n");
  refused({path("short")}, "the hypothesis has 2 lines and reference 2 has 1");
  write("latin", "fa\xE7""ade\nx\n");
  refused({path("latin")}, "latin:1: byte 0xE7 at offset 2 is not UTF-8");
  refused({path("missing")}, "cannot read");
  const Outcome none = run_lmx({"bleu"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("REF is required"));
}

}  // namespace
}  // namespace lmx_test
