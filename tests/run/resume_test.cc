// Runs that are killed or receive a signal, and continue bit-exactly.
#include <random>

#include "process/run_fixture.h"
#include "runfiles/checkpoint.h"

namespace lmx_test {
namespace {

class Resume : public RunTest {
 protected:
  using RunTest::lmx;
  // lmx eval or lmx generate on run `a`.
  Words lmx(const std::string& verb) const { return {build_path("/bin/lmx"), verb, path("a")}; }

  // The quickstart with little data, in the folder `dir`.
  Outcome short_run(const std::string& dir, const Words& more) const {
    return lmx(joined({"run", source_path("/recipes/quickstart.yaml"), "run.dir=" + path(dir), "optimizer=sgd",
                       "optimizer.lr=0.1", "clip=0", "batch.global=4", "data.vocab_size=40", "data.train_tokens=2000",
                       "data.valid_tokens=100", "data.test_tokens=0"},
                      more));
  }

  // Each command ends with exit code 2 and one message.
  void refused(const std::vector<Words>& commands, const Words& parts) const {
    for (const auto& words : commands) {
      const Outcome o = run_process(words, environment());
      EXPECT_THAT(o, Refuses(NamesMatcher(parts))) << words[1];
      EXPECT_EQ(o.out, "");
    }
  }

  // Runs as this user; if this user is root, as a user without root's permissions.
  Outcome run_as_other(Words words) const {
    if (geteuid() == 0) words.insert(words.begin(), {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
    return run_process(words, environment());
  }
};

// With one rank and with several.
class Killed : public Resume, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Killed, testing::Values("1", "3"));

TEST_P(Killed, AtRandomMomentsEndsInTheSameBits) {
  const Words ranks{"--ranks", GetParam()};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_THAT(run("whole", ranks), Succeeds());
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string expected = model("whole");
  ASSERT_FALSE(expected.empty());

  // The moments adapt to the speed of the machine: after a kill the next one is later on average, after a run that was
  // not killed in time it is earlier. So the loop ends, and neither start-up nor the end of a run escapes the kills.
  std::mt19937 random(7);
  std::uniform_real_distribution<double> fraction(0, 1.05);
  int finished = 0;
  for (int kills = 0; kills < 20;) {
    const std::string dir = "killed" + std::to_string(finished);
    const pid_t child = start(command(dir, {"--resume", "auto", ranks[0], ranks[1]}));
    std::this_thread::sleep_for(std::chrono::duration<double>(fraction(random) * seconds));
    kill(child, SIGKILL);
    const int code = wait_for(child);
    if (code == 128 + SIGKILL) {
      ++kills;
      seconds *= 1.05;
      continue;
    }
    ASSERT_EQ(code, 0);
    EXPECT_EQ(model(dir), expected);
    EXPECT_EQ(metrics(dir), metrics("whole"));
    ++finished;
    seconds *= 0.9;
  }
  const std::string last = "killed" + std::to_string(finished);
  ASSERT_THAT(run(last, {"--resume", "auto", ranks[0], ranks[1]}), Succeeds());
  EXPECT_EQ(model(last), expected);
  EXPECT_EQ(metrics(last), metrics("whole"));
  for (const auto& entry : fs::directory_iterator(folder_ / last / "checkpoints"))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

// The strategies of recipes/sync.
Words strategies() {
  Words all;
  for (const auto& entry : fs::directory_iterator(source_path("/recipes/sync"))) all.push_back(entry.path().stem());
  std::sort(all.begin(), all.end());
  return all;
}

// With most strategies, one rank has no separate state, and its checkpoint has no file of a rank.
class Alone : public Resume, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Alone, testing::ValuesIn(strategies()),
                         [](const auto& strategy) { return strategy.param; });

TEST_P(Alone, ContinuesInTheSameBits) {
  // These two take gradients of whole tables, which the output layer of this gpt gives them.
  const bool whole = GetParam() == "zero" || GetParam() == "one_bit_adam";
  const Words model_args =
      whole ? Words{"model=gpt", "~model.embedding", "~model.cells", "model.layers=1", "model.d=8", "model.heads=1"}
            : Words{"model.cells=4", "model.embedding=4", "loss=sampled_softmax", "loss.samples=8"};
  // These exchange values every few steps; the pause is between two exchanges.
  const std::map<std::string, Words> periods{
      {"unique_diloco", {"sync.rest.every=2"}}, {"streaming_diloco", {"sync.all.every=4"}},
      {"diloco", {"sync.all.every=2"}},         {"local_sgd", {"sync.all.every=2"}},
      {"muloco", {"sync.all.every=2"}},         {"noloco", {"sync.all.every=2"}},
      {"sparse_loco", {"sync.all.every=2"}}};
  const auto period = periods.find(GetParam());
  const Words own = joined({"sync=" + GetParam(), "train.steps=5"},
                           joined(model_args, period == periods.end() ? Words{} : period->second));
  const auto steps = [&](const std::string& dir, const Words& more) { return short_run(dir, joined(own, more)); };
  const auto files = [&](const std::string& dir, const std::string& step) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_ / dir / "checkpoints" / step))
      if (entry.path().extension() == ".safetensors") all[entry.path().filename()] = read_file(entry.path());
    return all;
  };
  ASSERT_THAT(steps("whole", {}), Succeeds());
  ASSERT_THAT(steps("paused", {"--until", "3"}), Succeeds());
  const auto first = files("paused", "step-3");
  ASSERT_THAT(steps("paused", {"--resume", "auto"}), Succeeds());
  EXPECT_EQ(files("paused", "step-5"), files("whole", "step-5"));
  EXPECT_NE(files("whole", "step-5").at("model.safetensors"), first.at("model.safetensors"));
}

