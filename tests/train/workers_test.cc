// Runs whose ranks are workers of a parameter server.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/inference/evaluate_run.h"
#include "app/run/run.h"
#include "runfiles/checkpoint.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Appended to kWordRecipe.
constexpr const char* kWorkersTraining = R"(
model: {name: lstm, embedding: 8, cells: 10, projection: 6, dropout: 0.2}
loss: {name: sampled_softmax, samples: 12}
optimizer: {name: adam, lr: 0.01}
schedule: {name: halve_on_rise}
clip: 0.5
train: {steps: 24, log_every: 5, eval_every: 6}
checkpoint: {every: 24, keep_best: false}
sync: {rest: {params: ".*", strategy: param_server}}
)";

class Workers : public RunFolderTest {
 protected:
  Node recipe(const std::string& dir, int64_t ranks, const Changes& changes) const {
    return recipe_in(dir, ranks, str(kWordRecipe, kWorkersTraining), changes);
  }
  // The bytes of the model's file after the run.
  std::string run(const std::string& dir, int64_t ranks, const Changes& changes = {}, const std::string& resume = "") {
    result_ = run_recipe(recipe(dir, ranks, changes), "workers", {resume, {}, ""});
    return model(dir, result_.steps);
  }
  std::string model(const std::string& dir, int64_t step) const {
    return lmx_test::read_file(str(path(dir), "/checkpoints/step-", step, "/model.safetensors"));
  }
  std::string refused(int64_t ranks, const Changes& changes, const std::string& dir = "refused",
                      const std::string& resume = "") {
    const std::string text = user_error([&] { run(dir, ranks, changes, resume); });
    if (resume.empty()) {
      EXPECT_FALSE(fs::exists(path(dir))) << "a run folder was made";
    }
    return text;
  }
  // The training and validation records. Traffic and codec statistics are removed, since a resume restarts them.
  std::string curve(const std::string& dir) const {
    std::string text;
    for (const char* split : {"train", "valid"}) {
      for (nlohmann::json record : records(dir, split)) {
        for (const char* clock : {"step_s", "words_per_s", "comm_s", "comm_exposed_s", "train_s"}) record.erase(clock);
        const nlohmann::json all = record;
        for (const auto& [key, value] : all.items())
          if (key.starts_with("comm_") || key.starts_with("codec/")) record.erase(key);
        text += record.dump() + "\n";
      }
    }
    return text;
  }
  // Keeps only checkpoints up to `step`, as if the run had been killed after it.
  void cut(const std::string& from, const std::string& to, int64_t step) const {
    fs::copy(path(from), path(to), fs::copy_options::recursive);
    for (const CheckpointInfo& c : list_checkpoints(path(to)))
      if (c.step > step) fs::remove_all(c.folder);
  }
  static std::map<int64_t, int64_t> staleness(const std::vector<nlohmann::json>& train) {
    std::map<int64_t, int64_t> sum;
    const std::string prefix = "rest/staleness/";
    for (const auto& record : train)
      for (const auto& [key, value] : record.items())
        if (key.starts_with(prefix)) sum[std::stoll(key.substr(prefix.size()))] += value.get<int64_t>();
    return sum;
  }
  RunResult result_;
};

// No other worker updates: the pulled values are the pushed ones, and the delay only advances simulated time.
TEST_F(Workers, OneWorkerIsPlainSgdToTheBit) {
  const std::string allreduce = "{rest: {params: '.*', strategy: allreduce}}";
  int n = 0;
  for (const char* optimizer :
       {"{name: sgd, lr: 0.5}", "{name: sgd, lr: 0.2, momentum: 0.9}", "{name: adam, lr: 0.01}"}) {
    for (const char* loss : {"{name: full_softmax}", "{name: sampled_softmax, samples: 12}"}) {
      const Changes both{{"optimizer", optimizer}, {"loss", loss}};
      Changes plain = both, zero = both;
      plain.emplace_back("sync", allreduce);
      zero.emplace_back("sync.rest.delay", "{kind: fixed, mean: 0}");
      const std::string expected = run(str("plain", n), 0, plain);
      EXPECT_EQ(run(str("self", n), 0, zero), expected);
      EXPECT_EQ(run(str("one", n), 1, both), expected);
      EXPECT_EQ(
          run(str("bit", n), 1, {{"optimizer", optimizer}, {"loss", loss}, {"sync.rest.codec", "{kind: one_bit}"}}),
          expected)
          << "without exchange no value must be encoded";
      ++n;
    }
  }
}

