// A directory for each test with files, gzip, and a disk that is full.
#pragma once

#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "lmx/config.h"
#include "lmx/data.h"
#include "lmx/error.h"
#include "test.h"

namespace lmx_test {

// The text of the RunError that `call` throws where a file may hold `bytes` at most, which stands in for a full disk;
// it runs in a separate process. "no error" where it throws none.
template <class Call>
std::string error_on_full_disk(rlim_t bytes, const Call& call) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = start_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = run_error(call);
    return write(pipe_ends[1], error.data(), error.size()) == static_cast<ssize_t>(error.size()) ? 0 : 1;
  });
  close(pipe_ends[1]);
  std::string error;
  char part[512];
  for (ssize_t n; (n = read(pipe_ends[0], part, sizeof part)) > 0;) error.append(part, static_cast<size_t>(n));
  close(pipe_ends[0]);
  EXPECT_EQ(exit_code_of(child), 0);
  return error;
}

// A directory of the test's own, files in it, and gzip.

// Sets LMX_DATA_DIR, and restores it at the end of the scope.
class CorporaIn {
 public:
  explicit CorporaIn(const std::string& directories) {
    if (const char* before = std::getenv("LMX_DATA_DIR")) before_ = before;
    setenv("LMX_DATA_DIR", directories.c_str(), 1);
  }
  ~CorporaIn() { before_ ? setenv("LMX_DATA_DIR", before_->c_str(), 1) : unsetenv("LMX_DATA_DIR"); }
  CorporaIn(const CorporaIn&) = delete;
  CorporaIn& operator=(const CorporaIn&) = delete;

 private:
  std::optional<std::string> before_;
};

class DataTest : public testing::Test, protected TempFolder {
 protected:
  std::string write_gz(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path(name);
  }
  std::string read(const std::string& name) const { return read_file(folder_ / name); }
  // `data:` over these files, its cache inside the directory.
  lmx::Node text_data(const std::string& files_yaml, const std::string& more = "") const {
    return lmx::parse_yaml("name: text\ncache_dir: " + path("cache") + "\nfiles: [" + files_yaml + "]\n" + more,
                           "recipe.yaml");
  }
};

inline std::string words_of(const lmx::TokenArray& tokens, const lmx::Vocabulary& vocabulary) {
  std::string text;
  for (const int32_t id : tokens.tokens()) text += (text.empty() ? "" : " ") + vocabulary.word(id);
  return text;
}

}  // namespace lmx_test
