// A folder that a command fills with files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::train {

// The folder has a temporary name until finish(), so that unfinished files never appear under its name.
class NewFolder {
 public:
  // `command` begins messages: "export". UserError: `target` is a file, or not empty.
  NewFolder(std::string command, std::string target);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  const std::string& draft() const { return draft_; }  // its present path
  std::string path(const std::string& name);           // path of a file to write
  void write(const std::string& name, std::string_view text);
  void write(const std::string& name, const nlohmann::ordered_json& json);
  void copy(const std::string& from, const std::string& name);
  std::vector<std::string> finish();  // returns the names of the files that path(), write() and copy() have named

 private:
  std::string command_, target_, draft_;
  std::vector<std::string> names_;
  int lock_ = -1;  // of the draft, while this process lives
  bool finished_ = false;
};

}  // namespace lmx::train
