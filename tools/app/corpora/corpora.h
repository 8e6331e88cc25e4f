// The registry of known corpora: what they are, where they come from, and where this machine has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lmx {

// One language of a parallel corpus: line i of its files translates line i of the other side's.
struct CorpusSide {
  std::string language;                         // "en"
  std::vector<std::string> train, valid, test;  // file patterns below `folder`
  int64_t column = 0;  // of TSV files that hold both sides, from 1; 0: files of this side alone
};

struct Corpus {
  std::string name;    // as `data.corpus` names it
  std::string what;    // one line
  std::string source;  // the public origin
  std::string licence;
  std::string get;     // how to get it, one line
  std::string folder;  // below a data directory
  // File patterns below `folder`. Without files of their own, valid and test are drawn from train's lines.
  std::vector<std::string> train, valid, test;
  std::string format = "text";      // text: one sentence or paragraph a line; csv: labelled sentences; jsonl: objects;
                                    // parallel: only `sides`
  std::string field = "";           // of csv and jsonl: what holds the text
  std::string tokenizer = "rules";  // whitespace: the text is tokenized already
  std::vector<CorpusSide> sides = {};  // two of a parallel corpus, the usual source first; else none
  std::string joiner = "";             // parallel text that is cut into subwords: what ends a piece that goes on
  std::vector<std::pair<std::string, std::string>> sha256;  // of files below `folder`; empty: recorded at first use
  std::string archive_sha256 = "";  // of what the origin offers for download, where a public source states it
};

// Sorted by name.
std::span<const Corpus> corpora();
// UserError names the nearest one.
const Corpus& find_corpus(const std::string& name);

// Where a corpus lies on this machine: LMX_DATA_DIR (several folders with ':' between them), else $XDG_DATA_HOME/lmx,
// else
// ~/.local/share/lmx.
struct CorpusPlace {
  std::string directory;              // "" when it is missing
  std::vector<std::string> searched;  // folders that were looked at
  std::string problem;  // "" when present, else one line: what is missing, where it was looked for, how to get it
};
CorpusPlace locate(const Corpus& corpus);

}  // namespace lmx