TEST_F(Workers, TheSameRunTwiceGivesTheSameBits) {
  const std::string first = run("a", 4);
  for (const char* at_once : {"1", "4"})
    EXPECT_EQ(run(str("b", at_once), 4, {{"comm", str("{name: virtual, ranks: 4, at_once: ", at_once, "}")}}), first);
  EXPECT_NE(run("c", 4, {{"sync.rest.delay", "{kind: fixed}"}}), first);
  EXPECT_NE(run("d", 4, {{"seed", "2"}}), first);
}

// Records, validations and checkpoints read the server's values without changing them.
TEST_F(Workers, MeetingsDoNotChangeWhatIsComputed) {
  const Changes adam{{"schedule", "{name: constant}"}};
  const std::string first = run("a", 3, adam);
  EXPECT_EQ(run("b", 3, {adam[0], {"train.log_every", "1"}, {"train.eval_every", "24"}, {"checkpoint.every", "24"}}),
            first);
  EXPECT_EQ(run("c", 3, {adam[0], {"train.log_every", "24"}, {"train.eval_every", "1"}, {"checkpoint.every", "3"}}),
            first);
}

TEST_F(Workers, ValidationSeesTheServer) {
  run("a", 3);
  const EvalResult r = evaluate_run(path("a"), {});
  EXPECT_NEAR(r.ppl, result_.valid_ppl, 1e-6 * r.ppl);
  EXPECT_LT(result_.valid_ppl, 39);
  ASSERT_EQ(records("a", "valid").size(), 4u);
}

// Every kind of state: dropout, carried state, Adam, a schedule with state, residuals, rows, an unfinished window.
TEST_F(Workers, ResumedFromAnyCheckpointEndsInTheSameBits) {
  const std::string
      all = "{all: {params: '.*', strategy: param_server, ",
      rows =
          "{tables: {params: 'embedding|softmax', strategy: sampled_rows, transport: param_server, p: 20, "
          "q: 20, CODEC}, " +
          all.substr(1);
  int n = 0;
  for (const auto& [rules, codec] :
       {std::pair{all, "codec: {kind: none}"}, std::pair{all, "codec: {kind: fp16}"},
        std::pair{all, "codec: {kind: bf16}"}, std::pair{all, "codec: {kind: one_bit}"},
        std::pair{all, "codec: {kind: one_bit, residual: none}"}, std::pair{rows, "codec: {kind: none}"},
        std::pair{rows, "codec: {kind: one_bit}"}}) {
    const std::string whole = str("whole", n++);
    std::string sync = rules + "CODEC}}";
    for (size_t at = sync.find("CODEC"); at != std::string::npos; at = sync.find("CODEC"))
      sync.replace(at, 5, str(codec, ", schedule: ", path(whole + ".txt")));
    const Changes changes{{"sync", sync}, {"checkpoint", "{every: 4, keep_last: 20}"}};
    const std::string expected = run(whole, 3, changes), schedule = lmx_test::read_file(path(whole + ".txt"));
    for (const int64_t step : {4, 6, 12, 20}) {
      const std::string dir = str(whole, step);
      cut(whole, dir, step);
      write_all(path(whole + ".txt"), "");
      EXPECT_EQ(run(dir, 3, changes, path(dir)), expected) << sync << " from step " << step;
      EXPECT_EQ(curve(dir), curve(whole));
      EXPECT_EQ(lmx_test::read_file(path(whole + ".txt")), schedule);
      for (const char* file : {"rank-0.safetensors", "rank-1.safetensors", "rank-2.safetensors"})
        EXPECT_EQ(lmx_test::read_file(str(path(dir), "/checkpoints/step-24/", file)),
                  lmx_test::read_file(str(path(whole), "/checkpoints/step-24/", file)));
    }
  }
}

// Workers that are ahead pause at their position, perhaps with a computed gradient.
TEST_F(Workers, PausesLeaveNoTrace) {
  // The second one lowers the learning rate of single workers; in the third one each has its own loss scale.
  for (const Changes& changes : {Changes{{"sync.rest.codec", "{kind: one_bit}"}},
                                 Changes{{"train.on_divergence", "lower_lr"}, {"train.max_loss", "2.5"}},
                                 Changes{{"precision", "fp16"}, {"loss_scale", "{init: 1048576, window: 1}"}}}) {
    const std::string whole = "whole of " + changes[0].second, paused = "paused " + changes[0].second;
    const std::string expected = run(whole, 3, changes);
    for (const int64_t until : {3, 12, 17}) {
      result_ = run_recipe(recipe(paused, 3, changes), "workers", {until == 3 ? "" : path(paused), {}, "", until});
      EXPECT_TRUE(result_.paused);
      EXPECT_EQ(result_.steps, until);
      EXPECT_GT(result_.valid_ppl, 1);
      EXPECT_EQ(list_checkpoints(path(paused)).back().step, until);
    }
    EXPECT_EQ(run(paused, 3, changes, path(paused)), expected) << paused;
    EXPECT_FALSE(result_.paused);
    EXPECT_EQ(curve(paused), curve(whole));
    const auto numbers = [&](const std::string& dir) {
      auto all = load_checkpoint(path(dir + "/checkpoints/step-24"), Allocator::cpu()).numbers;
      std::erase_if(all, [](const auto& n) { return !n.first.starts_with("loss_scale") && n.first != "lr_scale"; });
      return all;
    };
    EXPECT_EQ(numbers(paused), numbers(whole));
  }
}

