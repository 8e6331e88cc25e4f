// Writes pairs to text files that appear under their names only when they are complete.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "app/pairs/pair_reader.h"
#include "app/pairs/parallel_text.h"

namespace lmx::data {

// The pairs of a chunk in the format of the output files. Any thread creates it; blocks are appended in order.
struct PairBlock {
  std::string source, target;  // TSV output is stored completely in `source`
};

class PairWriter {
 public:
  explicit PairWriter(const PairTextOutput& out);  // UserError: no output named, or the same one twice
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

}  // namespace lmx::data
