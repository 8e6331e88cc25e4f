// The short runs whose results are recorded: each changes one part of words.yaml or pairs.yaml.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lmx_test {

struct GoldenCase {
  std::string name;
  std::string recipe;  // words or pairs
  std::vector<std::string> overrides;
};

inline std::ostream& operator<<(std::ostream& out, const GoldenCase& c) {
  return out << c.recipe << ".yaml";
}

inline std::vector<GoldenCase> golden_cases() {
  using Words = std::vector<std::string>;
  const std::vector<std::pair<std::string, Words>> models{
      {"lstm", {"model.layers=2", "model.embedding=16", "model.cells=24", "model.dropout=0.1"}},
      {"lstm_projection", {"model.embedding=16", "model.cells=32", "model.projection=12"}},
      {"mlstm", {"model=mlstm", "model.embedding=16", "model.cells=24", "model.weight_norm='mlstm\\..*'"}},
      {"rhn", {"model=rhn", "model.embedding=16", "model.cells=24", "model.depth=3"}},
      {"rhn_checkpoint", {"model=rhn", "model.embedding=16", "model.cells=24", "model.checkpoint=true"}},
      {"decoder", {"model=transformer_lm", "model.decoder_layers=2", "model.d=16", "model.ffn=32", "model.heads=4"}},
      {"gpt", {"model=gpt", "model.layers=2", "model.d=16", "model.ffn=32", "model.heads=4", "model.kv_heads=2"}},
      {"gpt2", {"model=gpt2", "model.layers=2", "model.d=16", "model.ffn=32", "model.heads=4", "model.dropout=0.1"}},
      {"transformer", {}},
      {"transformer_pre",
       {"model.norm=pre", "model.share=none", "model.relu_dropout=0.1", "model.attention_dropout=0.1"}}};
  std::vector<GoldenCase> cases;
  for (const auto& [name, overrides] : models) {
    const bool pairs = name.starts_with("transformer");
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      GoldenCase c{name + "_" + precision, pairs ? "pairs" : "words", overrides};
      c.overrides.push_back("precision=" + precision);
      cases.push_back(std::move(c));
    }
  }
  const Words lstm{"model.embedding=16", "model.cells=24"};
  const auto add = [&](const std::string& name, const Words& more) {
    GoldenCase c{name, "words", lstm};
    c.overrides.insert(c.overrides.end(), more.begin(), more.end());
    cases.push_back(std::move(c));
  };
  const Words ranks{"comm=virtual", "comm.ranks=4"};
  for (const std::string sync : {"allreduce", "allreduce_fp16", "allgather", "allgather_dense", "unique", "unique_fp16",
                                 "one_bit", "sampled_rows", "sampled_rows_one_bit"}) {
    Words words = ranks;
    words.push_back("sync=" + sync);
    if (sync.ends_with("fp16")) words.push_back("precision=fp16");
    if (sync.starts_with("sampled_rows")) words.push_back("loss=two_stage_softmax");
    add("sync_" + sync, words);
  }
  for (const std::string sync : {"unique_all_seeds", "unique_seeded", "unique_seeded_fp16"})
    add("sync_" + sync, {"comm=virtual", "comm.ranks=4", "sync=" + sync, "loss=sampled_softmax", "loss.samples=32"});
  add("server", {"comm=virtual", "comm.ranks=2", "sync=param_server"});
  add("server_rows", {"comm=virtual", "comm.ranks=2", "sync=param_server_rows", "loss=two_stage_softmax"});
  add("loss_sampled_softmax", {"loss=sampled_softmax", "loss.samples=32"});
  add("loss_two_stage_softmax", {"loss=two_stage_softmax"});
  add("optimizer_sgd", {"optimizer=sgd", "optimizer.lr=0.5", "++optimizer.momentum=0.9"});
  add("optimizer_adagrad", {"optimizer=adagrad"});
  add("optimizer_adamw", {"optimizer=adamw"});
  add("optimizer_rules",
      {"~optimizer", "~optimizer.lr", "+optimizer.tables={params: 'embedding|softmax', name: adagrad, lr: 0.1}",
       "+optimizer.rest={params: '.*', name: adamw, lr: 0.01, weight_decay: 0.1}"});
  add("optimizer_muon", {"optimizer=muon", "~optimizer.lr", "optimizer.other.lr=0.01"});
  add("optimizer_lion", {"optimizer=lion", "optimizer.lr=0.003"});
  add("optimizer_lamb", {"optimizer=lamb", "optimizer.lr=0.1"});
  add("optimizer_adafactor", {"optimizer=adafactor", "optimizer.lr=1"});
  add("optimizer_lars", {"optimizer=lars", "optimizer.lr=10"});
  add("optimizer_schedule_free",
      {"optimizer=schedule_free", "~optimizer.lr", "schedule=constant", "schedule.warmup=5"});
  add("schedule_wsd", {"schedule=wsd", "schedule.warmup=4", "schedule.decay=0.5", "schedule.shape=sqrt"});
  add("average", {"train.ema=0.9"});
  add("random_windows", {"batcher=random_windows", "batcher.sequence_length=8"});
  add("packed_windows", {"batcher=packed_windows", "batcher.sequence_length=8"});
  return cases;
}

}  // namespace lmx_test