TEST_F(Workers, AReplayGivesTheSameBits) {
  const std::string file = path("order.txt"), again = path("again.txt");
  const std::string expected = run("a", 4, {{"sync.rest.schedule", file}});
  EXPECT_THAT(lmx_test::read_file(file), testing::StartsWith("lmx schedule 1: 4 workers\npull 0\n"));
  const Changes replay{{"sync.rest.replay", file}, {"sync.rest.schedule", again}, {"sync.rest.delay", "{kind: fixed}"}};
  EXPECT_EQ(run("b", 4, replay), expected);
  EXPECT_EQ(lmx_test::read_file(again), lmx_test::read_file(file));
  // Another order gives another result.
  const std::string other = path("other.txt");
  EXPECT_NE(run("c", 4, {{"sync.rest.delay", "{kind: fixed}"}, {"sync.rest.schedule", other}}), expected);
  EXPECT_EQ(run("d", 4, {{"sync.rest.replay", other}}), model("c", 24));
}

// Worker 0 does all its steps before the other. The speed of a record is that of the workers active since the last
// record.
TEST_F(Workers, SpeedIsThatOfAllWorkers) {
  std::string order = "lmx schedule 1: 2 workers\n";
  for (const char* worker : {"0\n", "1\n"})
    for (int step = 0; step < 24; ++step) order += std::string("pull ") + worker + "push " + worker;
  write_all(path("order.txt"), order);
  run("a", 2, {{"sync.rest.replay", path("order.txt")}, {"train.log_every", "6"}});
  std::set<double> speeds;
  for (const nlohmann::json& record : records("a", "train")) speeds.insert(record.at("words_per_s").get<double>());
  EXPECT_EQ(speeds.size(), 4U) << "each record must measure its own speed";
}

// A separate event loop of the paper's setting, without lmx: the order in which workers pull and push.
std::map<int64_t, int64_t> simulated(int workers, int64_t steps, const std::function<double(int, int64_t)>& duration) {
  struct Event {
    double time = 0;
    bool push = false;
    int64_t step = 0, pulled_at = 0;
  };
  std::vector<Event> next(static_cast<size_t>(workers));
  std::map<int64_t, int64_t> histogram;
  for (int64_t updates = 0; updates < workers * steps;) {
    size_t w = next.size();
    for (size_t i = 0; i < next.size(); ++i)
      if (next[i].step < steps && (w == next.size() || next[i].time < next[w].time)) w = i;
    Event& e = next[w];
    if (!e.push) {
      e.pulled_at = updates;
      e.time += duration(static_cast<int>(w), e.step);
    } else {
      ++histogram[updates++ - e.pulled_at];
      ++e.step;
    }
    e.push = !e.push;
  }
  return histogram;
}

