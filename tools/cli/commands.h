// The commands of `lmx`, and what they share. Each add_* adds one command (with its options, examples and callback) and
// is defined in <command>_command.cc. A callback prints results to stdout, throws lmx::UserError or lmx::RunError for
// errors, and throws ExitCode to end with another exit code than 0.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "data/dataset.h"

namespace lmx::app {
struct TextColumns;
}

namespace lmx::app::cli {

// The text that `lmx --version` prints: the version, the build, and the libraries with their licences.
std::string version_text();

void add_run(Command app);
void add_new(Command app);
void add_eval(Command app);
void add_generate(Command app);
void add_features(Command app);
void add_probe(Command app);
void add_config(Command app);
void add_data(Command app);
void add_plugins(Command app);
void add_bench(Command app);
void add_devices(Command app);
void add_experiment(Command app);
void add_sweep(Command app);
void add_plan(Command app);
void add_compare(Command app);
void add_report(Command app);
void add_bleu(Command app);
void add_translate(Command app);
void add_score(Command app);
void add_average(Command app);
void add_export(Command app);
void add_import(Command app);
void add_completion(Command app);

// Parts of `lmx plugins` (plugins_new.cc, plugins_check.cc).
void add_plugins_new(Command group);
void add_plugins_check(Command group);

// Parts of `lmx data` for parallel text (pairs_command.cc).
void add_pair_commands(Command group);
void print_pair_statistics(const Dataset& dataset);

// Columns of labelled texts, for `lmx features` and `lmx probe` (features_command.cc). UserError: --classes does not
// take two different words.
void add_text_columns(Command command, TextColumns& columns);
void check_text_columns(Command command, const TextColumns& columns);
const std::vector<std::string>& text_column_options();

// Ends the process with this exit code and no message: 130 after SIGINT, 143 after SIGTERM, 1 for a run that failed, 2
// for a dry run with errors. These errors have already been reported.
struct ExitCode {
  int code;
};

// Sets the examples at the start of a command's `--help`: {command line, what it does}. Every command has some.
void set_examples(Command command, const std::vector<std::pair<std::string, std::string>>& examples);

// UserError: one of these options was given, such as "--unit is not used without --heatmap". `where` is the end of this
// sentence.
void refuse_given(Command command, const std::vector<std::string>& options, const std::string& where);

// UserError: the folder that --out names holds something else than a lock, and files that the command may have left.
// `own` returns true for the names of these.
void refuse_other_files(const std::string& command, const std::string& out,
                        const std::function<bool(const std::string& name)>& own);

// `--device NAME` of a command that computes with a saved run's model.
void add_device(Command command, std::string& device);

// `--plugin-dir DIR` (repeatable) of a command that uses plugins.
struct PluginDirectories {
  std::vector<std::string> directories;
  void add_to(Command command);
  // Fills the registry: build tree or install prefix, LMX_PLUGIN_PATH, then these folders. Call it once, before any
  // plugin is used.
  void load() const;
};

// Parses and runs a command line; returns the exit code: 0 done, 1 the run failed, 2 the user's input is wrong.
int run_command_line(int argc, char** argv);

}  // namespace lmx::app::cli
