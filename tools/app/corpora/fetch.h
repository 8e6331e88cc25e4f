// Downloading the corpora of the registry (lmx data fetch).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lmx {

// A file that a corpus's origin offers.
struct Download {
  std::string url;
  std::string file;         // its name below the corpus's folder
  std::string unpack = "";  // gz (one file: its name without .gz), tar (also .tar.gz); "": it is used as it is
  int64_t strip = 0;        // leading folders left out of a tar's names
  int64_t bytes = 0;        // where a public source states it; 0: as the server says
  std::string sha256 = "";  // where a public source states it; "": recorded at the first download
  // Of a tar: SGML files in it (WMT's test sets), and the files of the corpus's folder that get a line a segment.
  std::vector<std::pair<std::string, std::string>> segments = {};
};
// Empty for corpora that have to be got by hand.
std::vector<Download> downloads_of(const std::string& corpus);

struct FetchOptions {
  std::string directory;       // the folder to fill; "": the corpus's below the first data directory
  bool keep_archives = false;  // what was unpacked stays
  int64_t attempts = 8;        // failures in a row without a byte between them that are put up with
  double wait_s = 1;           // before the second attempt; doubles, to a minute
  double stall_s = 60;         // without a byte count as a broken connection
};
struct FetchReport {
  std::string directory;
  int64_t bytes = 0;               // downloaded now
  std::vector<std::string> files;  // one line each: name, bytes, SHA-256 and what that was compared with
  std::string missing;             // what has to be got by hand besides; "": nothing
};

// Downloads one file to `path`: into path.part, which a later call goes on with; renamed once size and checksum are
// right. Connections that break are taken up where they ended (a server that ignores that sends all of it again).
// RunError: the server's answer, a broken connection, a full disk, a size or checksum that differs; but for the last
// the part stays. Returns the bytes that came over the net.
int64_t download(const Download& what, const std::string& path, const FetchOptions& options);
// All files of a corpus, checked and unpacked; what is there already is left alone. UserError: no such corpus, or one
// that has to be got by hand (the message says how).
FetchReport fetch_corpus(const std::string& name, const FetchOptions& options);
// The same for a list of files; `source` says in messages where they come from.
FetchReport fetch_files(std::span<const Download> files, const FetchOptions& options);

}  // namespace lmx
