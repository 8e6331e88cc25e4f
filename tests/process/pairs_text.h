// Sentence pairs for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lmx_test {

// Writes source.txt and target.txt: 400 sentences of one to nine words. The target's words are the source's, each spelt
// backwards.
inline void write_pairs(const std::filesystem::path& folder) {
  const std::vector<std::string> words{"one",  "two", "three", "four",  "five", "six",   "seven", "eight",
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
