#include "app/run/outputs.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "app/corpora/sources.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "runfiles/checkpoint.h"

namespace lmx {
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
  return is_one_of(name, std::array{"sweep.json", "journal.jsonl", "results.json", "table.csv", "table.md", ".lock"});
}

// Returns the run, checkpoint, sweep or experiment that the file belongs to; "" if it belongs to none.
std::string owner_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const std::string name = path.filename().string(), checkpoint = checkpoint_around(path.string());
  if (!checkpoint.empty()) return "the checkpoint " + checkpoint;
  if (is_checkpoint(folder) && is_name_of_checkpoint(name)) return "the checkpoint " + folder.string();
  if (is_run(folder) && is_name_of_run(name)) return "the run " + folder.string();
  if (is_sweep_or_experiment(folder) && is_name_of_sweep(name)) return "the sweep or experiment " + folder.string();
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path())
    if (above.filename() == "checkpoints" && is_run(above.parent_path()))
      return "the checkpoints of the run " + above.parent_path().string();
  return "";
}

bool reads(const NamedInput& input, const std::string& output) {
  if (is_same_file(output, input.value)) return true;
  if (!input.texts) return false;
  try {
    const std::vector<data::SourceFile> files = data::find_sources({input.value}, data::Split::drawn);
    return std::any_of(files.begin(), files.end(), [&](const auto& f) { return is_same_file(output, f.path); });
  } catch (const UserError&) {
    return false;  // no such text: the command reports it, if the value is a path
  }
}

void add_inputs(const Node& node, const std::string& key, std::vector<NamedInput>& to) {
  const std::string& file = node.mark.file;
  if (std::none_of(to.begin(), to.end(), [&](const NamedInput& i) { return i.value == file; }))
    to.push_back({"the recipe", file});
  if (node.kind == Node::Kind::scalar && !node.text.empty() && node.text != "-")
    to.push_back({key, node.text, key.starts_with("data")});
  for (const Node& item : node.items) add_inputs(item, key, to);
  for (const auto& [name, value] : node.entries) add_inputs(value, key.empty() ? name : key + "." + name, to);
}

}  // namespace

bool is_name_of_run(const std::string& name) {
  return name.starts_with("events.out.tfevents.") ||
         is_one_of(name, std::array{"config.yaml", "provenance.json", "status.json", "metrics.jsonl", "log.txt",
                                    "memory.json", "vocabulary.tsv", "subwords.model", "tokenizer.json", "codecs.json",
                                    "sub_batch_times.json", "mean.safetensors", "checkpoints", ".lock"});
}

std::string loss_by_output(const std::string& output, const std::vector<NamedInput>& inputs) {
  const auto problem = [&](const std::string& why) {
    return str("cannot write ", output == "-" ? "standard output" : output, ": ", why);
  };
  for (const NamedInput& input : inputs)
    if (reads(input, output)) return problem("it is also an input, by " + input.name);
  const std::string owner = output == "-" ? "" : owner_of(target_of_output(output));
  return owner.empty() ? "" : problem("it belongs to " + owner);
}

void require_no_loss(const std::string& option, const std::string& output, const Node& recipe, const std::string& key) {
  if (output.empty()) return;
  std::vector<NamedInput> inputs;
  add_inputs(recipe, key, inputs);
  const std::string problem = loss_by_output(output, inputs);
  if (!problem.empty()) throw UserError(str(option, ": ", problem));
}

}  // namespace lmx
