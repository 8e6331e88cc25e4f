// Files of parallel text: reads pairs in chunks, and writes them to files that appear when they are complete.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/corpora/sources.h"
#include "app/pairs/parallel_text.h"

namespace lmx::app {

// Reads parallel text in chunks of whole pairs: two files line by line, or one file with both sides in columns.

struct PairFiles {
  SourceFile source;                     // or the TSV file
  SourceFile target;                     // path "": `source` contains both sides
  std::array<int64_t, 2> columns{1, 2};  // of a TSV file, 1-based
  bool tsv() const { return target.path.empty(); }
};

// The pairs of a text that are read, counted from 0 over its files.
struct PairRange {
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();  // both inclusive
  bool all() const { return first == 0 && last == std::numeric_limits<int64_t>::max(); }
  bool holds(int64_t number) const { return number >= first && number <= last; }
};

struct PairChunk {
  int64_t index = 0;
  size_t file = 0;
  int64_t first_pair = 0;                        // 0-based, counted over all files
  int64_t file_line = 1;                         // 1-based, of the first pair in its files
  int64_t source_offset = 0, target_offset = 0;  // of the texts in the (decompressed) files
  int64_t pairs = 0;
  std::string source, target;  // whole lines, equally many on both sides; a TSV file is stored completely in `source`
};

// Returns pairs chunk by chunk to any number of threads, with about `chunk_bytes` of source text each. UserError: the
// two files of a pair have different numbers of lines (the message contains both), a damaged compressed file.
class PairReader {
 public:
  PairReader(const std::vector<PairFiles>& files, size_t chunk_bytes, std::string progress_title);
  ~PairReader();
  bool next(PairChunk& chunk);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct PairLine {
  std::string_view source, target;
  int64_t number = 0;  // 0-based, counted over all files
};

// Calls visit(pair) for each pair of the chunk. UserError: a line that is not UTF-8 (unless `any_bytes`), or has too
// few columns.
void for_each_pair(const PairFiles& files, const PairChunk& chunk, const std::function<void(const PairLine&)>& visit,
                   bool any_bytes = false);

void for_each_pair_chunk(PairReader& reader, int threads, const std::function<void(PairChunk&, int)>& visit,
                         const std::function<void()>& failed = {});

// Writes pairs to text files that appear under their names only when they are complete.

// The pairs of a chunk in the format of the output files. Any thread creates it; blocks are appended in order.
struct PairBlock {
  std::string source, target;  // TSV output is stored completely in `source`
};

class PairWriter {
 public:
  explicit PairWriter(const PairTextOutput& out);  // UserError: no output named
  ~PairWriter();                                   // without finish(), no file remains
  void add(PairBlock& block, std::string_view source, std::string_view target) const;
  void seal(PairBlock& block) const;  // compresses the text of .gz outputs
  void append(const PairBlock& block);
  void finish();

 private:
  struct File;
  std::unique_ptr<File> source_, target_;
  bool tsv_ = false;
};

// Finds the files that a command line names, in the same way as find_parallel finds those of a recipe. UserError:
// different numbers of files on the two sides, and others.
std::vector<PairFiles> find_pair_files(const PairTextFiles& in);

}  // namespace lmx::app
