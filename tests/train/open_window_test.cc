// Counters of ranks between two records, as a checkpoint stores them.
#include "runfiles/open_window.h"

#include <gmock/gmock.h>

#include "names.h"
#include "train/fixture.h"

namespace lmx::train {
namespace {

using lmx_test::Names;

OpenWindow counted(int64_t steps, int64_t sent, double error, double residual) {
  OpenWindow w;
  w.steps = steps;
  w.traffic[{"rest", "all_to_all"}] = {steps, sent, 2 * sent, 0.1};
  w.health["lstm.0.wx"] = {100 * steps, 3, 1, error, 2.5, residual};
  w.times = {0.25, 0.125};
  return w;
}

TEST(OpenWindow, ComesBackExactly) {
  const OpenWindow before = counted(7, 1234, 1.0 / 3, 1e-300);
  const OpenWindow after = open_window({before.to_json()}, "step-7");
  EXPECT_EQ(after.to_json(), before.to_json());
  EXPECT_EQ(after.health.at("lstm.0.wx").error, 1.0 / 3);
  EXPECT_EQ(open_window({}, "").to_json(), OpenWindow().to_json());
}

TEST(OpenWindow, AddsUpButForResiduals) {
  OpenWindow w = counted(7, 1000, 1, 8);
  w.add(counted(3, 10, 0.5, 2));
  EXPECT_EQ(w.steps, 10);
  const TrafficSum& sum = w.traffic.at({"rest", "all_to_all"});
  EXPECT_EQ(sum.sent, 1010);
  EXPECT_EQ(sum.received, 2020);
  const CodecHealth& h = w.health.at("lstm.0.wx");
  EXPECT_EQ(h.values, 1000);
  EXPECT_EQ(h.error, 1.5);
  EXPECT_EQ(h.residual, 2) << "the current residual";
}

// A run of four ranks continues with two: each takes the windows of two ranks, which counted the same steps.
TEST(OpenWindow, OfAnotherNumberOfRanks) {
  std::vector<std::string> texts;
  for (int64_t r = 0; r < 4; ++r) texts.push_back(counted(5, 1 << r, 0, 0).to_json());
  const auto numbers = window_texts(texts);
  const auto of = [&](int rank, int size) { return open_window(windows_of(numbers, rank, size), "x"); };
  EXPECT_EQ(of(1, 2).traffic.at({"rest", "all_to_all"}).sent, 2 + 8);
  EXPECT_EQ(of(1, 2).steps, 5);
  EXPECT_EQ(of(2, 4).traffic.at({"rest", "all_to_all"}).sent, 4);
  EXPECT_EQ(of(5, 8).steps, 0);
}

TEST(OpenWindow, DamagedText) {
  EXPECT_THAT(message<UserError>([] { open_window({"{\"steps\":1}"}, "run/step-7"); }), Names("run/step-7/state.json"));
}

}  // namespace
}  // namespace lmx::train
