// Writes trained models as files for other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx {

struct ExportOptions {
  std::string to;                   // pytorch, huggingface, ctranslate2
  std::string output;               // a folder that does not exist, or is empty
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  std::string dtype = "f32";        // huggingface: the type of the tensors, f32, bf16 or f16
  // Number of rows of the sinusoidal position table in the files: the longest sequence that the other program can read.
  int64_t positions = 1024;
};
// Writes the model of the run and returns the names of the files in `output`. docs/weights.md lists the contents of
// each format. UserError: no run, an unknown format, a model that the format cannot represent (the message lists all
// reasons), a folder in use.
std::vector<std::string> export_run(const std::string& run, const ExportOptions& options);
// Returns "pytorch", "huggingface" and "ctranslate2".
const std::vector<std::string>& export_formats();
const std::vector<std::string>& export_types();  // returns "f32", "bf16" and "f16"

}  // namespace lmx
