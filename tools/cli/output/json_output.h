// `--json` of commands: prints their results as one JSON value to stdout (docs/json.md).
#pragma once

#include <string>

#include "app/records/records.h"
#include "app/translation/translate.h"
#include "cli/command_line.h"

namespace lmx::app::cli {

// Adds the flag --json.
void add_json(Command command, bool& json);

// Prints a value. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

// `lmx translate --json`.

// Translates the lines of `input` ("-": standard input) and writes one JSON object per line to `output` ("-": standard
// output); see docs/json.md. UserError: as Translator and lmx::read_lines(). RunError: `output` cannot be written.
TranslatedFile translate_as_json(const std::string& run, const TranslateOptions& options, const std::string& input,
                                 const std::string& output);

}  // namespace lmx::app::cli
