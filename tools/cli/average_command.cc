// lmx average
#include <iostream>
#include <memory>

#include "app/inference/saved_run.h"
#include "app/translation/translate.h"
#include "cli/commands.h"
#include "lmx/error.h"

namespace lmx::app::cli {
namespace {

struct AverageCommand {
  std::string output;
  std::vector<std::string> inputs;
  int64_t last = 0, best = 0;
};

void average(const AverageCommand& o) {
  AverageOptions options;
  if (o.last != 0 || o.best != 0) {
    if (o.inputs.size() != 1)
      throw UserError(str("[average] --last and --best take one run, got ", o.inputs.size(), " paths"));
    options.run = o.inputs[0];
    options.last = o.last;
    options.best = o.best;
  } else {
    options.checkpoints = o.inputs;
  }
  for (const std::string& path : average_checkpoints(options, o.output)) std::cout << "averaged " << path << "\n";
  std::cout << "wrote " << o.output << "\n";
}

}  // namespace

void add_average(Command app) {
  const Command command = app.add_subcommand("average", "the mean of several checkpoints' parameters");
  set_examples(command, {{"lmx average mean.safetensors --last 10 runs/ott_wmt/2026-05-01_101500",
                          "the mean of the last ten checkpoints"},
                         {"lmx average mean.safetensors --best 5 runs/ott_wmt/2026-05-01_101500",
                          "the mean of the five best checkpoints"},
                         {"lmx average mean.safetensors RUN/checkpoints/step-900 RUN/checkpoints/step-1000",
                          "the mean of these checkpoints"},
                         {"lmx eval RUN --checkpoint mean.safetensors --split test", "evaluates the average"}});
  const auto o = std::make_shared<AverageCommand>();
  command.add_option("OUT", o->output, "the safetensors file to write").required().output_file();
  command
      .add_option("CHECKPOINT", o->inputs, "checkpoint folders or safetensors files; or one run, with --last or --best")
      .required();
  command.add_option("--last N", o->last, "the run's last N checkpoints").positive();
  command.add_option("--best N", o->best, "the run's N checkpoints of lowest validation perplexity").positive();
  command.callback([o] { average(*o); });
}

}  // namespace lmx::app::cli
