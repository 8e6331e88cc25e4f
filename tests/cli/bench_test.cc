// lmx bench's wrong inputs. (What it measures is in docs/performance.md; a timing is no test.)
#include <gmock/gmock.h>

#include "run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;

TEST(Bench, RefusesWhatItDoesNotKnow) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"word_lstn"}, "[bench] unknown workload 'word_lstn' (did you mean 'word_lstm'?); there are word_lstm and "
                        "nmt_transformer"},
      {{"--precision", "fp23"},
       "[bench] unknown precision 'fp23' (did you mean 'fp32'?); one of fp32, bf16, fp16, all"},
      {{"--steps", "0"}, "[bench] --steps 0: at least one step is timed"},
      {{"--threads", "-1"}, "[bench] --threads -1 is negative"},
  };
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Outcome o = run_lmx(words);
    EXPECT_EQ(o.code, 2);
    EXPECT_THAT(o.err, HasSubstr(message));
    EXPECT_EQ(o.out, "");
  }
}

TEST(Bench, HelpShowsEachDefault) {
  const Outcome o = run_lmx({"bench", "--help"});
  EXPECT_EQ(o.code, 0);
  for (const char* part :
       {"WORKLOAD=word_lstm ", "--precision P=all ", "--steps N=10 ", "--threads N=0 ", "--trace FILE "})
    EXPECT_THAT(o.out, HasSubstr(part));
}

}  // namespace
}  // namespace lmx_test
