// The registry of known corpora: descriptions, public sources, and locations on this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/error_collector.h"
#include "lmx/config.h"

namespace lmx::app {

// One language of a parallel corpus: line i of its files translates line i of the other side's files.
struct CorpusSide {
  std::string language;                         // "en"
  std::vector<std::string> train, valid, test;  // file patterns below `folder`
  int64_t column = 0;  // of TSV files that contain both sides, from 1; 0: separate files for this side
};

struct Corpus {
  std::string name;    // value of `data.corpus` for this corpus
  std::string what;    // one line
  std::string source;  // the public origin
  std::string licence;
  std::string get;     // how to get it, one line
  std::string folder;  // below a data directory
  // File patterns below `folder`. If valid or test have no files, they are sampled from train's lines.
  std::vector<std::string> train = {}, valid = {}, test = {};
  std::string format = "text";      // text: one sentence or paragraph a line; csv: labelled sentences; jsonl: objects;
                                    // parallel: only `sides`
  std::string field = "";           // column or field that contains the text (csv and jsonl)
  std::string tokenizer = "rules";  // whitespace: the text is already tokenized
  std::vector<CorpusSide> sides = {};  // parallel corpus: two, the usual source first; otherwise empty
  std::string joiner = "";             // parallel text in subwords: end of a piece that is not the last of its word
  std::vector<std::pair<std::string, std::string>> sha256 = {};  // of files in `folder`; empty: recorded at first use
  std::string archive_sha256 = "";                               // of the download, if a public source states it
};

// Sorted by name.
std::span<const Corpus> corpora();
// UserError, which begins with `place`: no such corpus; the message suggests the nearest name.
const Corpus& find_corpus(const std::string& name, const std::string& place = "[data] ");

// The location of a corpus on this machine: in LMX_DATA_DIR (several folders, separated by ':'), otherwise in
// $XDG_DATA_HOME/lmx, otherwise in ~/.local/share/lmx.
struct CorpusPlace {
  std::string directory;              // "" if it is missing
  std::vector<std::string> searched;  // folders that were looked at
  std::string problem;  // "" if present; otherwise one line: what is missing, the searched folders, how to get it
};
CorpusPlace locate(const Corpus& corpus);

// Finds a corpus that a recipe uses.

// A corpus of the registry is missing on this machine. `messages` contains also all other errors that were found with
// it.
class CorpusMissing : public CollectedErrors {
 public:
  explicit CorpusMissing(std::vector<std::string> messages) : CollectedErrors(std::move(messages), "mistakes") {}
};

// CorpusMissing: it was not found; the message contains the searched folders, and how to get it.
inline std::string directory_of(const Corpus& corpus) {
  CorpusPlace place = locate(corpus);
  if (!place.problem.empty()) throw CorpusMissing({"[data] " + place.problem});
  return std::move(place.directory);
}

// The patterns of all files of a corpus in this folder.
std::vector<std::string> patterns_of(const Corpus& corpus, const std::string& directory);

// Folders for data and caches on this machine.

// Returns the folder of prepared data: LMX_CACHE_DIR, otherwise $XDG_CACHE_HOME/lmx, otherwise ~/.cache/lmx.
std::string default_cache_directory();
// Returns the folders that may contain corpora: those of LMX_DATA_DIR (separated by ':'), otherwise $XDG_DATA_HOME/lmx
// or ~/.local/share/lmx.
std::vector<std::string> data_directories();

}  // namespace lmx::app
