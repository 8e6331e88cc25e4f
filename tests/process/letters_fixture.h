// Runs of characters over texts of a few different letters.
#pragma once

#include "process/run_fixture.h"

namespace lmx_test {

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
    const Outcome o = run(name);
    ASSERT_EQ(o.code, 0) << o.err;
  }
  Outcome lmx(std::vector<std::string> words) const { return run_lmx(std::move(words), environment()); }
  std::string checkpoint(const std::string& run, int step = 3) const {
    return path(run) + "/checkpoints/step-" + std::to_string(step);
  }
};

}  // namespace lmx_test
