// lmx generate

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "app/inference/generate.h"
#include "app/text/utf8.h"
#include "cli/commands.h"
#include "lmx/launch.h"
#include "recipe/recipe.h"
#include "train/signals.h"

namespace lmx::app::cli {
namespace {

struct GenerateFlags {
  PluginDirectories directories;
  std::string run, hold, state = "cell";
  GenerateOptions generate;
};

// Reads UNIT=VALUE, such as "2388=-1.5".
void read_hold(GenerateFlags& o) {
  if (o.hold.empty()) return;
  const size_t equals = std::min(o.hold.find('='), o.hold.size());
  const std::optional<int64_t> unit = parse_int(o.hold.substr(0, equals));
  const std::optional<double> value = equals < o.hold.size() ? parse_double(o.hold.substr(equals + 1)) : std::nullopt;
  if (!unit || *unit < 0 || !value)
    throw UserError(str("[generate] --hold takes UNIT=VALUE, as 2388=-1.5, got '", o.hold, "'"));
  o.generate.held = StateUnit{o.state, *unit};
  o.generate.held_value = *value;
}

// Prints a text while it grows: what two calls in a row agree on.
class GrowingText {
 public:
  void show(const std::string& text) {
    const auto [end, other] = std::mismatch(before_.begin(), before_.end(), text.begin(), text.end());
    const size_t same = whole_characters(text, static_cast<size_t>(end - before_.begin()));
    if (same > printed_) std::cout << text.substr(printed_, same - printed_) << std::flush;
    printed_ = std::max(printed_, same);
    before_ = text;
  }
  // Prints the rest of the whole text; all of it again if later tokens have changed what is printed.
  void end(const std::string& text) {
    const bool changed = before_.compare(0, printed_, text, 0, printed_) != 0;
    std::cout << (changed ? "\n" + text : text.substr(printed_)) << std::endl;
  }

 private:
  std::string before_;
  size_t printed_ = 0;
};

void generate(Command command, GenerateFlags o) {
  if (o.hold.empty()) refuse_given(command, {"--state"}, "without --hold");
  read_hold(o);
  o.directories.load();
  GrowingText growing;
  std::function<void(const std::string&)> show;
  if (isatty(STDOUT_FILENO) && o.generate.samples == 1) show = [&](const std::string& text) { growing.show(text); };
  int signal = 0;
  {
    const SignalGuard guard;
    const std::vector<std::string> texts = generate_texts(o.run, o.generate, show);
    growing.end(texts[0]);
    for (size_t s = 1; s < texts.size(); ++s) std::cout << "---\n" << texts[s] << std::endl;
    signal = SignalGuard::received();
  }
  if (signal != 0)
    throw EndProcess(128 + signal, "[generate] a signal ended the text before all tokens were drawn", false);
}

}  // namespace

void add_generate(Command app) {
  const Command command = app.add_subcommand("generate", "sample text from a run's model");
  set_examples(command,
               {{"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --prompt 'it was'", "fifty more words"},
                {"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --temperature 0", "the most likely words"},
                {"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --top-k 40 --seed 2", "other, safer ones"},
                {"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --prompt 'it was' --samples 8",
                 "eight continuations of one prompt"},
                {"lmx generate runs/puri_desk/2026-05-01_101500 --tokens 300 --top-p 0.9 --hold 388=2.5",
                 "300 bytes, a unit of the cell state held at a value"}});
  const auto o = std::make_shared<GenerateFlags>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("--prompt TEXT", o->generate.prompt, "what the text begins with").may_be_empty();
  command.add_option("--tokens N", o->generate.tokens, "tokens to draw").show_default();
  command.add_option("--samples N", o->generate.samples, "continuations to draw; a line '---' separates them")
      .show_default();
  command.add_option("--temperature X", o->generate.temperature, "divides the logits; 0: always the most likely token")
      .show_default();
  command.add_option("--top-k K", o->generate.top_k, "sample from the k most likely tokens; 0: from all")
      .show_default();
  command
      .add_option("--top-p P", o->generate.top_p,
                  "sample from the most likely tokens that together have this probability; 1: from all")
      .show_default();
  command.add_option("--hold UNIT=VALUE", o->hold,
                     "a unit of the state that has this value before each token is read (the sentiment unit)");
  command
      .add_option("--state NAME", o->state, "the state of --hold: cell or hidden of the last layer, or a tensor's name")
      .show_default();
  command.add_flag("--tokenized", o->generate.tokenized, "words and punctuation with spaces between them");
  command.add_option("--seed N", o->generate.seed, "seed of the sampling").show_default();
  command
      .add_option("--checkpoint WHICH", o->generate.checkpoint, "last, best, a step, or a file or folder of parameters")
      .show_default();
  add_device(command, o->generate.device);
  o->directories.add_to(command);
  command.callback([command, o] { generate(command, *o); });
}

}  // namespace lmx::app::cli