TEST_F(Workers, StalenessIsThatOfTheDelays) {
  const RandomKey key = RandomKey(1).fold("delay");
  const auto draw = [&](int w, int64_t step) {
    return key.fold(static_cast<uint64_t>(w)).uniform(static_cast<uint64_t>(step));
  };
  const auto speed = [&](int w) { return key.fold(static_cast<uint64_t>(w)).fold("speed").uniform(0) * 2 - 1; };
  const std::vector<double> trace{1, 1, 1, 5, 0.5, 2, 1};
  write_all(path("trace.txt"), "1\n1\n1\n\n5\n0.5\n2\n1\n");
  write_all(path("columns.txt"), "1 2 3 4 5\n2 2 2 2 2\n");
  const auto seen = [&](const std::string& delay) {
    static int n = 0;
    const std::string dir = str("run", n++);
    run(dir, 5, {{"sync.rest.delay", delay}});
    return staleness(records(dir, "train"));
  };
  EXPECT_EQ(seen("{kind: exponential}"), simulated(5, 24, [&](int w, int64_t s) { return -std::log1p(-draw(w, s)); }));
  const auto spread = [&](int w, int64_t s) { return -std::log1p(-draw(w, s)) * 3 * (1 + 0.5 * speed(w)); };
  EXPECT_EQ(seen("{kind: exponential, mean: 3, spread: 0.5}"), simulated(5, 24, spread));
  EXPECT_EQ(seen("{kind: fixed, spread: 0.9}"), simulated(5, 24, [&](int w, int64_t) { return 1 + 0.9 * speed(w); }));
  const auto recorded = [&](int w, int64_t s) { return trace[static_cast<size_t>((w * 7 / 5 + s) % 7)]; };
  EXPECT_EQ(seen(str("{kind: trace, file: ", path("trace.txt"), "}")), simulated(5, 24, recorded));
  EXPECT_EQ(seen(str("{kind: trace, file: ", path("columns.txt"), "}")),
            simulated(5, 24, [&](int w, int64_t s) { return s % 2 ? 2.0 : w + 1.0; }));
  // Equal durations run in lockstep: each worker sees the updates of the previous round, except in the first round.
  const std::map<int64_t, int64_t> fixed = seen("{kind: fixed}");
  EXPECT_EQ(fixed, (std::map<int64_t, int64_t>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 116}}));
}

TEST_F(Workers, TheLedgerIsTheFormulas) {
  run("a", 4, {{"loss", "{name: full_softmax}"}, {"train.log_every", "24"}, {"train.eval_every", "24"}});
  // Every parameter is pulled whole, 24 times by each worker and once for validation: 3/4 of the bytes come from other
  // ranks.
  int64_t bytes = 0;
  for (const auto& [name, t] : load_safetensors(path("a/checkpoints/step-24/model.safetensors"), Allocator::cpu()))
    bytes += t.bytes();
  std::map<std::string, int64_t> received, sent;
  for (const auto& r : records("a", "rank"))
    for (const char* what : {"pull", "push", "all_gather"}) {
      received[what] += r.value(str("comm/rest/", what, "/received_bytes"), int64_t{0});
      sent[what] += r.value(str("comm/rest/", what, "/sent_bytes"), int64_t{0});
    }
  EXPECT_EQ(received["pull"], 24 * 3 * bytes);
  EXPECT_EQ(sent["pull"], 24 * 3 * bytes);
  EXPECT_EQ(sent["push"], received["push"]);
  EXPECT_GT(sent["push"], 0);
  EXPECT_EQ(sent["all_gather"], received["all_gather"]);
  EXPECT_EQ(sent["all_gather"] % (3 * bytes), 0);
}

TEST_F(Workers, MoreRanksThanSequences) {
  const Changes often{{"checkpoint", "{every: 4, keep_last: 20}"}};
  const std::string six = run("a", 6), eight = run("b", 8, often);
  EXPECT_NE(six, eight);
  EXPECT_EQ(run("c", 8), eight);
  int64_t updates = 0;
  for (const auto& [staleness, n] : staleness(records("b", "train"))) updates += n;
  EXPECT_EQ(updates, 6 * 24);
  cut("b", "d", 12);
  EXPECT_EQ(run("d", 8, often, path("d")), eight);
  run("e", 8, {{"sync.rest.schedule", path("order.txt")}});
  EXPECT_EQ(run("f", 8, {{"sync.rest.replay", path("order.txt")}}), eight);
}

TEST_F(Workers, SeveralRulesAreOneServer) {
  const std::string one = run("a", 3);
  const std::string two =
      "{tables: {params: 'embedding|softmax', strategy: param_server}, rest: {params: '.*', strategy: param_server}}";
  EXPECT_EQ(run("b", 3, {{"sync", two}}), one);
}

TEST_F(Workers, Divergence) {
  const Changes low{{"train.max_loss", "0.1"}, {"train.on_divergence", "stop"}};
  EXPECT_THAT(run_error([&] { run("stop", 3, low); }), Names("[train] worker", "step 1", "train.max_loss"));
  EXPECT_THAT(lmx_test::read_file(path("stop/status.json")), Names("train.max_loss", "\"cause\": \"diverged\""));
  EXPECT_THAT(run_error([&] { run("skip", 3, {low[0], {"train.on_divergence", "skip"}}); }), Names("20 updates"));
  // Some updates are skipped, but no others.
  run("some", 3, {{"train.max_loss", "2.5"}, {"train.on_divergence", "lower_lr"}, {"train.log_every", "24"}});
  const auto train = records("some", "train");
  ASSERT_EQ(train.size(), 1u);
  int64_t updates = 0;
  for (const auto& [staleness, n] : staleness(train)) updates += n;
  const auto skipped = train[0]["skipped"].get<int64_t>();
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(updates + skipped, 3 * 24);
}

