// lmx generate
#include <iostream>
#include <memory>

#include "commands.h"
#include "lmx/train.h"

namespace lmx_cli {
namespace {

struct Options {
  PluginDirectories directories;
  std::string run;
  lmx::GenerateOptions generate;
};

void generate(const Options& o) {
  o.directories.load();
  std::cout << lmx::generate_text(o.run, o.generate) << "\n";
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "draw text from a run's model");
  set_examples(*command,
               {{"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --prompt 'it was'", "fifty more words"},
                {"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --temperature 0", "the likeliest ones"},
                {"lmx generate runs/word_lm_gutenberg/2026-05-01_101500 --top-k 40 --seed 2", "other, safer ones"}});
  const auto o = std::make_shared<Options>();
  command->add_option("RUN", o->run, "a run's folder")->required()->type_name("");
  command->add_option("--prompt", o->generate.prompt, "what the text begins with")->type_name("TEXT");
  command->add_option("--tokens", o->generate.tokens, "tokens to draw")->type_name("N")->capture_default_str();
  command->add_option("--temperature", o->generate.temperature, "divides the logits; 0: always the likeliest")
      ->type_name("X")
      ->capture_default_str();
  command->add_option("--top-k", o->generate.top_k, "draw among the k likeliest; 0: among all")
      ->type_name("K")
      ->capture_default_str();
  command->add_option("--seed", o->generate.seed, "of the draws")->type_name("N")->capture_default_str();
  command->add_option("--checkpoint", o->generate.checkpoint, "last, best or a step")
      ->type_name("WHICH")
      ->capture_default_str();
  o->directories.add_to(*command);
  command->callback([o] { generate(*o); });
}

}  // namespace lmx_cli
