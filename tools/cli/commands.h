// The commands of `lmx`, and what they share. Each add_* adds one command (with its options, examples and callback) and
// is defined in <command>_command.cc. A callback prints results to stdout, throws lmx::UserError or lmx::RunError for
// errors, and throws ExitCode to end with another exit code than 0.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "lmx/config.h"

namespace lmx {
struct Dataset;
}

namespace lmx_cli {

void add_run(CLI::App& app);
void add_eval(CLI::App& app);
void add_generate(CLI::App& app);
void add_features(CLI::App& app);
void add_probe(CLI::App& app);
void add_config(CLI::App& app);
void add_data(CLI::App& app);
void add_plugins(CLI::App& app);
void add_bench(CLI::App& app);
void add_devices(CLI::App& app);
void add_experiment(CLI::App& app);
void add_sweep(CLI::App& app);
void add_plan(CLI::App& app);
void add_report(CLI::App& app);
void add_bleu(CLI::App& app);
void add_translate(CLI::App& app);
void add_score(CLI::App& app);
void add_average(CLI::App& app);
void add_export(CLI::App& app);
void add_completion(CLI::App& app);

// Parts of `lmx plugins` (plugins_new.cc, plugins_check.cc, plugins_describe.cc).
void add_plugins_new(CLI::App& group);
void add_plugins_check(CLI::App& group);
void add_plugins_describe(CLI::App& group);

// Parts of `lmx data` for parallel text (pairs_command.cc).
void add_pair_commands(CLI::App& group);
void print_pair_statistics(const lmx::Dataset& dataset);

// Ends the process with this exit code and no message: 130 after SIGINT, 143 after SIGTERM, 1 for a run that failed, 2
// for a dry run with errors. These errors have already been reported.
struct ExitCode {
  int code;
};

// Sets the examples at the start of a command's `--help`: {command line, what it does}. Every command has some.
void set_examples(CLI::App& command, const std::vector<std::pair<std::string, std::string>>& examples);

// UserError: one of these options was given, such as "--unit is not used without --heatmap". `where` is the end of this
// sentence.
void refuse_given(const CLI::App& command, const std::vector<std::string>& options, const std::string& where);

// UserError: no file can be written at `path`, the value of `option`. Call it before the work, so that the user learns
// this early.
void check_place(const CLI::App& command, const std::string& option, const std::string& path);

// `--device NAME` of a command that computes with a saved run's model.
void add_device(CLI::App& command, std::string& device);

// `--plugin-dir DIR` (repeatable) of a command that uses plugins.
struct PluginDirectories {
  std::vector<std::string> directories;
  void add_to(CLI::App& command);
  // Fills the registry: build tree or install prefix, LMX_PLUGIN_PATH, then these folders. Call it once, before any
  // plugin is used.
  void load() const;
};

// Parses and runs a command line; returns the exit code: 0 done, 1 the run failed, 2 the user's input is wrong.
int run_command_line(int argc, char** argv);

}  // namespace lmx_cli
