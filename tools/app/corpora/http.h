// One HTTP transfer into a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lmx::data {

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
// Follows redirections.
Transfer transfer(const Request& request);

}  // namespace lmx::data
