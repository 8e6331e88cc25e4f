// Writes trained models as files for other programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/inference/saved_run.h"
#include "app/runs/run_directory.h"

namespace lmx::app {

struct ExportOptions {
  std::string to;                   // pytorch, huggingface, ctranslate2
  std::string output;               // a folder that does not exist, or is empty
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  std::string dtype = "f32";        // huggingface: the type of the tensors, f32, bf16 or f16
  // The files of a Transformer contain a table of sinusoids. This is its number of rows: the longest sequence that the
  // other program can read.
  std::optional<int64_t> positions;
};
// Writes the model of the run and returns the names of the files in `output`. docs/weights.md lists the contents of
// each format. UserError: no run, an unknown format, a model that the format cannot represent (the message lists all
// reasons), a folder in use.
std::vector<std::string> export_run(const std::string& run, const ExportOptions& options);
// Returns "pytorch", "huggingface" and "ctranslate2".
const std::vector<std::string>& export_formats();
const std::vector<std::string>& export_types();  // returns "f32", "bf16" and "f16"

// Types and functions that the formats of `lmx export` share.

// A run opened for export. Its parameters are the EMA parameters if the run keeps them.
struct ExportSource {
  const std::string& directory;
  const Recipe& recipe;
  const Vocabulary& vocabulary;
  const SavedRun& run;
  const ExportOptions& options;

  int64_t positions() const { return options.positions.value_or(1024); }
  bool has(const std::string& name) const { return run.params.contains(name); }
  const Tensor& at(const std::string& name) const;  // UserError if the model has no such parameter
  std::string output_table() const;  // the table whose rows give the logits: the output layer's own, or a tied one
};

// Collects all reasons why a format cannot represent a model, for one error.
class Misfits {
 public:
  void add(const std::string& key, const std::string& why);
  void require(bool fits, const std::string& key, const std::string& why) {
    if (!fits) add(key, why);
  }
  // UserError: there is a reason. `format` is its name for the message: "Marian's layout".
  void check(const std::string& directory, const std::string& format) const;

 private:
  std::vector<std::string> reasons_;
};

// The traits by which the plugin of a run's model states its architecture (lmx/config.h).
class ModelTraits {
 public:
  explicit ModelTraits(const ExportSource& source);
  const std::string& architecture() const { return architecture_; }  // "": the plugin states none
  std::string description() const;                                   // the model's name and architecture, for messages
  // The value of a trait of the architecture. UserError: the plugin does not state it, or as another type.
  std::string text(const char* trait) const;
  int64_t integer(const char* trait) const;  // at least 0
  double real(const char* trait) const;
  bool flag(const char* trait) const;

 private:
  std::string find(const char* trait) const;
  [[noreturn]] void lacks(const char* trait, const std::string& got) const;
  const Node& model_;
  std::string name_, architecture_;
};

// The numbers of a Transformer, from its traits.
struct TransformerShape {
  int64_t encoder_layers = 0, decoder_layers = 0, d = 0, ffn = 0, heads = 0;
  double dropout = 0, attention_dropout = 0, relu_dropout = 0;
  std::string norm, share;
  bool pre() const { return norm == "pre"; }
  std::string source_table() const { return share == "all" ? "embedding.weight" : "encoder.embedding.weight"; }
  std::string target_table() const {
    return share == "all" || encoder_layers == 0 ? "embedding.weight" : "decoder.embedding.weight";
  }
};
// Adds an entry to `misfits` if the architecture of the model is not the Transformer's.
TransformerShape read_transformer(const ExportSource& source, Misfits& misfits);

// Returns (rows, d): the sinusoids of positions 0, 1, ... (plugins/models/transformer).
Tensor position_table(int64_t rows, int64_t d);
Tensor scaled(const Tensor& tensor, double factor);
Tensor rows_of(const Tensor& matrix, int64_t part, int64_t parts);  // returns a copy of one of `parts` blocks of rows

// ExportOptions::dtype as PyTorch names it: "float32".
std::string torch_type(const ExportSource& source);
// Writes model.safetensors with tensors of this type. UserError: values that f16 cannot represent. REQUIRES: f32.
void save_weights(const ExportSource& source, NewFolder& folder, StateDict tensors);

// Returns the text of a readme file for the exported files.
std::string export_note(const ExportSource& source, const std::string& text);

void export_pytorch(const ExportSource& source, NewFolder& folder);
void export_marian(const ExportSource& source, NewFolder& folder);
void export_gpt2(const ExportSource& source, NewFolder& folder);
void export_gpt(const ExportSource& source, NewFolder& folder);
void export_ctranslate2(const ExportSource& source, NewFolder& folder);

// The files that `lmx export --to pytorch` writes in addition to the weights.

// lmx_model.py: LSTM, mLSTM and RHN language models in plain PyTorch.
extern const std::string_view kExportedModule;
extern const char* const kExportedReadMe;

}  // namespace lmx::app
