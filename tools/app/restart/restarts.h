// `lmx run --restarts N`: a process that starts the run as a child and starts it again after a failure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lmx::app {

struct RestartOptions {
  int64_t restarts = 0;  // at most
  std::string resume;    // `--resume` of the first start; "" if it was not given
  // More than 0: the number of ranks of the first start, and each restart uses one less, but at least one
  // (--fewer-ranks). 0: the number stays the same.
  int64_t ranks = 0;
  // The command line of a start, without the program and without --restarts. `ranks` as above.
  std::function<std::vector<std::string>(const std::string& resume, int64_t ranks)> words;
};

// Starts the run until it ends well, and returns the exit code of its last start. A start that a signal killed, or that
// failed with exit code 1, is followed by another one, which resumes the run; unless the cause would come back (the run
// diverged or its memory was full), or the user has interrupted it: the signals of jobs::SignalNote are forwarded to
// the child. Each restart is printed, and recorded in log.txt and provenance.json of the run.
// UserError: a launcher has started this process. RunError: no restart is left, or two restarts in a row have come no
// further than the starts before them.
int run_with_restarts(const RestartOptions& options);

}  // namespace lmx::app
