// Runs that start from the weights of other runs, and frozen parameters.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Init : public RunTest {
 protected:
  // The bytes of one tensor of a checkpoint; "" if the checkpoint does not contain it.
  std::string tensor(const std::string& dir, int64_t step, const std::string& name) const {
    const std::string file = model(dir, step);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const Json header = Json::parse(file.substr(8, length));
    if (!header.contains(name)) return "";
    const auto offsets = header[name]["data_offsets"];
    return file.substr(8 + length + offsets[0].get<size_t>(), offsets[1].get<size_t>() - offsets[0].get<size_t>());
  }
  Json start(const std::string& dir) const {
    return Json::parse(read_file(folder_ / dir / "provenance.json"))["starts"].back();
  }
  // Two runs of 10 steps of a tiny recipe, the second with other settings.
  void train_source() { ASSERT_EQ(run("source", {"train.steps=10", "train.ema=0"}).code, 0); }
};

TEST_F(Init, StartsWithTheValuesOfAnotherRun) {
  train_source();
  const Outcome o = run("next", {"train.steps=1", "train.ema=0", "optimizer.lr=1e-30", "init.from=" + path("source")});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* name : {"embedding.weight", "lstm.0.weight_hh", "softmax.weight"})
    EXPECT_EQ(tensor("next", 1, name), tensor("source", 10, name)) << name;
  EXPECT_THAT(read_file(folder_ / "next/log.txt"), Names("7 of 7 parameters", path("source")));
  const Json init = start("next")["init"];
  EXPECT_EQ(init["taken"].size(), 7u);
  EXPECT_THAT(init["from"].get<std::string>(), HasSubstr("step-10"));
  EXPECT_EQ(init["sha256"].get<std::string>().size(), 64u);
}

// Some parameters have another shape, and init.params leaves out others.
TEST_F(Init, ReportsWhatDoesNotFit) {
  train_source();
  const std::vector<std::string> other{"train.steps=1", "train.ema=0", "model.cells=20",
                                       "init.from=" + path("source") + "/checkpoints/step-10/model.safetensors"};
  std::vector<std::string> words = other;
  words.push_back("init.params=embedding|lstm");
  ASSERT_EQ(run("other", words).code, 0);
  const std::string log = read_file(folder_ / "other/log.txt");
  EXPECT_THAT(log,
              Names("1 of 7 parameters", "lstm.0.weight_ih", "(64, 12)", "(80, 12)", "softmax.weight", "init.params"));
  // A dry run reports the same and does not train.
  words = command("dry", other);
  words.push_back("--dry-run");
  const Outcome o = run_process(words, environment());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, Names("3 of 7 parameters", "(64, 12)", "(80, 12)"));
}

TEST_F(Init, FrozenParametersKeepTheirBytes) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string dir = "frozen" + ranks;
    const Outcome o = run(dir, {"train.steps=20", "checkpoint.every=1", "checkpoint.keep_last=30",
                                "init.freeze=^embedding|weight_hh", "--ranks", ranks});
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char* name : {"embedding.weight", "lstm.0.weight_hh"})
      EXPECT_EQ(tensor(dir, 1, name), tensor(dir, 20, name)) << name;
    for (const char* name : {"lstm.0.weight_ih", "softmax.weight"})
      EXPECT_NE(tensor(dir, 1, name), tensor(dir, 20, name)) << name;
    const std::string state = read_file(folder_ / dir / "checkpoints/step-20/train_state.safetensors");
    EXPECT_THAT(state, AllOf(HasSubstr("optimizer/lstm.0.weight_ih"), Not(HasSubstr("optimizer/embedding.weight")),
                             Not(HasSubstr("ema/embedding.weight"))));
    EXPECT_EQ(start(dir)["init"]["frozen"], (Json{"embedding.weight", "lstm.0.weight_hh"}));
  }
  // With two ranks a frozen table is not exchanged.
  EXPECT_THAT(read_file(folder_ / "frozen2/metrics.jsonl"), Not(HasSubstr("rows/embedding.weight")));
  EXPECT_EQ(run_lmx({"eval", path("frozen2")}, environment()).code, 0);
}

