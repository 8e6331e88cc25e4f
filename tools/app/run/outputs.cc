#include "app/run/outputs.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "app/runs/run_directory.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

bool has(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

bool is_run(const fs::path& folder) {
  return has(folder, "config.yaml") &&
         (has(folder, "status.json") || has(folder, "provenance.json") || has(folder, "metrics.jsonl"));
}

bool is_checkpoint(const fs::path& folder) {
  return has(folder, "state.json") && has(folder, "model.safetensors");
}

bool is_sweep_or_experiment(const fs::path& folder) {
  return has(folder, "sweep.json") || (has(folder, "journal.jsonl") && has(folder, "cells"));
}

template <size_t N>
bool is_one_of(const std::string& name, const std::array<const char*, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_name_of_checkpoint(const std::string& name) {
  return name == "state.json" || name.ends_with(".safetensors");
}

bool is_name_of_sweep(const std::string& name) {
  return is_one_of(
      name, std::array{"sweep.json", "journal.jsonl", "results.json", "table.csv", "table.md", "table.html", ".lock"});
}

// A folder of the cache, or one that `lmx data` made for it elsewhere.
bool is_prepared_text(const fs::path& folder) {
  return has(folder, "meta.json") && has(folder, "vocab.tsv");
}

bool is_of_patterns(const std::string& output, const std::vector<std::string>& patterns, bool fields) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    try {
      const std::vector<std::string> files = find_paths(pattern, fields);
      return std::any_of(files.begin(), files.end(), [&](const auto& file) { return is_same_file(output, file); });
    } catch (const UserError&) {
      return false;  // no such text: the command reports it, if the value is a path
    }
  });
}

// The corpus of the registry of which this is a file; "" if there is none.
std::string corpus_of(const std::string& output) {
  std::vector<std::string> folders;
  try {
    folders = data_directories();
  } catch (const UserError&) {  // HOME is not set, so there is no folder of corpora
  }
  for (const Corpus& corpus : corpora())
    for (const std::string& folder : folders)
      if (is_of_patterns(output, patterns_of(corpus, folder + "/" + corpus.folder), false)) return corpus.name;
  return "";
}

// Returns the run, checkpoint, sweep, experiment or text that the file belongs to; "" if it belongs to none.
std::string owner_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const std::string name = path.filename().string(), checkpoint = checkpoint_around(path.string());
  if (!checkpoint.empty()) return "the checkpoint " + checkpoint;
  if (is_checkpoint(folder) && is_name_of_checkpoint(name)) return "the checkpoint " + folder.string();
  if (is_run(folder) && is_name_of_run(name)) return "the run " + folder.string();
  if (is_sweep_or_experiment(folder) && is_name_of_sweep(name)) return "the sweep or experiment " + folder.string();
  if (is_prepared_text(folder)) return "the prepared text " + folder.string();
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path())
    if (above.filename() == "checkpoints" && is_run(above.parent_path()))
      return "the checkpoints of the run " + above.parent_path().string();
  return "";
}

bool reads(const NamedInput& input, const std::string& output) {
  return is_same_file(output, input.value) ||
         (input.reads != NamedInput::file && is_of_patterns(output, {input.value}, input.reads == NamedInput::fields));
}

void add_inputs(const Node& node, const std::string& key, std::vector<NamedInput>& to, NamedInput::Reads reads) {
  const std::string& file = node.mark.file;
  if (std::none_of(to.begin(), to.end(), [&](const NamedInput& i) { return i.value == file; }))
    to.push_back({"the recipe", file});
  if (node.kind == Node::Kind::scalar && !node.text.empty() && node.text != "-")
    to.push_back({key, node.text, key.starts_with("data") ? reads : NamedInput::file});
  for (const Node& item : node.items) add_inputs(item, key, to, reads);
  const Node* field = node.find("field");
  if (field && !field->text.empty()) reads = NamedInput::fields;
  for (const auto& [name, value] : node.entries) add_inputs(value, key.empty() ? name : key + "." + name, to, reads);
}

// The texts of the run in this folder, and of the runs of a sweep or an experiment.
void add_texts_of_runs(const fs::path& folder, std::vector<NamedInput>& to) {
  std::error_code error;
  for (const fs::path& runs : {folder / "points", folder / "cells"})
    for (const auto& entry : fs::directory_iterator(runs, error)) add_texts_of_runs(entry.path(), to);
  if (!is_run(folder)) return;
  try {
    const Node config = read_run_config(folder.string());
    if (const Node* data = config.find("data")) add_inputs(*data, "data", to, NamedInput::texts);
  } catch (const UserError&) {  // a damaged run: the command reports it
  }
}

// The texts of the run to which a file or folder belongs.
std::vector<NamedInput> texts_of_runs(const std::string& value) {
  std::vector<NamedInput> texts;
  std::error_code error;
  fs::path folder = fs::weakly_canonical(value, error);
  if (!fs::exists(folder, error)) return texts;
  if (const std::string checkpoint = checkpoint_around(value); !checkpoint.empty())
    folder = fs::path(checkpoint).parent_path().parent_path();
  add_texts_of_runs(folder, texts);
  for (NamedInput& text : texts) text.name += " of " + value;
  return texts;
}

}  // namespace

bool is_name_of_run(const std::string& name) {
  return name.starts_with("events.out.tfevents.") ||
         is_one_of(name, std::array{"config.yaml", "provenance.json", "status.json", "metrics.jsonl", "log.txt",
                                    "memory.json", "vocabulary.tsv", "subwords.model", "tokenizer.json", "codecs.json",
                                    "sub_batch_times.json", "mean.safetensors", "checkpoints", "huggingface", ".lock"});
}

std::string loss_by_output(const std::string& output, const std::vector<NamedInput>& inputs) {
  const auto problem = [&](const std::string& why) {
    return str("cannot write ", output == "-" ? "standard output" : output, ": ", why);
  };
  for (const NamedInput& input : inputs) {
    std::vector<NamedInput> all = texts_of_runs(input.value);
    all.insert(all.begin(), input);
    for (const NamedInput& one : all)
      if (reads(one, output)) return problem("it is also an input, by " + one.name);
  }
  const std::string owner = output == "-" ? "" : owner_of(target_of_output(output));
  if (!owner.empty()) return problem("it belongs to " + owner);
  const std::string corpus = corpus_of(output);
  return corpus.empty() ? "" : problem("it belongs to the corpus " + corpus);
}

void require_no_loss(const std::string& option, const std::string& output, const Node& recipe, const std::string& key) {
  if (output.empty()) return;
  std::vector<NamedInput> inputs;
  add_inputs(recipe, key, inputs, NamedInput::texts);
  const std::string problem = loss_by_output(output, inputs);
  if (!problem.empty()) throw UserError(str(option, ": ", problem));
}

}  // namespace lmx::app
