// lmx export
#include <iostream>
#include <memory>

#include "app/export/export.h"
#include "cli/commands.h"

namespace lmx::app::cli {
namespace {

struct ExportCommand {
  PluginDirectories directories;
  std::string run;
  ExportOptions options;
};

void export_model(const ExportCommand& o) {
  o.directories.load();
  for (const std::string& name : export_run(o.run, o.options))
    std::cout << "wrote " << o.options.output << "/" << name << "\n";
}

}  // namespace

void add_export(Command app) {
  const Command command = app.add_subcommand("export", "write a run's model for another program");
  set_examples(
      command,
      {{"lmx export runs/quickstart/2026-05-01_101500 --to pytorch --output lstm",
        "a recurrent model: weights and a PyTorch module that reads them"},
       {"lmx export runs/ott_wmt/2026-05-01_101500 --to ctranslate2 --output ct2 --checkpoint mean.safetensors",
        "a translation model"},
       {"lmx export runs/ott_wmt/2026-05-01_101500 --to huggingface --output marian",
        "the same in Marian's layout; a decoder in GPT-2's"},
       {"lmx export runs/gpt_tinyshakespeare/2026-05-01_101500 --to huggingface --dtype bf16 --output llama",
        "a `gpt` in the layout of GPT-2, Llama, Qwen2 or Qwen3"}});
  const auto o = std::make_shared<ExportCommand>();
  command.add_option("RUN", o->run, "a run's folder").required();
  command.add_option("--to FORMAT", o->options.to, "pytorch, huggingface or ctranslate2")
      .required()
      .one_of(export_formats());
  command.add_option("--output DIR", o->options.output, "a folder that does not exist, or is empty")
      .required()
      .writes();
  command
      .add_option("--checkpoint WHICH", o->options.checkpoint, "last, best, a step, or a file or folder of parameters")
      .show_default();
  command
      .add_option(
          "--positions N", o->options.positions,
          "for a Transformer: rows of the table of positions (1024), which limit the length of a text in the other "
          "program")
      .positive();
  command.add_option("--dtype TYPE", o->options.dtype, "huggingface: the type of the tensors, f32, bf16 or f16")
      .one_of(export_types())
      .show_default();
  o->directories.add_to(command);
  command.callback([o] { export_model(*o); });
}

}  // namespace lmx::app::cli
