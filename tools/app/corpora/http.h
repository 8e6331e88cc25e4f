// One HTTP transfer into a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lmx::data {

struct Transfer {
  int64_t received = 0;     // bytes written by this transfer
  int64_t total = -1;       // of the whole file, as the server says; -1: it does not
  long status = 0;          // HTTP's; 0 where no answer came
  std::string validator;    // ETag, else Last-Modified: what tells whether the file is still the same
  std::string error;        // "": the transfer came to its end
  std::string write_error;  // why nothing more could be written (a full disk)
};

struct Request {
  std::string url;
  std::string path;       // appended to; emptied first when the server sends the file from its beginning
  int64_t offset = 0;     // bytes that `path` has
  std::string validator;  // that came with them; "": none is known
  double stall_s = 60;
  std::function<void(int64_t now, int64_t total)> progress;  // bytes of the file; may throw, which ends the transfer
};

// Goes on at `offset` where the server can and the file has not changed, else starts again. Redirections are followed.
Transfer transfer(const Request& request);

}  // namespace lmx::data
