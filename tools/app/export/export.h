// Trained models as files for other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx {

struct ExportOptions {
  std::string to;                   // pytorch, huggingface, ctranslate2
  std::string output;               // a folder that does not exist, or is empty
  std::string checkpoint = "last";  // last, best, a step, or a file or folder of parameters
  // Rows of the table of sinusoids that the file holds: the longest sequence that the other program reads.
  int64_t positions = 1024;
};
// Writes the model of the run and returns the names of the files in `output`. docs/weights.md lists what each format
// holds. UserError: no run, a format that there is not, a model that the format cannot express (all reasons are named),
// a folder in use.
std::vector<std::string> export_run(const std::string& run, const ExportOptions& options);
// "pytorch", "huggingface", "ctranslate2".
const std::vector<std::string>& export_formats();

}  // namespace lmx
