// The lines that a run logs before it has a folder.
#pragma once

namespace lmx {

// During its lifetime, lines that are logged while no log file is set are kept, with their times. set_log_file() writes
// them into the file before all later lines. Lines that no file has received are dropped at the end. There is at most
// one object in a process.
class EarlyLog {
 public:
  EarlyLog();
  ~EarlyLog();
  EarlyLog(const EarlyLog&) = delete;
  EarlyLog& operator=(const EarlyLog&) = delete;
};

}  // namespace lmx
