// Checkpoint folders: complete or absent, verified on reading; pruning keeps the best one.
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "base/files.h"
#include "base/output_file.h"
#include "runfiles/checkpoint.h"
#include "train/fixture.h"

namespace lmx {
namespace {

using namespace lmx_test;
using Json = nlohmann::json;

TrainState small_state(float first) {
  TrainState s;
  s.model["w"] = floats({2, 2}, {first, 2, 3, 4});
  s.train["optimizer/w.sum"] = floats({2}, {0.5f, 1});
  s.numbers["step"] = "7";
  s.numbers["loss"] = "0.30000000000000004";
  return s;
}

TrainState large_state() {
  TrainState s = small_state(1);
  s.model["large"] = Tensor::zeros(Allocator::cpu(), {1 << 20}, DType::f32);
  return s;
}

class Checkpoint : public FolderTest {
 protected:
  std::string run() const { return folder_.string(); }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const CheckpointInfo& c : list_checkpoints(run())) all.push_back(c.step);
    return all;
  }
  std::string load_error(const std::string& folder) {
    return user_error([&] { load_checkpoint(folder, Allocator::cpu()); });
  }
};

TEST_F(Checkpoint, ComesBackAsItWas) {
  const std::string folder = save_checkpoint(run(), 7, small_state(1.5f));
  EXPECT_EQ(folder, run() + "/checkpoints/step-7");
  const TrainState s = load_checkpoint(folder, Allocator::cpu());
  EXPECT_EQ(s.model.at("w").data<float>()[0], 1.5f);
  EXPECT_EQ(s.train.at("optimizer/w.sum").data<float>()[1], 1.0f);
  EXPECT_EQ(s.numbers, small_state(0).numbers);
  EXPECT_EQ(checkpoint_numbers(folder), s.numbers);
}

TrainState state_of_ranks(int ranks) {
  TrainState s = small_state(1);
  for (int r = 0; r < ranks; ++r) {
    s.ranks.emplace_back();
    s.ranks.back()["all/w.push"] = floats({2}, {static_cast<float>(r), 7});
    s.ranks.back()["all/odd"] = Tensor::zeros(Allocator::cpu(), {3}, DType::u8);  // the tensor after it is not aligned
    s.ranks.back()["all/w.sum"] = floats({2}, {static_cast<float>(-r), 8});
  }
  return s;
}

// Damaged files show which files were read: with the same number of ranks each rank reads its own file, and rank 0
// verifies all files.
TEST_F(Checkpoint, AProcessReadsItsOwnRanksFileOnly) {
  const std::string folder = save_checkpoint(run(), 7, state_of_ranks(4));
  fs::resize_file(folder + "/rank-2.safetensors", 100);
  const TrainState s = load_checkpoint_of(folder, Allocator::cpu(), 1, 4);
  ASSERT_EQ(s.ranks.size(), 4u);
  EXPECT_EQ(s.ranks[1].at("all/w.push").data<float>()[0], 1.0f);
  for (const size_t other : {0u, 2u, 3u}) EXPECT_TRUE(s.ranks[other].empty()) << other;
  EXPECT_EQ(load_model(folder, Allocator::cpu(), "").model.at("w").data<float>()[0], 1.0f);
  for (const int rank : {0, 2})
    EXPECT_THAT(user_error([&] { load_checkpoint_of(folder, Allocator::cpu(), rank, 4); }),
                Names("rank-2.safetensors", "damaged"));
  EXPECT_THAT(load_error(folder), Names("rank-2.safetensors"));
}

