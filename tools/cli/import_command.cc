// lmx import
#include <cstdio>
#include <memory>

#include "app/huggingface/import.h"
#include "base/text.h"
#include "cli/commands.h"

namespace lmx::app::cli {
namespace {

struct ImportCommand {
  PluginDirectories directories;
  std::string folder, output;
};

void import_model(const ImportCommand& o) {
  o.directories.load();
  const ImportReport r = import_huggingface(o.folder, o.output);
  std::printf("wrote %s: a model in the layout of %s with %s parameters, vocabulary %s, %s\n", o.output.c_str(),
              r.layout.c_str(), count_text(r.parameters).c_str(), count_text(r.vocabulary).c_str(),
              r.tokenizer.empty() ? "no tokenizer" : r.tokenizer.c_str());
}

}  // namespace

void add_import(Command app) {
  const Command command =
      app.add_subcommand("import", "make a run of a model of Hugging Face: GPT-2, Llama, Qwen2, Qwen3");
  set_examples(command,
               {{"lmx import Qwen3-0.6B --output qwen3", "a folder with config.json, safetensors and tokenizer.json"},
                {"lmx generate qwen3 --prompt 'The capital of France is'", "use it like a run"},
                {"lmx run qwen3/config.yaml init.from=qwen3 data.files=[books/]", "train it further"}});
  const auto o = std::make_shared<ImportCommand>();
  command.add_option("DIR", o->folder, "a folder of Hugging Face").required();
  command.add_option("--output DIR", o->output, "the run's folder, which does not exist, or is empty")
      .required()
      .writes();
  o->directories.add_to(command);
  command.callback([o] { import_model(*o); });
}

}  // namespace lmx::app::cli
