// Runs lmx on a terminal instead of pipes.
#pragma once

#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "paths.h"

namespace lmx_test {

struct TerminalOutcome {
  int code = -1;     // exit code; -1: it was ended by a signal
  std::string text;  // as the terminal received it, with "\r\n" at the end of lines
};

// The terminal has `columns` columns and supports colours. `settings`: environment variables. lmx gets SIGTERM as soon
// as `enough` holds for the text.
inline TerminalOutcome run_on_terminal(std::vector<std::string> words,
                                       const std::map<std::string, std::string>& settings, unsigned short columns = 80,
                                       const std::function<bool(const std::string&)>& enough = {}) {
  winsize size{};
  size.ws_col = columns;
  size.ws_row = 40;
  int terminal = -1, inside = -1;
  if (openpty(&terminal, &inside, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty failed");
  const pid_t child = fork();
  if (child == 0) {
    // It is not the controlling terminal: the kernel may discard what was not read from it when its session ends.
    for (const int stream : {0, 1, 2}) dup2(inside, stream);
    close(inside);
    close(terminal);
    setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    words.insert(words.begin(), build_path("/bin/lmx"));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(inside);
  TerminalOutcome outcome;
  char part[4096];
  bool told = !enough;
  for (ssize_t n; (n = read(terminal, part, sizeof part)) > 0;) {
    outcome.text.append(part, static_cast<size_t>(n));
    if (told || !enough(outcome.text)) continue;
    kill(child, SIGTERM);
    told = true;
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace lmx_test