// The use of a model needs neither the memory nor the bytes of the optimizer's state.
TEST_F(Checkpoint, AModelIsLoadedWithoutTheTrainingState) {
  TrainState whole = state_of_ranks(2);
  whole.train["optimizer/large"] = Tensor::zeros(Allocator::cpu(), {16 << 20}, DType::f32);
  whole.train["ema/w"] = floats({2}, {5, 6});
  const std::string folder = save_checkpoint(run(), 7, whole);
  const auto allocator = Allocator::cpu();
  const TrainState averages = load_model(folder, allocator, "ema/"), none = load_model(folder, allocator, "other/");
  EXPECT_LT(allocator->stats().total_peak, 1 << 20);
  ASSERT_EQ(averages.train.size(), 1u);
  EXPECT_EQ(averages.train.at("ema/w").data<float>()[1], 6.0f);
  EXPECT_TRUE(none.train.empty());
  EXPECT_EQ(none.model.at("w").data<float>()[0], 1.0f);
  EXPECT_EQ(none.numbers, whole.numbers);
  // A damaged training state matters to those alone who read some of it.
  const std::string file = folder + "/train_state.safetensors";
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  std::ofstream(file) << bytes;
  load_model(folder, allocator, "other/");
  EXPECT_THAT(user_error([&] { load_model(folder, allocator, "ema/"); }), Names("train_state.safetensors", "damaged"));
  std::string model = read_file(folder + "/model.safetensors");
  model.back() ^= 1;
  std::ofstream(folder + "/model.safetensors") << model;
  EXPECT_THAT(user_error([&] { load_model(folder, allocator, "other/"); }), Names("model.safetensors", "damaged"));
}

// A message must never tell anyone to remove a folder that is no checkpoint, or the only checkpoint.
TEST_F(Checkpoint, OnlyACheckpointAfterAnotherIsToBeRemoved) {
  const std::string advice = "remove that folder";
  for (const int64_t step : {3, 7}) {
    const std::string folder = save_checkpoint(run(), step, small_state(1));
    fs::resize_file(folder + "/model.safetensors", 100);
    const std::string error = load_error(folder);
    EXPECT_THAT(error, Names("damaged"));
    EXPECT_EQ(error.find(advice) != std::string::npos, step == 7) << error;
  }
  EXPECT_THAT(load_error(run()), AllOf(Names(run(), "is no checkpoint", "RUN/checkpoints"), Not(HasSubstr(advice))));
}

// Each rank has a residual of 64 MB. Those of other ranks take no memory of this process until they are accessed.
TEST_F(Checkpoint, OtherNumbersOfRanksAreMapped) {
  TrainState whole = state_of_ranks(4);
  for (StateDict& rank : whole.ranks) rank["all/large"] = Tensor::zeros(Allocator::cpu(), {16 << 20}, DType::f32);
  const std::string folder = save_checkpoint(run(), 7, whole);
  const auto allocator = Allocator::cpu();
  const TrainState s = load_checkpoint_of(folder, allocator, 1, 2);
  EXPECT_LT(allocator->stats().total_peak, 1 << 20);
  ASSERT_EQ(s.ranks.size(), 4u);
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(s.ranks[r].size(), 4u);
    EXPECT_EQ(s.ranks[r].at("all/w.push").data<float>()[0], static_cast<float>(r));
    EXPECT_EQ(s.ranks[r].at("all/w.sum").data<float>()[1], 8.0f);
    EXPECT_EQ(s.ranks[r].at("all/large").dim(0), 16 << 20);
  }
}

// A rank that cannot write reports why. It does not remove the files of other ranks, which would then report them
// missing.
TEST_F(Checkpoint, ARankThatCannotWriteLeavesTheOthersAlone) {
  const StateDict own{{"residual", floats({2}, {1, 2})}};
  begin_checkpoint(run(), 3);
  const std::string draft = run() + "/checkpoints/.step-3";
  fs::create_directories(draft + "/rank-1.safetensors/in the way");
  const std::string error = run_error([&] { add_to_checkpoint(run(), 3, 1, own); });
  EXPECT_THAT(error, Names("step-3", "directory"));
  add_to_checkpoint(run(), 3, 0, own);
  EXPECT_TRUE(fs::exists(draft + "/rank-0.safetensors"));
  EXPECT_EQ(steps(), std::vector<int64_t>());
  remove_unfinished_checkpoints(run());
  EXPECT_FALSE(fs::exists(draft));
}

