// A directory of the cache that is built once: whoever comes first builds, whoever comes meanwhile waits.
#pragma once

#include <functional>
#include <string>

namespace lmx::data {

// The directory `parent`/`name`, made by `build(temporary directory)` unless it is there. `build` runs in at most one
// process at a time, and its directory appears under its name complete or not at all: whatever `build` throws, and
// whenever the process dies, nothing half-written stays that a later call would take for data.
std::string build_once(const std::string& parent, const std::string& name,
                       const std::function<void(const std::string&)>& build);

// A folder in the system's temporary one, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();  // RunError: it cannot be made
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lmx::data
