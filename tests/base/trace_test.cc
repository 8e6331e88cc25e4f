// lmx/trace.h: the Chrome trace is JSON that a viewer reads, the table adds up, threads do not disturb each other.
#include "lmx/trace.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;
using testing::MatchesRegex;

nlohmann::json written(const Tracer& tracer) {
  std::string path = (std::filesystem::temp_directory_path() / "lmx_trace_XXXXXX").string();
  const int file = mkstemp(path.data());
  EXPECT_GE(file, 0);
  close(file);
  tracer.write(path);
  std::ifstream in(path);
  nlohmann::json json = nlohmann::json::parse(in);
  std::filesystem::remove(path);
  return json;
}

TEST(Tracer, WritesCompleteEvents) {
  Tracer tracer;
  tracer.add("gemm", {10}, {25.5});
  tracer.add("a \"quoted\" \\ name\n", {30}, {30});
  const auto events = written(tracer)["traceEvents"];
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["ph"], "X");
  EXPECT_EQ(events[0]["name"], "gemm");
  EXPECT_EQ(events[0]["ts"], 10);
  EXPECT_EQ(events[0]["dur"], 15.5);
  EXPECT_EQ(events[0]["pid"], getpid());
  EXPECT_EQ(events[1]["name"], "a \"quoted\" \\ name\n");
  EXPECT_EQ(events[1]["dur"], 0);
}

TEST(Tracer, EmptyTraceIsValid) {
  EXPECT_EQ(written(Tracer())["traceEvents"].size(), 0u);
  EXPECT_EQ(Tracer().table(), "span     calls    total ms     mean ms\n");
}

TEST(Tracer, SpansNestAndMoveForward) {
  Tracer tracer;
  {
    const Span outer(&tracer, "outer");
    const Span inner(&tracer, "inner");
  }
  const auto events = written(tracer)["traceEvents"];
  ASSERT_EQ(events.size(), 2u);  // in order of their ends
  const auto end = [](const nlohmann::json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); };
  EXPECT_EQ(events[0]["name"], "inner");
  EXPECT_LE(events[1]["ts"], events[0]["ts"]);
  EXPECT_GE(end(events[1]) + 1e-3, end(events[0]));
}

TEST(Tracer, SpanWithoutTracerDoesNothing) {
  const Span span(nullptr, "nothing");
}

TEST(Tracer, ThreadsGetLanesAndLoseNothing) {
  Tracer tracer;
  constexpr int kThreads = 8, kSpans = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kSpans; ++i) const Span span(&tracer, "work");
    });
  }
  for (std::thread& t : threads) t.join();
  const auto events = written(tracer)["traceEvents"];
  EXPECT_EQ(events.size(), size_t{kThreads * kSpans});
  std::vector<int> lanes(kThreads);
  for (const auto& e : events) ++lanes.at(e["tid"].get<size_t>());
  EXPECT_THAT(lanes, testing::Each(kSpans));
}

// A device that needs 100 us for the work between two points.
class SlowDevice final : public DeviceClock {
 public:
  int64_t mark() override { return points_++; }
  std::vector<double> times_us() override {
    std::vector<double> times;
    for (int64_t i = 0; i < points_; ++i) times.push_back(100.0 * static_cast<double>(i));
    return times;
  }
  void restart() override { points_ = 1; }

 private:
  int64_t points_ = 0;
};

TEST(Tracer, ADeviceHasARowOfItsOwn) {
  Tracer tracer;
  tracer.measure_device(std::make_unique<SlowDevice>());
  tracer.clear();  // begins with point 0 again
  {
    const Span outer(&tracer, "outer");
    const Span inner(&tracer, "inner");
  }
  const auto events = written(tracer)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2]["name"], "inner");
  EXPECT_EQ(events[2]["tid"], Tracer::kDeviceRow);
  EXPECT_NEAR(events[2]["dur"], 100, 1e-2);  // from point 2 to point 3
  EXPECT_NEAR(events[3]["dur"], 300, 1e-2);  // from point 1 to point 4
  EXPECT_NEAR(events[2]["ts"].get<double>() - events[3]["ts"].get<double>(), 100, 1e-2);
  EXPECT_THAT(tracer.table(), testing::HasSubstr("device ms\n"));
  EXPECT_THAT(tracer.table(), testing::ContainsRegex("inner +1 +[0-9.]+ +[0-9.]+ +0.100"));
}

TEST(Tracer, TableAddsUpAndPutsTheLongestFirst) {
  Tracer tracer;
  tracer.add("short", {0}, {1000});
  tracer.add("long", {0}, {4000});
  tracer.add("short", {5000}, {7000});
  EXPECT_EQ(tracer.table(),
            "span      calls    total ms     mean ms\n"
            "long          1       4.000       4.000\n"
            "short         2       3.000       1.500\n");
  tracer.clear();
  EXPECT_THAT(tracer.table(), MatchesRegex("span[^\n]*\n"));
}

TEST(Tracer, UnwritableFileIsARunError) {
  for (const std::string& path : {lmx_test::missing_path(), std::string("/dev/full")}) {
    Tracer tracer;
    for (int i = 0; i < 5000; ++i) tracer.add("x", {0}, {1});
    EXPECT_THAT(run_error([&] { tracer.write(path); }), Names("[data] cannot ", path));
  }
}

}  // namespace
}  // namespace lmx
