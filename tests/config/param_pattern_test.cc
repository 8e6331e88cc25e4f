// Patterns of parameter names: what they mean, and that no pattern takes the stack or the time of a run.
#include "lmx/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lmx/error.h"
#include "names.h"

namespace lmx {
namespace {

using lmx_test::Names;
using testing::AllOf;
using testing::ElementsAre;
using testing::StartsWith;

const std::vector<std::string> kNames{"embedding.weight", "lstm.0.bias", "mlstm.0.weight_mx", "softmax.weight"};

std::string refused(const std::string& text) {
  try {
    static_cast<void>(ParamPattern(text, "r.yaml:3:9: clip.0.params: ").select(kNames));
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(ParamPattern, IsSearchedForInTheName) {
  const auto found = [](const std::string& text) { return ParamPattern(text).select(kNames); };
  EXPECT_THAT(found("lstm"), ElementsAre("lstm.0.bias", "mlstm.0.weight_mx"));
  EXPECT_THAT(found("^lstm"), ElementsAre("lstm.0.bias"));
  EXPECT_THAT(found("embedding|softmax"), ElementsAre("embedding.weight", "softmax.weight"));
  EXPECT_THAT(found("\\.weight$"), ElementsAre("embedding.weight", "softmax.weight"));
  EXPECT_THAT(found(".*"), testing::ElementsAreArray(kNames));
  EXPECT_THAT(found(""), testing::ElementsAreArray(kNames));
  EXPECT_FALSE(ParamPattern("Softmax").matches("softmax.weight"));
}

TEST(ParamPattern, ErrorsBeginWithThePlace) {
  EXPECT_THAT(refused("sofmax"),
              AllOf(Names("'sofmax'", "embedding.weight, lstm.0.bias, mlstm.0.weight_mx, softmax.weight"),
                    StartsWith("r.yaml:3:9: clip.0.params: ")));
  for (const char* wrong : {"[", "(", "a{2,1}", "*", "(?!softmax)", "(a)\\1"})
    EXPECT_THAT(refused(wrong), AllOf(Names("regular expression"), StartsWith("r.yaml:3:9: clip.0.params: "))) << wrong;
}

// std::regex overflows its stack on the first and takes hours for the last.
TEST(ParamPattern, DepthAndLengthAndTimeAreBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '(') + "softmax" + std::string(depth, ')'); };
  EXPECT_EQ(refused(nested(2000)), "");
  const std::string longest = refused(nested(200'000));
  EXPECT_THAT(longest, Names("400007", "4096"));
  EXPECT_LT(longest.size(), 300u);
  EXPECT_THAT(refused("((a{900}){900}){900}"), Names("clip.0.params"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ParamPattern("^(a+)+$").matches(std::string(10'000, 'a') + "b"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace lmx
