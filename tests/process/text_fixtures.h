// Runs of characters and of bytes over artificial texts, and sentence pairs.
#pragma once

#include <cmath>

#include "process/run_fixture.h"

namespace lmx_test {

// Runs of characters over texts of a few different letters.

class LettersTest : public RunTest {
 protected:
  // A run `name` over a text of 20 letters; its vocabulary has 22 entries, with </s> and <unk>.
  void train(const std::string& name, const std::string& letters) const {
    std::string text;
    for (size_t i = 0; i < 4000; ++i) text += i % 40 == 39 ? '\n' : letters[i * i / 7 % 20];
    write(name + ".txt", letters + "\n" + text);
    write("tiny.yaml", "data: {name: text, tokens: chars, files: ['" + path(name + ".txt") + "'], vocab_size: 22, " +
                           "valid_fraction: 0.1}\nbatcher: {name: tbptt, sequence_length: 8}\nbatch: {global: 4}\n" +
                           "model: {name: lstm, embedding: 8, cells: 12}\nloss: {name: full_softmax}\n" +
                           "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 3}\n" +
                           "checkpoint: {every: 1, keep_last: 2}\nthreads: 1\n");
    ASSERT_THAT(run(name), Succeeds());
  }
  std::string checkpoint(const std::string& run, int step = 3) const {
    return path(run) + "/checkpoints/step-" + std::to_string(step);
  }
};

// A recipe over the bytes of artificial reviews of two classes.

class BytesRun : public RunTest {
 protected:
  BytesRun() {
    std::string csv = "label,sentence\n";
    for (int i = 0; i < 240; ++i)
      csv += i % 2 ? "1,\"good, <b>good</b> film " + std::to_string(i % 7) + "\"\n"
                   : "0,a bad film &amp; dull " + std::to_string(i % 5) + "\n";
    write("reviews.csv", csv);
    write("tiny.yaml", "data: {name: text, tokens: bytes, preprocess: puri, field: sentence, files: ['" +
                           path("reviews.csv") + "'], valid_fraction: 0.1, test_fraction: 0.2}\n" +
                           "batcher: {name: tbptt, sequence_length: 8, shards: 6}\n" +
                           "batch: {global: 4}\nmodel: {name: lstm, layers: 2, embedding: 8, cells: 12}\n" +
                           "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.01}\nclip: 1.0\n" +
                           "train: {steps: 60, eval_batch: 4}\nthreads: 1\n");
  }
  Outcome good(Words words) const {
    Outcome o = lmx(std::move(words));
    EXPECT_THAT(o, Succeeds());
    return o;
  }
};

// Sentence pairs for tests.

// Writes source.txt and target.txt: 400 sentences of one to nine words. The target's words are the source's, each spelt
// backwards.
inline void write_pairs(const std::filesystem::path& folder) {
  const Words words{"one",  "two", "three", "four",  "five", "six",   "seven", "eight",
                    "nine", "ten", "big",   "small", "red",  "green", "house", "tree"};
  std::ofstream source(folder / "source.txt"), target(folder / "target.txt");
  uint64_t state = 1;
  const auto draw = [&](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  for (int line = 0; line < 400; ++line) {
    const uint64_t length = 1 + draw(9);
    for (uint64_t i = 0; i < length; ++i) {
      const std::string& word = words[draw(words.size())];
      source << (i ? " " : "") << word;
      target << (i ? " " : "") << std::string(word.rbegin(), word.rend());
    }
    source << '\n';
    target << '\n';
  }
}

}  // namespace lmx_test
