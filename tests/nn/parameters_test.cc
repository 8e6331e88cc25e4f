// The errors of a model's parameters: they name the parameter and the nearest valid name.
#include "lmx/parameters.h"

#include "lmx/error.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;

std::string refused(const std::function<void(Context& ctx, ParameterStore& params)>& use) {
  Context ctx;
  ParameterStore params;
  params.add(ctx, {"weight", {2, 3}, {"zeros", 0}}, RandomKey(1));
  return user_error([&] { use(ctx, params); });
}

TEST(Parameters, WrongDeclarationsAreNamed) {
  const auto added = [](const ParameterSpec& spec) {
    return refused([&](Context& ctx, ParameterStore& params) { params.add(ctx, spec, RandomKey(1)); });
  };
  EXPECT_THAT(added({"weight", {4}, {"ones", 0}}), Names("two parameters are named 'weight'"));
  EXPECT_THAT(added({"bias", {0, 3}, {"ones", 0}}), Names("'bias' has an empty shape (0, 3)"));
  EXPECT_THAT(added({.name = "qkv", .shape = {6, 2}, .init = {"ones", 0}, .parts = {2, 2}}), Names("'qkv'", "6 rows"));
  EXPECT_THAT(added({"bias", {3}, {"nromal", 1}}), Names("'nromal' (did you mean 'normal'?)", "zeros, ones, constant"));
}

TEST(Parameters, AWrongNameProposesTheNearest) {
  EXPECT_THAT(refused([](Context&, ParameterStore& params) { params.at("wieght"); }),
              Names("there is no parameter 'wieght' (did you mean 'weight'?)"));
  EXPECT_THAT(refused([](Context&, ParameterStore& params) { params.spec("weights"); }), Names("'weight'?"));
}

}  // namespace
}  // namespace lmx
