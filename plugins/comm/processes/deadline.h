// A time limit for operations that have none in the library of messages: to join and to leave a job, every rank waits
// for all others.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lmx::processes {

// Text for a warning after `seconds`: it describes why the wait is long. `text` is called in another thread.
struct WaitNote {
  double seconds = 0;
  std::function<std::string()> text = {};
};

// Ends the process with exit code 1 and `message` of the group `name` if it still exists after `seconds`; 0: never.
// Time in which the process was stopped does not count.
class Deadline {
 public:
  Deadline(double seconds, const std::string& name, const std::string& message, const WaitNote& note = {});
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  // Returns false if the operation has come to its end after `seconds` or before.
  bool lasts(double seconds);

  std::mutex mutex_;
  std::condition_variable met_changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace lmx::processes
