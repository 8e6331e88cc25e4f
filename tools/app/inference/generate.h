// Text drawn from a trained language model: `lmx generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lmx {

// One unit of a model's recurrent state.
struct StateUnit {
  std::string state = "cell";  // cell, hidden (of the last layer), or a tensor's own name: "lstm.0.c"
  int64_t unit = 0;
};
struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 50;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // draw among the k likeliest; 0: among all
  double top_p = 1;        // draw among the likeliest that have this probability together; 1: among all
  int64_t seed = 1;
  std::string checkpoint = "last";
  std::optional<StateUnit> held;  // a unit that has `held_value` before each token is read (Radford 2017)
  double held_value = 0;
};
// The prompt and its continuation: words with spaces between them, characters and bytes as they are; `</s>` is a line
// end. `<unk>` is never drawn. Needs no data but the run's own files.
std::string generate_text(const std::string& directory, const GenerateOptions& options);

}  // namespace lmx
