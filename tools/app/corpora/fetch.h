// Downloads the corpora of the registry (lmx data fetch), each file by one HTTP transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lmx::app {

// A file that the public source of a corpus offers.
struct Download {
  std::string url;
  std::string file;         // its name in the corpus's folder
  std::string unpack = "";  // gz (one file: its name without .gz), tar (also .tar.gz); "": no unpacking
  int64_t strip = 0;        // number of leading folders that are removed from a tar's names
  int64_t bytes = 0;        // if a public source states it; 0: as reported by the server
  std::string sha256 = "";  // if a public source states it; "": recorded at the first download
  // For a tar: SGML files in it (WMT's test sets), and the output files in the corpus's folder, with one line per
  // segment.
  std::vector<std::pair<std::string, std::string>> segments = {};
};
// Returns the files of a corpus; empty if it must be obtained manually.
std::vector<Download> downloads_of(const std::string& corpus);

struct FetchOptions {
  std::string directory;       // the folder to fill; "": the corpus's folder in the first data directory
  bool keep_archives = false;  // do not delete archives after unpacking
  int64_t attempts = 8;        // permitted number of consecutive failures without new bytes
  double wait_s = 1;           // before the second attempt; doubles, to a minute
  double stall_s = 60;         // this time without a byte counts as a broken connection
};
struct FetchReport {
  std::string directory;
  int64_t bytes = 0;               // downloaded by this call
  std::vector<std::string> files;  // one line each: name, bytes, SHA-256 and how it was verified
  std::string missing;             // the part that must be obtained manually in addition; "": nothing
};

// Downloads one file to path.part, which a later call continues, and renames it to `path` when size and checksum are
// correct. A broken connection is resumed at its last byte (some servers ignore this and send the whole file again).
// Returns the number of bytes that were transferred. RunError: an error of the server, a broken connection, a full
// disk, a wrong size or checksum. The part is kept, except after a wrong size or checksum.
int64_t download(const Download& what, const std::string& path, const FetchOptions& options);
// Downloads, checks and unpacks all files of a corpus. Existing files are left unchanged. UserError: no such corpus, or
// one that must be obtained manually (the message describes how).
FetchReport fetch_corpus(const std::string& name, const FetchOptions& options);
// The same for a list of files.
FetchReport fetch_files(std::span<const Download> files, const FetchOptions& options);

// One HTTP transfer into a file.

struct Transfer {
  int64_t received = 0;     // bytes written by this transfer
  int64_t total = -1;       // of the whole file, as reported by the server; -1: not reported
  long status = 0;          // of HTTP; 0 if no answer was received
  std::string validator;    // ETag, otherwise Last-Modified: shows whether the file has changed
  std::string error;        // "": the transfer was completed
  std::string write_error;  // why no more data could be written (a full disk)
};

struct Request {
  std::string url;
  std::string path;       // data is appended; emptied first if the server sends the whole file
  int64_t offset = 0;     // bytes that `path` already has
  std::string validator;  // received with these bytes; "": unknown
  double stall_s = 60;
  std::function<void(int64_t now, int64_t total)> progress;  // bytes of the file; may throw, which ends the transfer
};

// Continues at `offset` if the server supports it and the file has not changed, otherwise starts from the beginning.
// Follows redirections. RunError: no certificate that this machine trusts, which another attempt would not change.
Transfer transfer(const Request& request);

// Returns the file of the certificates that this machine trusts: SSL_CERT_FILE, or the first that exists of the files
// of Debian, Fedora and RHEL, SUSE, and Arch and Alpine. A libcurl that comes with lmx knows Debian's alone. Returns ""
// if there is none. The files are searched below `root`.
std::string certificates(const std::string& root = "");

}  // namespace lmx::app