TEST_F(Checkpoint, EqualStatesAreEqualBytes) {
  const std::string a = save_checkpoint(path("a"), 1, small_state(1)),
                    b = save_checkpoint(path("b"), 1, small_state(1));
  for (const char* name : {"/model.safetensors", "/train_state.safetensors", "/state.json"})
    EXPECT_EQ(lmx_test::read_file(a + name), lmx_test::read_file(b + name)) << name;
}

TEST_F(Checkpoint, AnExistingStepIsReplaced) {
  save_checkpoint(run(), 7, small_state(1));
  const std::string folder = save_checkpoint(run(), 7, small_state(9));
  EXPECT_EQ(load_checkpoint(folder, Allocator::cpu()).model.at("w").data<float>()[0], 9.0f);
  EXPECT_EQ(std::distance(fs::directory_iterator(run() + "/checkpoints"), {}), 1);
}

TEST_F(Checkpoint, UnfinishedFoldersAreSkippedAndCleared) {
  fs::create_directories(run() + "/checkpoints/.step-9");
  fs::create_directories(run() + "/checkpoints/step-x");
  fs::create_directories(run() + "/checkpoints/step-");
  fs::create_directories(run() + "/checkpoints/step-99999999999999999999");
  save_checkpoint(run(), 12, small_state(1));
  save_checkpoint(run(), 3, small_state(1));
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 12}));
  EXPECT_FALSE(fs::exists(run() + "/checkpoints/.step-9"));
  EXPECT_TRUE(list_checkpoints(path("nowhere")).empty());
}

TEST_F(Checkpoint, PruneKeepsTheLastAndTheProtected) {
  for (const int64_t step : {10, 20, 30, 40, 50}) save_checkpoint(run(), step, small_state(1));
  prune_checkpoints(run(), 2, {20});
  EXPECT_EQ(steps(), (std::vector<int64_t>{20, 40, 50}));
  prune_checkpoints(run(), 0, {});  // the last one is always kept
  EXPECT_EQ(steps(), (std::vector<int64_t>{50}));
}

TEST_F(Checkpoint, EveryFlippedBitIsFound) {
  const std::string folder = save_checkpoint(run(), 7, small_state(1));
  for (const char* name : {"/model.safetensors", "/train_state.safetensors", "/state.json"}) {
    const std::string good = lmx_test::read_file(folder + name);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_all(folder + name, bad);
      const std::string error = load_error(folder);
      // White space between JSON's tokens has no meaning: another white-space character is no damage.
      if (error == "no error")
        EXPECT_TRUE(std::isspace(static_cast<unsigned char>(bad[i]))) << name << " byte " << i;
      else
        EXPECT_THAT(error, Names(folder + name, "damaged")) << i;
    }
    write_all(folder + name, good);
  }
  EXPECT_EQ(load_error(folder), "no error");
}

TEST_F(Checkpoint, TruncatedAndMissingFiles) {
  const std::string folder = save_checkpoint(run(), 7, small_state(1));
  for (const char* name : {"/model.safetensors", "/train_state.safetensors", "/state.json"}) {
    const std::string good = lmx_test::read_file(folder + name);
    write_all(folder + name, good.substr(0, good.size() / 2));
    EXPECT_THAT(load_error(folder), Names(folder + name, "damaged")) << name;
    write_all(folder + name, "");
    EXPECT_THAT(load_error(folder), Names(folder + name, "damaged")) << name;
    fs::remove(folder + name);
    EXPECT_THAT(load_error(folder), Names(folder + name, "missing")) << name;
    write_all(folder + name, good);
  }
}

