#include "cli/output/next_lines.h"

#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "app/print/shell.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx_cli {
namespace {

namespace fs = std::filesystem;

// Returns whether the list was written in another file than the recipe. A list of the command line has no file.
bool is_inherited(const lmx::Node& list, const std::string& recipe) {
  std::error_code error;
  return fs::exists(list.mark.file, error) && !fs::equivalent(list.mark.file, recipe, error);
}

// Returns the words of a line with their values; nothing if a file beside the recipe does not exist.
std::vector<std::string> words_of(const std::string& line, const fs::path& folder, const NextLines::Words& values) {
  constexpr std::string_view kFolder = "FOLDER/";
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) {
    if (word == "lmx" && words.empty()) {
      word = values.command;
    } else if (word == "RECIPE") {
      word = values.recipe;
    } else if (word == "RUN") {
      word = values.run;
    } else if (word.starts_with(kFolder)) {
      const fs::path file = folder / word.substr(kFolder.size());
      std::error_code error;
      if (!fs::exists(file, error)) return {};
      word = shell_quoted(file.string());
    }
    words.push_back(word);
  }
  return words;
}

}  // namespace

NextLines::NextLines(const lmx::Node& composed, const std::string& file)
    : folder_(fs::path(file).parent_path().string()) {
  const lmx::Node* list = composed.at_path("provenance.next");
  if (!list || list->kind == lmx::Node::Kind::null) return;
  const auto refuse = [](const lmx::Node& node) {
    throw lmx::UserError(lmx::str(lmx::config::at(node.mark, "provenance.next"), "expected a list of lines, got ",
                                  lmx::config::describe_value(node)));
  };
  if (list->kind != lmx::Node::Kind::list) refuse(*list);
  for (const lmx::Node& item : list->items)
    if (item.kind != lmx::Node::Kind::scalar) refuse(item);
  if (is_inherited(*list, file)) return;
  for (const lmx::Node& item : list->items) lines_.push_back(item.text);
}

std::vector<std::string> NextLines::lines(const Words& words) const {
  std::vector<std::string> all;
  for (const std::string& line : lines_)
    if (const std::vector<std::string> replaced = words_of(line, folder_, words); !replaced.empty())
      all.push_back(lmx::config::join(replaced, " "));
  return all;
}

}  // namespace lmx_cli
