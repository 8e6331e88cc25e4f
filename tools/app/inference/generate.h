// Samples text from a trained language model: `lmx generate`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace lmx::app {

// One unit of a model's recurrent state.
struct StateUnit {
  std::string state = "cell";  // cell, hidden (of the last layer), or a tensor's own name: "lstm.0.c"
  int64_t unit = 0;
};
struct GenerateOptions {
  std::string prompt;
  int64_t tokens = 50;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // sample among the k likeliest tokens; 0: among all
  double top_p = 1;        // sample among the likeliest tokens that have this probability together; 1: among all
  int64_t samples = 1;     // texts, each a continuation of the prompt
  int64_t seed = 1;
  std::string checkpoint = "last";
  std::string device;             // as recipe_of_run()
  bool tokenized = false;         // leave the tokens of a text of words apart
  std::optional<StateUnit> held;  // this unit is set to `held_value` before each token is read (Radford 2017)
  double held_value = 0;
};
// Returns `samples` texts, each the prompt and a continuation. Words are separated by spaces, and punctuation that lmx
// has cut off joins its word again unless `tokenized` is set; characters and bytes are not separated. `</s>` becomes a
// line end. `<unk>` is never sampled. Needs only the run's own files. The texts are drawn side by side, each with its
// own random numbers, so more samples only add texts. After a signal, which a SignalGuard has noted, the continuations
// end early. `show`, if it is set, gets the first text so far several times a second; its last words can change with
// the tokens that follow. Without it, long work prints its progress.
std::vector<std::string> generate_texts(const std::string& directory, const GenerateOptions& options,
                                        const std::function<void(const std::string& text)>& show = {});

// Options with which `lmx generate` writes a short text of a run of this recipe: "--tokens 40". Returns "" if the run's
// tokens are ids without a tokenizer.
std::string options_for_text(const Recipe& recipe, const Vocabulary& vocabulary);

// Samples the next token of a text (temperature, top-k, top-p).

// Samples an id other than `without` (-1: any) from softmax(logits / temperature); temperature 0 chooses the likeliest
// id. Only the `top_k` likeliest ids are candidates (0: all), and of these only the likeliest ids whose probabilities
// sum up to `top_p` (1: all). `uniform` in [0, 1) is the random number. If two logits are equal, the smaller id counts
// as the likelier. REQUIRES: there is such an id.
int32_t draw_token(std::span<const float> logits, int32_t without, const GenerateOptions& options, double uniform);

}  // namespace lmx::app
