// A temporary folder for readers that open files by name; in memory if the system has such a file system.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::fuzz {

class Scratch {
 public:
  explicit Scratch(const std::vector<std::string>& folders = {}) {
    const bool shm = access("/dev/shm", W_OK) == 0;
    std::string name = (shm ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/lmx_fuzz_XXXXXX";
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot create " + name);
    root_ = name;
    for (const std::string& folder : folders) std::filesystem::create_directory(path(folder));
  }
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return name.empty() ? root_ : root_ + "/" + name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }

 private:
  std::string root_;
};

}  // namespace lmx::fuzz
