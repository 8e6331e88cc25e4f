#include "app/report/find.h"

#include <algorithm>
#include <filesystem>

#include "lmx/error.h"

namespace lmx_cli::reports {
namespace {

namespace fs = std::filesystem;

void add_runs(const fs::path& directory, std::vector<std::string>& runs) {
  if (holds_run(directory.string())) {
    runs.push_back(directory.string());
    return;
  }
  std::error_code error;
  for (fs::directory_iterator entry(directory, fs::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const bool hidden = entry->path().filename().string().starts_with(".");
    if (!hidden && !entry->is_symlink(unreadable) && entry->is_directory(unreadable)) add_runs(entry->path(), runs);
  }
}

}  // namespace

bool holds_run(const std::string& directory) {
  std::error_code error;
  return fs::is_regular_file(fs::path(directory) / "metrics.jsonl", error);
}

std::vector<std::string> runs_below(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw lmx::UserError(lmx::str("[records] there is no run directory ", directory));
  fs::path top = fs::path(directory).lexically_normal();
  if (!top.has_filename()) top = top.parent_path();
  if (holds_run(directory)) return {directory};
  std::vector<std::string> runs;
  add_runs(top, runs);
  std::sort(runs.begin(), runs.end());
  return runs;
}

}  // namespace lmx_cli::reports
