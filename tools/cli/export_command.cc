// lmx export
#include <cstdio>
#include <memory>

#include "app/export/export.h"
#include "cli/commands.h"
#include "cli/output/checks.h"

namespace lmx_cli {
namespace {

struct ExportCommand {
  PluginDirectories directories;
  std::string run;
  lmx::ExportOptions options;
};

void export_model(const ExportCommand& o) {
  o.directories.load();
  for (const std::string& name : lmx::export_run(o.run, o.options))
    std::printf("wrote %s/%s\n", o.options.output.c_str(), name.c_str());
}

}  // namespace

void add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "write a run's model for another program");
  set_examples(
      *command,
      {{"lmx export runs/quickstart/2026-05-01_101500 --to pytorch --output lstm",
        "a recurrent model: weights and a PyTorch module that reads them"},
       {"lmx export runs/ott_wmt/2026-05-01_101500 --to ctranslate2 --output ct2 --checkpoint mean.safetensors",
        "a translation model"},
       {"lmx export runs/ott_wmt/2026-05-01_101500 --to huggingface --output marian",
        "the same in Marian's layout; a decoder in GPT-2's"}});
  const auto o = std::make_shared<ExportCommand>();
  command->add_option("RUN", o->run, "a run's folder")->required()->type_name("");
  command->add_option("--to", o->options.to, "pytorch, huggingface or ctranslate2")
      ->required()
      ->check(CLI::IsMember(lmx::export_formats()))
      ->type_name("FORMAT");
  command->add_option("--output", o->options.output, "a folder that does not exist, or is empty")
      ->required()
      ->type_name("DIR");
  command->add_option("--checkpoint", o->options.checkpoint, "last, best, a step, or a file or folder of parameters")
      ->type_name("WHICH")
      ->capture_default_str();
  command
      ->add_option(
          "--positions", o->options.positions,
          "for a Transformer: rows of the table of positions, which limit the length of a text in the other program")
      ->type_name("N")
      ->check(positive())
      ->capture_default_str();
  o->directories.add_to(*command);
  command->callback([o] { export_model(*o); });
}

}  // namespace lmx_cli