// A checkpoint of several ranks continues in one process, which maps the states of the others.
TEST_F(Resume, AnotherNumberOfRanksTakesWhatTheyKept) {
  const Words own{"sync=sparse_loco", "sync.all.every=2", "train.steps=6", "model.cells=4", "model.embedding=4"};
  ASSERT_THAT(short_run("a", joined(own, {"--ranks", "2", "--until", "4"})), Succeeds());
  EXPECT_THAT(short_run("a", joined(own, {"--resume", "auto"})), Succeeds());
}

// Pauses between validations, at one, and at the last step, which is no pause; the schedule depends on every
// validation.
TEST_F(Resume, PausesLeaveNoTrace) {
  ASSERT_THAT(run("whole"), Succeeds());
  for (const std::string until : {"1", "35", "60"}) {
    ASSERT_THAT(run("paused", {"--until", until, "--resume", "auto"}),
                Prints("paused after step " + until + "\n", "valid ppl ", " --resume "));
    EXPECT_THAT(read_file(folder_ / "paused/status.json"), Names("\"paused\"", "\"step\": " + until + ","));
    const std::string records = read_file(folder_ / "paused/metrics.jsonl");
    EXPECT_THAT(records, HasSubstr("{\"step\":" + until + ",\"split\":\"valid\""));
    EXPECT_THAT(records, Not(HasSubstr("{\"step\":" + std::to_string(std::stoi(until) + 1))));
  }
  ASSERT_THAT(run("paused", {"--until", "120", "--resume", "auto"}), Prints(Not(HasSubstr("paused after"))));
  EXPECT_THAT(read_file(folder_ / "paused/status.json"), HasSubstr("\"done\""));
  EXPECT_EQ(model("paused"), model("whole"));
  EXPECT_EQ(metrics("paused"), metrics("whole"));
}

TEST_F(Resume, SignalsFinishTheStepAndSaveIt) {
  const Words longer{"train.steps=1500", "checkpoint.every=1500", "train.eval_every=1500", "train.log_every=10"};
  ASSERT_THAT(run("whole", longer), Succeeds());
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string dir = "signal" + std::to_string(signal);
    const pid_t child = start(command(dir, longer));
    ASSERT_TRUE(wait_for_records(child, dir));
    kill(child, signal);
    ASSERT_EQ(wait_for(child), code);
    EXPECT_THAT(read_file(folder_ / dir / "status.json"), HasSubstr("\"interrupted\""));
    ASSERT_EQ(run(dir, {"train.steps=1500", "checkpoint.every=1500", "train.eval_every=1500", "train.log_every=10",
                        "--resume", path(dir)})
                  .code,
              0);
    EXPECT_EQ(model(dir, 1500), model("whole", 1500));
    EXPECT_EQ(metrics(dir), metrics("whole"));
  }
}

