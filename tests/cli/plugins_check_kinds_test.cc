// lmx plugins check on losses, optimizers, schedules, codecs and metrics: each broken promise fails the check that is
// made for it.
#include <gmock/gmock.h>

#include "lmx/error.h"
#include "names.h"
#include "paths.h"
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

using lmx::str;
using testing::HasSubstr;

Outcome check(const std::string& kind, const std::string& config, const std::vector<std::string>& more = {}) {
  const std::string file = str(build_path("/tests/plugins/own_kinds/test_"), kind, "/test_", kind, ".so");
  std::vector<std::string> words{"plugins", "check", file, "--config", config};
  words.insert(words.end(), more.begin(), more.end());
  return run_lmx(words, {{"OMP_NUM_THREADS", "1"}});
}

// The check that a fault must fail, and no other.
struct Fault {
  const char* kind;
  int fault;
  const char *check, *text;
};
class Faults : public testing::TestWithParam<Fault> {};
TEST_P(Faults, FailTheirCheckAlone) {
  const auto& [kind, fault, failed, text] = GetParam();
  const Outcome o = check(kind, str("{fault: ", fault, "}"));
  EXPECT_EQ(o.code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr(" passed, 1 failed\n"));
  EXPECT_THAT(o.out, HasSubstr(str("FAIL  ", failed, " ")));
  EXPECT_THAT(o.out, HasSubstr(text));
}
INSTANTIATE_TEST_SUITE_P(
    All, Faults,
    testing::Values(
        Fault{"loss", 1, "sum", "must return a sum over the targets"}, Fault{"loss", 2, "gradients", "features["},
        Fault{"loss", 3, "evaluation", "for target 0"}, Fault{"loss", 4, "likelihood", "nats"},
        Fault{"loss", 6, "tie", "embedding.weight"},
        Fault{"loss", 7, "parameters", "two parameters are called softmax.weight"},
        Fault{"loss", 10, "candidates", "draws_candidates() is false"},
        Fault{"loss", 11, "candidates", "draws_candidates() is true"}, Fault{"loss", 13, "dry run", "no words"},
        Fault{"loss", 14, "gradients", "softmax.weight is dense"}, Fault{"optimizer", 1, "rate", "another `lr`"},
        Fault{"optimizer", 2, "rate", "lmx::trait::kLearningRate"}, Fault{"optimizer", 3, "scale", "grad_scale 0.25"},
        Fault{"optimizer", 4, "state", "resumed after update 3"},
        Fault{"optimizer", 5, "other rows", "row 0 is changed"}, Fault{"optimizer", 6, "dense rows", "another table"},
        Fault{"optimizer", 7, "memory", "bytes, and update() has allocated"},
        Fault{"optimizer", 8, "update", "changed()"}, Fault{"optimizer", 9, "gradient", "which ranks share"},
        Fault{"optimizer", 10, "wrong state", "table.no_such_slot"}, Fault{"optimizer", 11, "precision", "f32 and f64"},
        Fault{"schedule", 1, "state", "all that validated() changes"}, Fault{"schedule", 2, "rates", "of update 1001"},
        Fault{"schedule", 3, "purity", "depends on the updates"}, Fault{"schedule", 4, "wrong state", "3 numbers"},
        Fault{"codec", 1, "bytes", "bytes(0) is 4"}, Fault{"codec", 2, "bytes", "bytes(6) is 1000"},
        Fault{"codec", 3, "encoding", "must write every byte"}, Fault{"codec", 8, "not finite", "is decoded as 0"},
        Fault{"codec", 10, "feedback", "is 1.5"}, Fault{"metric", 1, "sums", "sums() is 0"},
        Fault{"metric", 2, "words", "words() is -1"}, Fault{"metric", 3, "addition", "sums[0]"},
        Fault{"metric", 4, "bounds", "behind"}, Fault{"metric", 5, "values", "'Mean'"},
        Fault{"metric", 6, "values", "is nan"}, Fault{"metric", 7, "values", "other names"},
        Fault{"metric", 8, "values", "twice"}, Fault{"metric", 9, "few words", "a metric without its map"}),
    [](const auto& one) { return str(one.param.kind, '_', one.param.fault); });

TEST(PluginsCheckKinds, PluginsWithoutFaultsPass) {
  for (const char* config : {"{}", "{sharpness: 3}"}) {
    const Outcome o = check("loss", config);
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_THAT(o.out, Names("training records the negative log-likelihood, not the loss", " passed, 0 failed"));
  }
  const Outcome optimizer = check("optimizer", "{inertia: 0.5}");
  EXPECT_EQ(optimizer.code, 0) << optimizer.out << optimizer.err;
  EXPECT_THAT(optimizer.out, Names("ok    rate", "states 0.5", "9 tensors saved and loaded", "588 bytes of state"));
  const Outcome schedule = check("schedule", "{share: 0.5}");
  EXPECT_EQ(schedule.code, 0) << schedule.out << schedule.err;
  EXPECT_THAT(schedule.out, Names("from 0.1 to 0.3 with a base of 0.3", "2 numbers; a resumed run"));
  const Outcome codec = check("codec", "{shrink: 2}");
  EXPECT_EQ(codec.code, 0) << codec.out << codec.err;
  EXPECT_THAT(codec.out, Names("16 bits for each of many values", "ok    round trip", "stay finite"));
  const Outcome metric = check("metric", "{}");
  EXPECT_EQ(metric.code, 0) << metric.out << metric.err;
  EXPECT_THAT(metric.out, Names("ok    words", "the 2 most probable words", "mean, largest", " passed, 0 failed"));
}

TEST(PluginsCheckKinds, AGradientMayBeApproximateOnPurpose) {
  const Outcome o = check("loss", "{fault: 2}", {"--approximate"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("ok    gradients     --approximate: not that of the loss, features[0]"));
}

// These faults make several results wrong.
TEST(PluginsCheckKinds, NoiseIsNamed) {
  EXPECT_THAT(check("loss", "{fault: 12}").out, HasSubstr("FAIL  determinism"));
  EXPECT_THAT(check("optimizer", "{fault: 13}").out, HasSubstr("FAIL  determinism"));
  EXPECT_THAT(check("codec", "{fault: 4}").out, HasSubstr("FAIL  round trip    the error of 1 values"));
  EXPECT_THAT(check("codec", "{fault: 5}").out, HasSubstr("FAIL  round trip"));
  EXPECT_THAT(check("codec", "{fault: 6}").out, HasSubstr("FAIL  zeros         1 zeros are decoded as 1e-06"));
  EXPECT_THAT(check("codec", "{fault: 7}").out, HasSubstr("FAIL  finite"));
}

TEST(PluginsCheckKinds, ExceptionsAreFailures) {
  EXPECT_THAT(check("loss", "{fault: 8}").out, HasSubstr("FAIL  value         a loss without its map"));
  EXPECT_THAT(check("loss", "{fault: 9}").out, HasSubstr("FAIL  gradients     a gradient without its map"));
  EXPECT_THAT(check("optimizer", "{fault: 12}").out, HasSubstr("FAIL  update        an optimizer without its map"));
  EXPECT_THAT(check("schedule", "{fault: 5}").out, HasSubstr("FAIL  rates         a schedule without its map"));
  EXPECT_THAT(check("codec", "{fault: 9}").out, HasSubstr("FAIL  encoding      a codec without its map"));
}

}  // namespace
}  // namespace lmx_test
