#include "app/runs/new_folder.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::train {

namespace fs = std::filesystem;

NewFolder::NewFolder(std::string command, std::string target)
    : command_(std::move(command)), target_(std::move(target)) {
  std::error_code error;
  const fs::path path = fs::absolute(target_.ends_with('/') ? target_.substr(0, target_.size() - 1) : target_);
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    throw UserError(str("[", command_, "] ", target_, " exists; choose a folder that does not exist, or is empty"));
  if (!fs::is_directory(path.parent_path(), error))
    throw UserError(
        str("[", command_, "] there is no folder ", path.parent_path().string(), " to make ", target_, " in"));
  draft_ = (path.parent_path() / str(".", path.filename().string(), ".tmp-", getpid())).string();
  fs::remove_all(draft_, error);
  if (!fs::create_directory(draft_, error) || error)
    throw RunError(str("[", command_, "] cannot create ", draft_, ": ", error.message()));
}

NewFolder::~NewFolder() {
  std::error_code error;
  if (!finished_) fs::remove_all(draft_, error);
}

std::string NewFolder::path(const std::string& name) {
  names_.push_back(name);
  return draft_ + "/" + name;
}

void NewFolder::write(const std::string& name, std::string_view text) {
  write_file(path(name), text);
}

void NewFolder::write(const std::string& name, const nlohmann::ordered_json& json) {
  write(name, std::string_view(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
}

void NewFolder::copy(const std::string& from, const std::string& name) {
  write(name, std::string_view(read_file(from)));
}

std::vector<std::string> NewFolder::finish() {
  std::error_code error;
  fs::remove(target_, error);  // removes an empty folder
  fs::rename(draft_, target_, error);
  if (error) throw RunError(str("[", command_, "] cannot create ", target_, ": ", error.message()));
  finished_ = true;
  return names_;
}

}  // namespace lmx::train
