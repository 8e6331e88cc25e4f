#include "cli/output/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>

#include "app/print/terminal.h"

namespace lmx_cli {
namespace {

// Makes lines bold that begin at the left margin and end in a colon, and the word "Usage:".
std::string with_bold_headings(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::string usage = "Usage:";
    if (line.starts_with(usage))
      line = bold(usage) + line.substr(usage.size());
    else if (!line.empty() && line[0] != ' ' && line.back() == ':')
      line = bold(line);
    out += line + "\n";
  }
  return out;
}

// Indents all lines after the first one.
std::string hanging(const std::string& text, size_t width) {
  constexpr size_t kIndent = 4;
  std::string out;
  for (const std::string& line : wrapped(text, width > kIndent ? width - kIndent : 0))
    out += (out.empty() ? "" : "\n" + std::string(kIndent, ' ')) + line;
  return out;
}

// Puts examples first, because readers look for them.
class ExamplesFirst : public CLI::Formatter {
 public:
  ExamplesFirst() : width_(terminal_width()) {
    label("SUBCOMMAND", "COMMAND");
    label("SUBCOMMANDS", "COMMANDS");
    label("Positionals", "Arguments");
    label("REQUIRED", "");
    if (width_ > 0) column_width(std::clamp(width_ / 3, size_t{12}, get_column_width()));
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
    std::string usage = CLI::Formatter::make_usage(app, name);
    const size_t end = usage.find_last_not_of('\n') + 1;
    usage = hanging(usage.substr(0, end), width_) + usage.substr(end);
    std::string out = app->get_footer() + "\n" + hanging(app->get_description(), width_) + "\n" + usage;
    out += make_positionals(app) + make_groups(app, mode);
    // CLI11 uses the name of the commands' group as this title, and every command would have to set it.
    std::string commands = make_subcommands(app, mode);
    const std::string title = "Subcommands:";
    if (const size_t at = commands.find(title); at != std::string::npos)
      commands.replace(at, title.size(), "Commands:");
    return with_bold_headings(out + commands);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional) + make_option_opts(option), above;
    if (width_ > 4 && width_of(name) + 2 > width_) {  // long defaults
      const std::vector<std::string> lines = wrapped(name, width_ - 4);
      for (size_t i = 0; i + 1 < lines.size(); ++i) above += (i ? "    " : "  ") + lines[i] + "\n";
      name = (lines.size() > 1 ? "  " : "") + lines.back();
    }
    return above + two_columns(name, make_option_desc(option), get_column_width(), width_);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description(), get_column_width(), width_);
  }

 private:
  size_t width_;  // 0: no limit
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  return std::make_shared<ExamplesFirst>();
}

}  // namespace lmx_cli
