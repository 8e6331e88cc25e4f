// Commands, their options and arguments, and the checks of the values. Only command_line.cc includes CLI11, which does
// the parsing: its header takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lmx::app::cli {

// An option such as --jobs, or an argument such as RECIPE. A copy refers to the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  Option show_default() const;         // the help prints the present value of the variable
  Option separated_by_commas() const;  // one word can contain several values
  Option repeatable() const;           // takes one word each time that it is given, not all the words after it
  Option takes(int words) const;       // exactly so many
  Option optional_value(const std::string& otherwise = "") const;  // the value is `otherwise` if no word follows
  Option may_be_empty() const;                                     // otherwise an empty value is refused
  Option excludes(const std::string& name) const;                  // an option that was added before
  Option hidden() const;                                           // neither in the help nor in completions

  // Checks of each value. The help shows all but positive(), and those of files.
  Option positive() const;  // a number above 0
  Option not_negative() const;
  Option integer_in(int64_t least, int64_t most) const;
  Option number_in(double least, double most) const;
  Option one_of(const std::vector<std::string>& words) const;
  // The command writes a file or a folder: the value, or with `endings` the value and each ending. Before the command
  // begins, it ends with a UserError if such a file is also named by the value of another option, if two outputs are
  // one file, or if a file of a run, a sweep or an experiment would be lost.
  Option writes(const std::vector<std::string>& endings = {""}) const;
  // writes(), and the file can be written: output_problem().
  Option output_file(const std::string& packing = "") const;
  Option texts() const;  // the value can also be a folder or a pattern of text files; writes() looks into it
  // The value is a recipe: a file, or the name of a shipped recipe, such as recipes/quickstart.yaml, if no file has
  // this name.
  Option recipe() const;
  // The help and completions list the words. Every value is accepted, because the command itself checks it and proposes
  // a similar word.
  Option offers(const std::vector<std::string>& words) const;

  std::vector<std::string> names() const;  // "--dry-run", "-n"; empty for an argument
  std::string argument() const;            // "RECIPE"; "" for an option
  std::set<std::string> words() const;     // those of one_of() or offers()
  bool is_list() const;                    // separated_by_commas()
  bool is_hidden() const;
  bool takes_value() const;  // false: it is a flag, or its value is optional

 private:
  CLI::Option* option_;
};

// A command such as `lmx run`, or the root of all commands. A copy refers to the same command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_subcommand(const std::string& name, const std::string& description) const;
  // `name` is "--jobs N" for an option with the name of its value in the help, or "RECIPE" for an argument. Defined for
  // the types of values in command_line.cc.
  template <typename Value>
  Option add_option(const std::string& name, Value& value, const std::string& help) const;
  // Calls `take` with the value.
  Option add_option_function(const std::string& name, const std::function<void(const std::string&)>& take,
                             const std::string& help) const;
  Option add_flag(const std::string& names, bool& value, const std::string& help = "") const;  // "--dry-run,-n"
  void callback(const std::function<void()>& run) const;  // runs if the command line names this command
  void footer(const std::string& text) const;             // of the help

  std::string name() const;
  std::string description() const;
  std::string help(const std::string& place = "") const;  // `place`: the commands above, as the usage prints them
  std::vector<Command> commands() const;
  std::optional<Command> find_command(const std::string& name) const;
  std::vector<Option> options() const;
  // Returns the option that a word of the command line names: --jobs, --jobs=2, -n.
  std::optional<Option> find_option(const std::string& word) const;
  // Returns how many values the command line has given to an option or argument.
  size_t count(const std::string& option) const;

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();
  Command root() const { return Command(app_.get()); }
  // Sets the variables of the options and runs the callback of the command; --help and --version print their text
  // instead. Returns the exit code. UserError: the words are wrong.
  int parse(int argc, char** argv) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lmx::app::cli