// The line works in a shell without changes: its folder is quoted, and its options are kept.
TEST_F(Resume, TheHintAfterASignalIsACommandThatWorks) {
  const std::string plugins = build_path("/tests/plugins/good"), dir = "cut off at $5";
  fs::create_directory(path("more groups"));
  const Words more{"train.steps=1500",
                   "train.eval_every=1500",
                   "checkpoint.every=1500",
                   "clip=[]",
                   "train.log_every=10",
                   "--plugin-dir",
                   plugins,
                   "--config-dir",
                   path("more groups")};
  ASSERT_THAT(run("whole", more), Succeeds());
  const pid_t child = start(command(dir, more), path("out.txt"));
  ASSERT_TRUE(wait_for_records(child, dir));
  kill(child, SIGTERM);
  ASSERT_EQ(wait_for(child), 143);
  const std::string out = read_file(path("out.txt"));
  const Words hints = proposed(out);
  ASSERT_EQ(hints.size(), 3u) << out;
  EXPECT_THAT(hints.back(), Names(" run ", "--plugin-dir " + plugins, "--resume "));
  for (auto hint = hints.rbegin(); hint != hints.rend(); ++hint) {  // the best one exists when the run has ended
    EXPECT_THAT(run_process({"/bin/sh", "-c", *hint}, environment_with_lmx()), Succeeds()) << *hint;
  }
  EXPECT_EQ(model(dir, 1500), model("whole", 1500));
}

TEST_F(Resume, FinishedRunSaysItsResultAgain) {
  const Outcome first = run("done"), again = run("done", {"--resume", path("done")});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.out, first.out);
}

TEST_F(Resume, AnotherModelShape) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const Outcome o = run("a", {"train.steps=10", "--resume", path("a"), "model.cells=24"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err,
              Names("parameter lstm.0.weight_ih", "(64, 12) there", "(96, 12) here", "model.cells: 16 there, 24 here"));
}

TEST_F(Resume, AnotherRecipeOfTheSameShape) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const Outcome o =
      run("a", {"train.steps=10", "--resume", path("a"), "seed=2", "optimizer.lr=0.5", "model.dropout=0"});
  EXPECT_THAT(o, Refuses("seed: 1 there, 2 here", "optimizer.lr: 0.01 there, 0.5 here", "model.dropout: 0.1 there"));
}

TEST_F(Resume, LongerIsAllowed) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  ASSERT_THAT(run("a", {"train.steps=20", "--resume", path("a")}), Succeeds());
  ASSERT_THAT(run("b", {"train.steps=20"}), Succeeds());
  EXPECT_FALSE(model("b", 20).empty());
}

TEST_F(Resume, UnreadableRunDirectories) {
  EXPECT_THAT(run("a", {"--resume", path("nowhere")}), Refuses(path("nowhere")));
  EXPECT_THAT(run("a", {"--resume", path("tiny.yaml")}), Refuses("no directory"));
  fs::create_directory(path("other"));
  write("other/notes.txt", "x");
  EXPECT_THAT(run("a", {"--resume", path("other")}), Refuses("config.yaml"));
  EXPECT_FALSE(fs::exists(path("other/log.txt")));
}

// A part of the state that nothing reads would be lost in silence.
TEST_F(Resume, StateOfAnotherVersion) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const std::string folder = path("a/checkpoints/step-10");
  lmx::TrainState state = lmx::load_checkpoint(folder, lmx::Allocator::cpu());
  state.train.emplace("replicas/fragment.0", state.model.begin()->second);
  fs::remove_all(folder);
  lmx::save_checkpoint(path("a"), 10, state);
  EXPECT_THAT(run("a", {"train.steps=20", "--resume", path("a")}),
              Refuses("step-10", "'replicas/fragment.0'", "this version of lmx does not read"));
}

TEST_F(Resume, DamagedCheckpoints) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const std::string file = path("a/checkpoints/step-10/train_state.safetensors"), good = read_file(file);
  const auto refused = [&](const std::string& message) {
    EXPECT_THAT(run("a", {"train.steps=20", "--resume", path("a")}),
                Refuses("step-10/train_state.safetensors", message));
  };
  write("a/checkpoints/step-10/train_state.safetensors", good.substr(0, good.size() - 9));
  refused("damaged");
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
  write("a/checkpoints/step-10/train_state.safetensors", flipped);
  refused("SHA-256");
  fs::remove(file);
  refused("missing");
}

