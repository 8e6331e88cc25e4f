// `lmx translate --json`.
#pragma once

#include <string>

#include "app/translation/translate.h"

namespace lmx_cli {

// Translates the lines of `input` ("-": standard input) and writes one JSON object per line to `output` ("-": standard
// output); see docs/json.md. UserError: as Translator and lmx::read_lines(). RunError: `output` cannot be written.
lmx::TranslatedFile translate_as_json(const std::string& run, const lmx::TranslateOptions& options,
                                      const std::string& input, const std::string& output);

}  // namespace lmx_cli
