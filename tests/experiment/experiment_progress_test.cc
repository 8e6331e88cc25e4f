// The progress of an experiment or a sweep, from the records of its runs.
#include "app/jobs/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using lmx_cli::jobs::Progress;

class ExperimentProgress : public RunTest {
 protected:
  Progress::Job cell(const std::string& id, const std::string& recipe) {
    std::filesystem::create_directory(folder_ / id);
    return {id, path(id), lmx_cli::jobs::length_of(lmx::parse_yaml(recipe, id))};
  }
  void record(const Progress::Job& job, const std::string& line) { write(job.id + "/metrics.jsonl", line + "\n"); }
};

// An epoch is the same work for every batch size.
TEST_F(ExperimentProgress, EpochsCountByTheirText) {
  const Progress::Job small = cell("16", "batch: {global: 16}\ntrain: {steps: 0, epochs: 1}\n"),
                      large = cell("256", "batch: {global: 256}\ntrain: {steps: 0, epochs: 1}\n"),
                      half = cell("half",
                                  "batch: {global: 16}\ntrain: {steps: 0, epochs: 1}\ndata: {train_fraction: 0.5}\n");
  Progress p({small, large, half}, {"cell"});
  EXPECT_TRUE(std::isnan(p.done_part()));
  p.started(small.id);
  record(small, R"({"step":10,"epoch":0.1})");
  EXPECT_NEAR(p.done_part(), 0.1 / 2.5, 1e-12);
  p.ended(small.id, {.outcome = "done", .ended = true});
  p.started(half.id);
  record(half, R"({"step":10,"epoch":0.2})");
  EXPECT_NEAR(p.done_part(), 1.1 / 2.5, 1e-12);
}

// A part of the text that was read first determines the length of the whole text.
TEST_F(ExperimentProgress, APartTellsOfTheWhole) {
  const Progress::Job half = cell("half",
                                  "batch: {global: 8}\ntrain: {steps: 0, epochs: 1}\ndata: {train_fraction: 0.5}\n"),
                      whole = cell("whole", "batch: {global: 8}\ntrain: {steps: 0, epochs: 1}\n"),
                      counted = cell("counted", "batch: {global: 8}\ntrain: {steps: 100, epochs: 1}\n");
  Progress p({half, whole, counted}, {"cell"});
  p.started(half.id);
  record(half, R"({"step":40,"epoch":0.4})");  // 100 updates per epoch, 200 for the whole text
  EXPECT_NEAR(p.done_part(), 40.0 / (100 + 200 + 100), 1e-12);
  record(counted, R"({"step":100})");
  EXPECT_EQ(Progress({counted}, {"cell"}).done_part(), 1);
}

TEST_F(ExperimentProgress, UpdatesCountByTheirBatches) {
  const Progress::Job small = cell("1", "batch: {global: 1}\ntrain: {steps: 100, epochs: 1}\n"),
                      large = cell("3", "batch: {global: 3}\ntrain: {steps: 100, epochs: 1}\n");
  record(small, R"({"step":50})");  // before this experiment started
  Progress p({small, large}, {"cell"});
  EXPECT_EQ(p.done_part(), 0);
  p.started(large.id);
  record(large, R"({"step":20})");
  EXPECT_NEAR(p.done_part(), 60.0 / 350, 1e-12);
}

}  // namespace
}  // namespace lmx_test
