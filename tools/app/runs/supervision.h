// The connection between an lmx that restarts a run after a failure (`lmx run --restarts N`, the supervisor) and the
// lmx that trains it. They exchange two files in a folder that only this user can open: the path of the run's folder,
// and the reason of a restart. The ranks that the training lmx starts inherit the variable that names the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace lmx::app {

// One restart of a run, as provenance.json records it.
struct Restart {
  int64_t number = 0, of = 0;  // 1, 2, ... of --restarts N
  int64_t ranks = 0;           // of --fewer-ranks; 0: the number did not change
  std::string reason;          // the failure after which the run was started again
};

// The supervisor's side. RunError: the folder cannot be created or written.
class Supervision {
 public:
  Supervision();
  ~Supervision();  // removes the folder
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  std::pair<std::string, std::string> variable() const;  // to be set in the environment of the training lmx
  std::string run() const;                               // the run's folder; "" if no start has created one yet
  void announce(const Restart& restart) const;           // for the next start

 private:
  std::string folder_;
};

// The side of the training lmx. Without a supervisor, report_run() does nothing, and restart_of_this_start() has no
// value; it also has none in the first start of a supervised run.
void report_run(const std::string& directory);
bool is_supervised();
std::optional<Restart> restart_of_this_start();

}  // namespace lmx::app
