// The readers of lmx for input from outside: each is a function of arbitrary bytes. libFuzzer runs them (tools/dev/fuzz),
// and a test runs them on every seed of seeds.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmx::fuzz {

// Returns if the input is read, or rejected by UserError or RunError. Throws any other error; throws std::logic_error
// if the data, written and read again, differs.
struct Target {
  const char* name;  // its name in seeds.json
  void (*run)(std::string_view input);
};
const std::vector<Target>& targets();

void yaml(std::string_view input);           // a recipe's text
void override_text(std::string_view input);  // the words after `lmx run RECIPE`
void interpolation(std::string_view input);  // values that refer to each other, one per line
void manifest(std::string_view input);       // plugin.toml
void fields(std::string_view input);         // NAME.fields.toml of a plugin
void metrics(std::string_view input);        // metrics.jsonl, as read by reports and by resumed runs
// A checkpoint: a safetensors file, or, if the input begins with '{', its state.json, to which a matching hash is
// added.
void checkpoint(std::string_view input);
void tokenizer_json(std::string_view input);  // the tokenizer.json of a model
void tokens(std::string_view input);          // a file of ids; the pieces of a tokenizer's file
void huggingface(std::string_view input);     // config.json and model.safetensors.index.json of a model
void journal(std::string_view input);         // journal.jsonl of a sweep and of an experiment, status.json of a run

}  // namespace lmx::fuzz
