// A directory of the cache that is built only once: the first caller builds it, and concurrent callers wait.
#pragma once

#include <functional>
#include <string>

namespace lmx::data {

// Returns the directory `parent`/`name`; if it does not exist, `build(temporary directory)` creates its contents. At
// most one process runs `build` at a time. The directory appears under its name only when it is complete: if `build`
// throws or the process dies, no later call can mistake unfinished files for data.
std::string build_once(const std::string& parent, const std::string& name,
                       const std::function<void(const std::string&)>& build);

// A folder in the system's temporary directory. The destructor removes it with its contents.
class TemporaryDirectory {
 public:
  TemporaryDirectory();  // RunError: it cannot be created
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lmx::data