// A resumed run continues from its checkpoint, not from init.from, which may no longer exist.
TEST_F(Init, ResumeDoesNotStartAgain) {
  train_source();
  const std::vector<std::string> words{"init.from=" + path("source"), "init.freeze=embedding"};
  ASSERT_EQ(run("whole", words).code, 0);
  std::vector<std::string> until = words;
  until.insert(until.end(), {"--until", "35"});
  ASSERT_EQ(run("cut", until).code, 0);
  fs::rename(path("source"), path("moved"));
  std::vector<std::string> resume = words;
  resume.insert(resume.end(), {"--resume", path("cut")});
  const Outcome o = run("cut", resume);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model("cut"), model("whole"));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  // Evaluation and generation need only the run's files.
  EXPECT_EQ(run_lmx({"eval", path("cut")}, environment()).code, 0);
}

TEST_F(Init, Mistakes) {
  train_source();
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    const Outcome o = run("wrong", more);
    EXPECT_EQ(o.code, 2) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
    EXPECT_FALSE(fs::exists(path("wrong")));
  };
  refused({"init.from=" + path("sourse")}, {"init.from=", "sourse", "'" + path("source") + "'"});
  refused({"init.from=" + path("source"), "init.checkpoint=11"}, {"init.from=", "'11'"});
  refused({"init.from=" + path("source"), "init.params=encoder"}, {"init.params=encoder", "embedding.weight"});
  refused({"init.params=lstm"}, {"init.params=lstm", "init.from"});
  refused({"init.freeze=embeding.weight"}, {"init.freeze=", "embedding.weight, lstm.0"});
  refused({"init.freeze=.*"}, {"init.freeze=", "all 7 parameters"});
  refused({"init.freeze='('"}, {"init.freeze=", "regular expression"});
  refused({"init.from=" + path("source"), "init.params=^lstm", "model.cells=24", "model.projection=9"},
          {"init.from=", "lstm.0.weight_ih", "(64, 12) there", "(96, 12) here"});
}

// Words that occur in both vocabularies keep their rows, even if their ids differ.
TEST_F(Init, TablesOfAnotherVocabularyAreTakenByWord) {
  const auto recipe = [&](const std::string& text) {
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += text + "\n";
    write("text.txt", lines);
    write("tiny.yaml", "data: {name: text, files: ['" + path("text.txt") + "'], vocab_size: 6, valid_fraction: 0.1}\n" +
                           "batcher: {name: tbptt, sequence_length: 4}\nbatch: {global: 4}\n" +
                           "model: {name: lstm, embedding: 3, cells: 3}\nloss: {name: full_softmax}\n" +
                           "optimizer: {name: sgd, lr: 0.1}\ntrain: {steps: 2}\nthreads: 1\n");
  };
  recipe("a a a b b c d");
  ASSERT_EQ(run("first").code, 0);
  recipe("e e e e c c c a a d");  // <unk>, </s>, e, c, a, d
  const Outcome o = run("second", {"init.from=" + path("first"), "optimizer.lr=1e-30"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(read_file(folder_ / "second/log.txt"), HasSubstr("embedding.weight: 5 of 6 rows"));
  const std::string before = tensor("first", 2, "embedding.weight"), after = tensor("second", 2, "embedding.weight");
  const auto row = [](const std::string& table, size_t i) { return table.substr(12 * i, 12); };
  EXPECT_EQ(row(after, 1), row(before, 1));  // </s>
  EXPECT_EQ(row(after, 3), row(before, 4));  // c
  EXPECT_EQ(row(after, 4), row(before, 2));  // a
  EXPECT_EQ(row(after, 5), row(before, 5));  // d
  EXPECT_NE(row(after, 2), row(before, 2));
}

// A checkpoint of a diverged run cannot be used, and every command reports this.
TEST_F(Init, ParametersThatAreNoNumbersAreRefused) {
  train_source();
  const std::string folder = path("source") + "/checkpoints/step-10";
  std::string file = model("source", 10);
  for (size_t i = file.size() - 4; i < file.size(); ++i) file[i] = '\xff';
  write("nan.safetensors", file);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"eval", path("source")},
        {"generate", path("source")},
        {"score", path("source"), path("tiny.yaml")},
        {"export", path("source"), "--to", "pytorch", "--output", path("out")}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--checkpoint", path("nan.safetensors")});
    const Outcome o = run_lmx(all, environment());
    EXPECT_EQ(o.code, 1) << words[0] << o.out;
    EXPECT_THAT(o.err, Names("nan.safetensors", "softmax.weight", "NaN")) << words[0];
    EXPECT_THAT(o.out, Not(HasSubstr("nan"))) << words[0];
  }
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(run("next", {"init.from=" + path("nan.safetensors")}).code, 1);
  EXPECT_FALSE(fs::exists(path("next")));
}

}  // namespace
}  // namespace lmx_test
