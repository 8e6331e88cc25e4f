// What lmx reads that others write: parsers, each as a function of any bytes. libFuzzer feeds them (tools/fuzz), and a
// test feeds them every file of seeds/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx::fuzz {

// Returns where the input is read or refused by UserError or RunError. Throws anything else, std::logic_error where
// what was read does not read back to itself.
struct Target {
  const char* name;  // of its folder in seeds/
  void (*run)(std::string_view input);
};
const std::vector<Target>& targets();

void yaml(std::string_view input);           // a recipe's text
void override_text(std::string_view input);  // what stands behind `lmx run RECIPE`
void interpolation(std::string_view input);  // values that refer to one another, one a line
void manifest(std::string_view input);       // plugin.toml
void fields(std::string_view input);         // NAME.fields.toml of a plugin
void metrics(std::string_view input);        // metrics.jsonl, by those who show it and those who go on with it
// A checkpoint: a safetensors file, or, where the input begins with '{', its state.json, whose hash is made to fit.
void checkpoint(std::string_view input);
void journal(std::string_view input);  // journal.jsonl of a sweep and of an experiment, status.json of a run

}  // namespace lmx::fuzz
