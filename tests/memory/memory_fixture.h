// Runs whose memory is limited, on the CPU and on the emulated device.
#pragma once

#include "process/emulated.h"
#include "process/free_port.h"
#include "process/run_fixture.h"

namespace lmx_test {

class MemoryTest : public RunTest {
 protected:
  Outcome expect_run(const std::string& dir, const Words& words) const {
    Outcome o = run(dir, words);
    EXPECT_EQ(o.code, 0) << dir << ": " << o.err;
    return o;
  }
  // All files of the checkpoint at `step` that hold values.
  std::string state(const std::string& dir, int64_t step) const {
    std::string all;
    const std::filesystem::path folder = folder_ / dir / "checkpoints" / ("step-" + std::to_string(step));
    for (const char* name : {"model.safetensors", "train_state.safetensors"}) all += read_file(folder / name);
    return all;
  }
  // The two runs have trained the same in every bit.
  void expect_same(const std::string& a, const std::string& b, int64_t step) const {
    EXPECT_GT(state(a, step).size(), 1000u) << a;
    EXPECT_EQ(state(a, step), state(b, step)) << a << " and " << b;
    EXPECT_EQ(metrics(a), metrics(b));
    EXPECT_EQ(traffic(a), traffic(b));
  }
  // The bytes that each rank has sent, by group and collective. Those of checkpoints depend on the digits of times.
  std::string traffic(const std::string& dir) const {
    std::string text;
    for (const auto& record : records(dir, "rank")) {
      for (const auto& [key, value] : record.items())
        if (key.starts_with("comm/") && !key.starts_with("comm/checkpoint/") && key.ends_with("_bytes"))
          text += key + "=" + value.dump() + " ";
      text += "\n";
    }
    return text;
  }
  std::string log(const std::string& dir) const { return read_file(folder_ / dir / "log.txt"); }
  std::string config(const std::string& dir) const { return read_file(folder_ / dir / "config.yaml"); }
  nlohmann::json fit(const std::string& dir) const {
    return nlohmann::json::parse(read_file(folder_ / dir / "provenance.json"))["starts"][0]["fit"];
  }
  // Writes a recipe of a small Transformer on 400 pairs of 4 to 6 words. One of them has 60 and 38 words.
  void use_pairs() const {
    std::string pairs;
    for (int i = 0; i < 400; ++i) {
      const int words = i == 250 ? 38 : 4 + i % 3;
      std::string text;
      for (int w = 0; w < words; ++w) text += std::string(w ? " " : "") + ((i >> w % 8) % 2 ? "two" : "one");
      std::string more;
      for (int w = 0; i == 250 && w < 22; ++w) more += " one";
      pairs += text + more + "\t" + text + "\n";
    }
    write("pairs.tsv", pairs);
    write("tiny.yaml", "data: {name: parallel, source_language: en, target_language: de, vocab_size: 16, files: [" +
                           path("pairs.tsv") + "], valid_fraction: 0.1}\n" + R"(
batcher: {name: token_budget, max_tokens: 40}
batch: {global: 4}
model: {name: transformer, encoder_layers: 1, decoder_layers: 1, d: 16, ffn: 32, heads: 2, dropout: 0.1}
loss: {name: full_softmax}
optimizer: {name: adam, lr: 0.01}
train: {steps: 20, log_every: 5, eval_every: 20, eval_batch: 1}
checkpoint: {every: 20}
threads: 1
)");
  }
  // A run on the emulated device with so many bytes of memory.
  Outcome run_on_device(const std::string& dir, const Words& words, int64_t bytes) const {
    auto all = environment();
    all["LMX_CUDA_LIBRARY"] = emulated_cuda();
    all["LMX_EMULATED_MEMORY"] = std::to_string(bytes);
    return run_process(command(dir, joined({"device=cuda"}, words)), all);
  }
  // Starts two ranks of comm=gloo as processes. The first one believes to be alone on its host, the second one to share
  // it with another rank.
  std::vector<pid_t> start_hosts(const std::string& dir, const Words& words) const {
    std::vector<pid_t> ranks;
    for (const std::string rank : {"0", "1"}) {
      const Words variables{"/usr/bin/env",
                            "RANK=" + rank,
                            "WORLD_SIZE=2",
                            "LOCAL_RANK=0",
                            "LOCAL_WORLD_SIZE=" + std::string(rank == "0" ? "1" : "2"),
                            "MASTER_ADDR=127.0.0.1",
                            "MASTER_PORT=" + std::to_string(port_.number()),
                            "LMX_JOB_SECRET=0123456789abcdef0123456789abcdef"};
      ranks.push_back(start(joined(variables, command(dir, joined({"comm={name: gloo, timeout_s: 30}"}, words)))));
    }
    return ranks;
  }
  static bool has_device() { return std::filesystem::exists(emulated_cuda()); }

  const FreePort port_;
};

}  // namespace lmx_test
