#include "app/runs/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::train {

namespace fs = std::filesystem;

namespace {

// Opens and locks a folder. Returns -1 (errno) if it is none, a link to one, or locked: its process lives.
int lock_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  close(folder);
  return -1;
}

void remove_leftover(const std::string& draft) {
  const int leftover = lock_folder(draft);
  if (leftover < 0) return;
  std::error_code error;
  fs::remove_all(draft, error);
  close(leftover);
}

int create_locked(const std::string& draft) {
  if (mkdir(draft.c_str(), 0777) != 0) return -1;
  const int folder = lock_folder(draft);
  // Another process took it for a leftover before it was locked.
  if (folder < 0 && (errno == EWOULDBLOCK || errno == ENOENT)) errno = EEXIST;
  return folder;
}

}  // namespace

NewFolder::NewFolder(std::string command, std::string target)
    : command_(std::move(command)), target_(std::move(target)) {
  std::error_code error;
  const fs::path path = fs::absolute(target_.ends_with('/') ? target_.substr(0, target_.size() - 1) : target_);
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    throw UserError(str("[", command_, "] ", target_, " exists; choose a folder that does not exist, or is empty"));
  if (!fs::is_directory(path.parent_path(), error))
    throw UserError(
        str("[", command_, "] there is no folder ", path.parent_path().string(), " to make ", target_, " in"));
  const std::string hidden = (path.parent_path() / ("." + path.filename().string())).string();
  const Temporary made = make_temporary(hidden, remove_leftover, create_locked);
  if (made.descriptor < 0)
    throw RunError(str("[", command_, "] cannot create ", made.path, ": ", std::strerror(errno)));
  draft_ = made.path;
  lock_ = made.descriptor;
}

NewFolder::~NewFolder() {
  std::error_code error;
  if (!finished_) fs::remove_all(draft_, error);
  close(lock_);
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
