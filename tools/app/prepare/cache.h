// Steps that every preparation needs: check the corpus, choose folder and number of threads, and build a directory of
// the cache only once: the first caller builds it, and concurrent callers wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"

namespace lmx::app {

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

// Steps that every preparation needs: check the corpus, choose folder and number of threads.

// Compares the SHA-256 of each file with the registry's. If the registry has none for the corpus, compares it with the
// sum that the first use recorded in the cache. Checks nothing if `corpus` is null. UserError: they differ; the message
// contains both sums.
void verify_checksums(const Corpus* corpus, const std::string& directory, const std::vector<SourceFile>& files,
                      const std::string& cache_dir);

std::string cache_directory(const std::string& configured);  // "": the default one
int preparing_threads(int64_t configured);                   // 0: all cores

}  // namespace lmx::app
