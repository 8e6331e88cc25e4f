// The project's source files, for tests that read them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "paths.h"

namespace lmx_style {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;  // relative to the project's root
  std::vector<std::string> lines;
};

inline bool ends_with_any(const std::string& text, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& e) { return text.ends_with(e); });
}

inline SourceFile read_source(const fs::path& root, const fs::path& file) {
  SourceFile source{fs::relative(file, root).string(), {}};
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) source.lines.push_back(line);
  return source;
}

// Every file with one of these endings below `folders` of the project, sorted.
inline std::vector<SourceFile> source_files(const std::vector<std::string>& folders,
                                            const std::vector<std::string>& endings) {
  const fs::path root = lmx_test::source_path();
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && ends_with_any(entry.path().string(), endings)) {
        files.push_back(read_source(root, entry.path()));
      }
    }
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

// Exceptions from a rule. Each one must be needed.
class Exceptions {
 public:
  struct One {
    std::string file, what, reason;  // what: what the file may contain; "" if the rule says it
    bool needed = false;
  };
  Exceptions(std::initializer_list<One> all) : all_(all) {}
  bool allow(const std::string& file, const std::string& what = "") {
    bool allowed = false;
    for (One& one : all_)
      if (one.file == file && one.what == what) one.needed = allowed = true;
    return allowed;
  }
  void expect_all_needed() const {
    for (const One& one : all_) EXPECT_TRUE(one.needed) << one.file << ' ' << one.what << ": needs no exception";
  }

 private:
  std::vector<One> all_;
};

inline const std::vector<std::string> kCode{".cc", ".h", ".cu", ".cuh"};

// The text between the quotes or brackets of an #include line; "" for any other line.
inline std::string included(const std::string& line, char open, char close) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line.compare(hash, 8, "#include") != 0) return "";
  const size_t begin = line.find(open, hash + 8);
  if (begin == std::string::npos) return "";
  const size_t end = line.find(close, begin + 1);
  return end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

}  // namespace lmx_style