// Returns 0 if a RunError names the folder, the earlier checkpoint is complete, and no incomplete file remains. Runs in
// a forked child.
int full_disk_outcome(const std::string& run) {
  const std::string first = run_error([&] { save_checkpoint(run + "/new", 1, large_state()); });
  if (first.find("step-1 was not written: ") == std::string::npos) return 9;
  fs::remove_all(run + "/new");
  const std::string error = run_error([&] { save_checkpoint(run, 2, large_state()); });
  if (error.find("step-2 was not written, earlier checkpoints are intact") == std::string::npos) return 10;
  const auto left = list_checkpoints(run);
  if (left.size() != 1 || left[0].step != 1) return 11;
  if (std::distance(fs::directory_iterator(run + "/checkpoints"), {}) != 1) return 12;
  load_checkpoint(left[0].folder, Allocator::cpu());
  if (run_error([&] { write_file(run + "/file", std::string(5 << 20, 'x')); }) == "no error") return 13;
  return std::distance(fs::directory_iterator(run), {}) == 1 ? 0 : 14;
}

// The hash of state.json proves that the file is unchanged, but not that lmx wrote its content.
TEST_F(Checkpoint, AStateThatIsNoneOfOurs) {
  const std::string folder = save_checkpoint(run(), 1, small_state(1));
  const auto error_of = [&](const std::function<void(Json&)>& change) {
    Json json = Json::parse(lmx_test::read_file(folder + "/state.json"));
    const std::string before = json.dump();
    json.erase("sha256");
    change(json);
    write_all(path("hashed"), json.dump());
    json["sha256"] = sha256_of_file(path("hashed"));
    write_file(folder + "/state.json", json.dump());
    const std::string error = load_error(folder);
    write_file(folder + "/state.json", before);
    return error;
  };
  EXPECT_THAT(error_of([](Json& j) { j["format"] = "1"; }), Names("format \"1\"", "format 1"));
  EXPECT_THAT(error_of([](Json& j) { j.erase("format"); }), Names("format none"));
  for (const Json& ranks : {Json(1'000'000'000'000U), Json(-1), Json(1e300), Json("1"), Json(nullptr)})
    EXPECT_THAT(error_of([&](Json& j) { j["ranks"] = ranks; }), Names("ranks")) << ranks;
  EXPECT_THAT(error_of([](Json& j) { j["files"] = 7; }), Names("damaged"));
  EXPECT_THAT(error_of([](Json& j) { j["files"]["model.safetensors"]["bytes"] = 1.5; }),
              Names("model.safetensors", "1.5"));
  EXPECT_THAT(error_of([](Json& j) { j["numbers"]["step"] = 1; }), Names("damaged"));
  write_file(folder + "/state.json", "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_THAT(load_error(folder), Names("nested"));
  EXPECT_THAT(user_error([&] { checkpoint_numbers(folder); }), Names("nested"));
}

// A limit on the file size makes a write fail in the same way as a full disk, and needs no privileges.
TEST_F(Checkpoint, WriteThatFailsLeavesNothingBehind) {
  save_checkpoint(run(), 1, small_state(1));
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 20, 1 << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              return full_disk_outcome(run());
            }),
            0);
}

TEST_F(Checkpoint, FullDiskLeavesNothingBehind) {
  if (mount("tmpfs", run().c_str(), "tmpfs", 0, "size=2m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  save_checkpoint(run(), 1, small_state(1));
  const int outcome = in_child([&] { return full_disk_outcome(run()); });
  umount(run().c_str());
  EXPECT_EQ(outcome, 0);
}

TEST_F(Checkpoint, ReadOnlyFolder) {
  const std::string error = run_error([&] { save_checkpoint("/proc/1/nowhere", 1, small_state(1)); });
  EXPECT_THAT(error, Names("/proc/1/nowhere/checkpoints/step-1"));
}

TEST_F(Checkpoint, AtomicFileIsReplacedWhole) {
  write_file(path("f"), "one");
  write_file(path("f"), "two");
  EXPECT_EQ(lmx_test::read_file(path("f")), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_THAT(run_error([&] { write_file(path("no/such/f"), "x"); }), Names("no/such/f"));
}

}  // namespace
}  // namespace lmx