TEST_F(Workers, RecipesThatAreRefused) {
  const std::string mixed =
      "{tables: {params: softmax, strategy: param_server}, rest: {params: '.*', strategy: allreduce}}";
  EXPECT_THAT(refused(3, {{"sync", mixed}}), Names("sync.rest", "param_server", "asynchronous", "allreduce"));
  const std::string clocks =
      "{tables: {params: softmax, strategy: param_server}, rest: {params: '.*', strategy: param_server, delay: {mean: "
      "2}}}";
  EXPECT_THAT(refused(3, {{"sync", clocks}}), Names("one clock", "sync.tables", "mean: 2"));
  EXPECT_THAT(refused(3, {{"train.ema", "0.9"}}), Names("train.ema", "asynchronous"));
  EXPECT_THAT(refused(3, {{"sync.rest.delay", "{mean: 0}"}}), Names("delay.mean", "3 workers"));
  EXPECT_THAT(refused(3, {{"sync.rest.delay", "{kind: trace}"}}), Names("file"));
  EXPECT_THAT(refused(3, {{"sync.rest.delay", "{file: x}"}}), Names("trace", "exponential"));
  EXPECT_THAT(refused(3, {{"sync.rest.delay", "{kind: sometimes}"}}), Names("sometimes"));
  EXPECT_THAT(refused(3, {{"sync.rest.codec", "{kind: two_bit}"}}), Names("two_bit"));
}

TEST_F(Workers, FilesThatAreRefused) {
  const auto trace = [&](const std::string& text) {
    write_all(path("t"), text);
    return refused(3, {{"sync.rest.delay", str("{kind: trace, file: ", path("t"), "}")}});
  };
  EXPECT_THAT(trace(""), Names("empty"));
  EXPECT_THAT(trace("0\n0\n"), Names("all are 0"));
  EXPECT_THAT(trace("1 0 1\n2 0 1\n"), Names("worker 1's"));
  EXPECT_THAT(trace("1\nfast\n"), Names("t:2:", "'fast'"));
  EXPECT_THAT(trace("-1\n"), Names("'-1'"));
  EXPECT_THAT(trace("1 2\n"), Names("2 columns", "3 workers"));
  EXPECT_THAT(trace("1\n1 2 3\n"), Names("t:2: 3 columns", "1"));
  EXPECT_THAT(refused(3, {{"sync.rest.delay", str("{kind: trace, file: ", path("none"), "}")}}), Names(path("none")));
  const auto replay = [&](const std::string& text) {
    write_all(path("s"), text);
    return refused(3, {{"sync.rest.replay", path("s")}});
  };
  EXPECT_THAT(replay(""), Names("s:1:", "schedule"));
  const auto schedule = [&](const std::string& file) { return refused(3, {{"sync.rest.schedule", file}}); };
  EXPECT_THAT(schedule(path("none/order")), Names("[sync] schedule:", path("none/order:"), "folder " + path("none")));
  EXPECT_THAT(schedule(path("")), Names("schedule:", "directory"));
  EXPECT_THAT(replay("lmx schedule 1: 4 workers\n"), Names("4 workers", "Replay it with 4 ranks"));
  EXPECT_THAT(replay("lmx schedule 1: 3 workers\npull 0\npush 1\n"), Names("s:3:", "'push 1'"));
  EXPECT_THAT(replay("lmx schedule 1: 3 workers\npull 3\n"), HasSubstr("'pull 3'"));
  EXPECT_THAT(replay("lmx schedule 1: 3 workers\npull 0 1\n"), HasSubstr("'pull 0 1'"));
  EXPECT_THAT(replay("lmx schedule 1: 3 workers\npull 0\npush 0\npull 1\npush 1\npull 2\npush 2\n"),
              Names("1 steps", "24"));
}

TEST_F(Workers, AnotherNumberOfRanksCannotResume) {
  const Changes often{{"checkpoint", "{every: 4, keep_last: 20}"}};
  run("a", 3, often);
  cut("a", "b", 12);
  for (const int64_t ranks : {0, 2, 4})
    EXPECT_THAT(refused(ranks, often, "b", path("b")), Names("sync.rest", "3 workers", "Resume with 3 ranks"));
  EXPECT_EQ(run("b", 3, often, path("b")), model("a", 24));
}

}  // namespace
}  // namespace lmx::app
