// Pairs to text files that appear complete or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "app/prepare/pair_reader.h"
#include "app/prepare/parallel_text.h"

namespace lmx::data {

// The pairs of a chunk as the output files hold them: made by any thread, appended in order.
struct PairBlock {
  std::string source, target;  // of TSV output all is in `source`
};

class PairWriter {
 public:
  explicit PairWriter(const PairTextOutput& out);  // UserError: no output named, or one twice
  ~PairWriter();                                   // without finish() nothing remains
  void add(PairBlock& block, std::string_view source, std::string_view target) const;
  void seal(PairBlock& block) const;  // compresses what goes into .gz
  void append(const PairBlock& block);
  void finish();

 private:
  struct File;
  std::unique_ptr<File> source_, target_;
  bool tsv_ = false;
};

// Files that a command line names, as find_parallel finds a recipe's. UserError: not as many of both sides ...
std::vector<PairFiles> find_pair_files(const PairTextFiles& in);

}  // namespace lmx::data