// A checkpoint that is complete, but belongs to another model.
TEST_F(Resume, CheckpointOfAnotherShape) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  ASSERT_THAT(run("b", {"train.steps=10", "model.cells=24"}), Succeeds());
  fs::remove_all(path("a/checkpoints"));
  fs::copy(path("b/checkpoints"), path("a/checkpoints"), fs::copy_options::recursive);
  const std::string before = read_file(path("a/metrics.jsonl"));
  refused(
      {command("a", {"train.steps=20", "--resume", path("a")}), lmx("eval"), lmx("generate")},
      {"[resume] parameter lstm.0.weight_ih", "(96, 12) f32", "a/checkpoints/step-10", "(64, 12) f32 in this recipe"});
  EXPECT_EQ(read_file(path("a/metrics.jsonl")), before);
}

// A run that an earlier build began has no value of a key that is newer. It used what is the default now.
TEST_F(Resume, KeysThatAreNewerThanTheRunHaveTheirDefaults) {
  ASSERT_THAT(run("whole", {"train.steps=20"}), Succeeds());
  ASSERT_THAT(run("a", {"train.steps=20", "--until", "10"}), Succeeds());
  std::string config = read_file(path("a/config.yaml"));
  const std::string key = "deterministic: true\n";
  ASSERT_NE(config.find(key), std::string::npos);
  write("a/config.yaml", config.erase(config.find(key), key.size()));
  refused({command("a", {"train.steps=20", "--resume", "auto", "deterministic=false"})},
          {"another recipe", "deterministic: true there, false here"});
  ASSERT_THAT(run("a", {"train.steps=20", "--resume", "auto"}), Succeeds());
  EXPECT_EQ(model("a", 20), model("whole", 20));
}

// The starts of a run are a record, and not needed to continue it.
TEST_F(Resume, DamagedProvenanceIsKeptBesideTheNewOne) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const std::string cut = read_file(path("a/provenance.json")).substr(0, 100);
  write("a/provenance.json", cut);
  EXPECT_THAT(run("a", {"train.steps=20", "--resume", path("a")}), Warns(Names("provenance.json is damaged")));
  EXPECT_EQ(read_file(path("a/provenance.json.damaged")), cut);
  EXPECT_EQ(nlohmann::json::parse(read_file(path("a/provenance.json")))["starts"].size(), 1u);
}

TEST_F(Resume, DamagedConfig) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  const std::vector<Words> commands{command("a", {"train.steps=20", "--resume", path("a")}), lmx("eval"),
                                    lmx("generate")};
  const std::string good = read_file(path("a/config.yaml"));
  write("a/config.yaml", "model: {name: lstm\n" + good);
  refused(commands, {path("a/config.yaml") + ":", "'{'", "'}'"});
  write("a/config.yaml", "");
  refused(commands, {path("a/config.yaml"), "damaged"});
  write("a/config.yaml", "just words\n");
  refused(commands, {path("a/config.yaml"), "damaged"});
  fs::remove(path("a/config.yaml"));
  refused(commands, {"config.yaml"});
}

// Root can read everything, so as root the commands run as another user.
TEST_F(Resume, DirectoryWithoutPermission) {
  ASSERT_THAT(run("a", {"train.steps=10"}), Succeeds());
  fs::permissions(folder_, fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  if (geteuid() == 0 && on_path("setpriv").empty()) GTEST_SKIP() << "there is no setpriv (Debian: util-linux)";
  if (run_as_other({build_path("/bin/lmx"), "config", path("tiny.yaml")}).code != 0)
    GTEST_SKIP() << "this is root, and another user cannot run " << build_path("/bin/lmx") << " or read " << folder_;
  fs::permissions(path("a"), fs::perms::none);
  for (const auto& words : {command("a", {"train.steps=20", "--resume", path("a")}), lmx("eval"), lmx("generate")}) {
    EXPECT_THAT(run_as_other(words), Refuses("[run]", path("a"), "Permission denied"));
  }
  fs::permissions(path("a"), fs::perms::owner_all);
}

TEST_F(Resume, TwoProcessesInOneRun) {
  const pid_t child = start(command("a", {"train.steps=1000000"}));
  ASSERT_TRUE(wait_for_records(child, "a"));
  const Outcome o = run("a", {"train.steps=1000000", "--resume", path("a")});
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_THAT(o, Refuses("another process"));
}

TEST_F(Resume, AutoStartsWhereThereIsNothing) {
  EXPECT_THAT(run("fresh", {"train.steps=10", "--resume", "auto"}), Succeeds());
  EXPECT_FALSE(model("fresh", 10).empty());
}

}  // namespace
}  // namespace lmx_test
