// A tiny recipe, and `lmx run` as a process that can receive signals.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "process/lmx_process.h"
#include "runfiles/checkpoint.h"

namespace lmx_test {

using Json = nlohmann::json;

// Contains every kind of state that a checkpoint must store: Adam, dropout, EMA, carried state, a sampled softmax, a
// schedule with state.
inline constexpr const char* kTinyRecipe = R"(
data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 200, branching: 8, classes: 6}
batcher: {name: tbptt, sequence_length: 6}
batch: {global: 8, micro: 4}
model: {name: lstm, embedding: 12, cells: 16, projection: 8, dropout: 0.1}
loss: {name: sampled_softmax, samples: 20}
optimizer: {name: adam, lr: 0.01}
schedule: {name: halve_on_rise}
clip: 1.0
train: {steps: 120, log_every: 7, eval_every: 30, ema: 0.9}
checkpoint: {every: 10, keep_last: 2}
threads: 1
)";

// The first "<word> <number> <unit>" in a text, as bytes.
inline double bytes_of(const std::string& text, const std::string& word) {
  const std::map<std::string, double> units{{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
  const Match found = first_match(text, word + " ([0-9.]+) ([kMG]?B)");
  if (found.empty()) {
    ADD_FAILURE() << "no '" << word << "' in:\n" << text;
    return 0;
  }
  return std::stod(found[1]) * units.at(found[2]);
}

class RunTest : public testing::Test, protected TempFolder {
 protected:
  RunTest() { write("tiny.yaml", kTinyRecipe); }

  // lmx run tiny.yaml run.dir=<folder>/<dir> ...
  Words command(const std::string& dir, const Words& more = {}) const {
    return joined({build_path("/bin/lmx"), "run", path("tiny.yaml"), "run.dir=" + path(dir)}, more);
  }
  Outcome run(const std::string& dir, const Words& more = {}) const {
    return run_process(command(dir, more), environment());
  }
  Outcome lmx(Words words) const { return run_lmx(std::move(words), environment()); }
  std::map<std::string, std::string> environment() const {
    return {{"LMX_CACHE_DIR", path("cache")}, {"OMP_NUM_THREADS", "1"}};
  }

  // The environment for shell commands, in which the shell finds this build's lmx.
  std::map<std::string, std::string> environment_with_lmx() const {
    auto settings = environment();
    settings["PATH"] = build_path("/bin:") + std::string(std::getenv("PATH"));
    return settings;
  }
  // The command lines that a run suggests after "next:".
  static Words proposed(const std::string& out) {
    std::istringstream lines(out.substr(out.find("next:\n") + 6));
    Words all;
    for (std::string line; std::getline(lines, line) && line.starts_with("  lmx ");) all.push_back(line);
    return all;
  }

  // Starts the command. Its stdout goes to the file `out` if one is given; all other output is discarded.
  pid_t start(const Words& words, const std::string& out = "/dev/null") const {
    const pid_t child = fork();
    if (child != 0) return child;
    for (const int stream : {0, 1, 2}) {
      close(stream);
      open(stream == 1 ? out.c_str() : "/dev/null", O_RDWR | O_CREAT, 0600);
    }
    for (const auto& [name, value] : environment()) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  // Waits until `moment` returns true. Returns false if the child ends first (it is not reaped).
  static bool wait_until(pid_t child, const std::function<bool()>& moment) {
    siginfo_t ended{};
    while (!moment()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child)
        return false;
    }
    return true;
  }
  // Waits until the run has written a record.
  bool wait_for_records(pid_t child, const std::string& dir) const {
    return wait_until(child, [&] { return !read_file(folder_ / dir / "metrics.jsonl").empty(); });
  }
  // Waits until the run has the checkpoint of this step or of a later one. It keeps two.
  bool wait_for_checkpoint(pid_t child, const std::string& dir, int64_t step) const {
    return wait_until(child, [&] {
      const auto saved = lmx::list_checkpoints(path(dir));
      return !saved.empty() && saved.back().step >= step;
    });
  }
  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // The model file of the checkpoint at `step`.
  std::string model(const std::string& dir, int64_t step = 120) const {
    return read_file(folder_ / dir / "checkpoints" / ("step-" + std::to_string(step)) / "model.safetensors");
  }

  // The records of a run: those of `split`, or all.
  std::vector<Json> records(const std::string& dir, const std::string& split = "") const {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    std::vector<Json> all;
    for (std::string line; std::getline(lines, line);)
      if (auto record = Json::parse(line); split.empty() || record["split"] == split) all.push_back(std::move(record));
    return all;
  }
  // The values of `key` in the records of `split` that have it.
  std::vector<double> series(const std::string& dir, const std::string& split, const std::string& key) const {
    std::vector<double> all;
    for (const Json& record : records(dir, split))
      if (record.contains(key)) all.push_back(record[key]);
    return all;
  }
  // metrics.jsonl without values that depend on time, and without traffic and memory, which differ between processes.
  std::string metrics(const std::string& dir) const {
    std::istringstream lines(read_file(folder_ / dir / "metrics.jsonl"));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("\"split\":\"rank\"") != std::string::npos) continue;
      text += line.substr(0, std::min(line.find(",\"comm_"), line.find(",\"train_s"))) + "\n";
    }
    return text;
  }
};

}  // namespace lmx_test
