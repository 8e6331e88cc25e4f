// Files that a command may not write, because something would be lost: its inputs, and the files of runs and corpora.
#pragma once

#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::app {

// A value that may name files that a command reads.
struct NamedInput {
  // The value names a file; or a file, a folder or a pattern of text files; or these, with files with fields (CSV) too.
  enum Reads { file, texts, fields };
  std::string name;   // in messages: "--input", "data.files"
  std::string value;  // a path; `-` is standard input
  Reads reads = file;
};

// Returns "cannot write OUTPUT: why" if the file is one of the inputs, by whatever name, a text of a run that is an
// input, one that lmx keeps in the folder of a run, a checkpoint, a sweep, an experiment or a prepared text, or one of
// a corpus of the registry; otherwise "". Opens config.yaml of runs, and looks at other files only.
std::string loss_by_output(const std::string& output, const std::vector<NamedInput>& inputs);

// UserError that begins with `option`: writing `output` would lose a file, also one of which the recipe is composed, or
// that a value names. `recipe` may be a part: `key` is its key then. No `output` ("") is no error.
void require_no_loss(const std::string& option, const std::string& output, const Node& recipe,
                     const std::string& key = "");

// Whether a new run writes a file of this name into its folder.
bool is_name_of_run(const std::string& name);

}  // namespace lmx::app
