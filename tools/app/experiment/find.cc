// Finds the folders of experiments.
#include <algorithm>
#include <filesystem>

#include "app/experiment/experiment.h"
#include "app/print/words.h"
#include "app/run/shipped.h"
#include "lmx/error.h"

namespace lmx::app::experiment {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> roots() {
  std::vector<std::string> folders{"experiments"};
  if (const auto shipped = shipped_folder("experiments")) folders.push_back(shipped->string());
  return folders;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> find_experiments() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& root : roots()) {
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(root, error)) {
      if (entry.path().extension() != ".yaml") continue;
      const std::string id = fs::relative(entry.path(), root).replace_extension().string();
      const bool known = std::any_of(found.begin(), found.end(), [&](const auto& f) { return f.first == id; });
      if (!known) found.emplace_back(id, entry.path().string());
    }
  }
  if (found.empty())
    throw UserError(str("[experiment] there are no experiments in ", joined(roots()),
                        "; go to a folder that has experiments/, or name a file: x.yaml"));
  std::sort(found.begin(), found.end());
  return found;
}

std::string experiment_file(const std::string& name) {
  std::error_code error;
  if (name.ends_with(".yaml")) {
    if (!fs::is_regular_file(name, error)) throw UserError(str("[experiment] there is no file ", name));
    return name;
  }
  std::vector<std::string> ids, last;
  std::vector<std::string> matches;
  for (const auto& [id, file] : find_experiments()) {
    ids.push_back(id);
    last.push_back(id.substr(id.rfind('/') + 1));
    if (id == name) return file;
    if (last.back() == name) matches.push_back(file);
  }
  if (matches.size() == 1) return matches[0];
  std::vector<std::string> candidates = ids;
  if (name.find('/') == std::string::npos) candidates = last;
  throw UserError(str("[experiment] ", matches.empty() ? "no experiment '" : "several experiments end in '", name, "'",
                      did_you_mean(name, candidates), "; `lmx experiment list` shows them all"));
}

}  // namespace lmx::app::experiment
