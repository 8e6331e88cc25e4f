// Runs the built command as a separate process, without a shell.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <sstream>

#include "test.h"

namespace lmx_test {

using Words = std::vector<std::string>;

// The words of both lists, one after the other.
inline Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
};

// GoogleTest prints this if an outcome is not the expected one.
inline void PrintTo(const Outcome& o, std::ostream* out) {
  *out << "exit code " << o.code << ", stdout:\n" << o.out << "\nstderr:\n" << o.err;
}

// Matches an outcome with this exit code whose `stream` names each of `facts`, if these are texts, or matches all of
// them, if they are matchers.
template <class... Facts>
testing::Matcher<const Outcome&> ended(int code, std::string Outcome::*stream, const Facts&... facts) {
  const auto has_code = testing::Field("code", &Outcome::code, code);
  if constexpr (sizeof...(Facts) == 0)
    return has_code;
  else if constexpr ((std::is_constructible_v<std::string, const Facts&> && ...))
    return AllOf(has_code, testing::Field("stream", stream, Names(facts...)));
  else
    return AllOf(has_code, testing::Field("stream", stream, AllOf(facts...)));
}

// A text has one error, at the beginning of a line.
MATCHER(HasOneError, "has one error") {
  return count_of("\n" + arg, "\nerror: ") == 1 && count_of(arg, "error: ") == 1;
}

// Matchers for what a command does, such as EXPECT_THAT(run_lmx({"run", "x.yaml"}), Refuses("x.yaml:3:1", "'cells'")).
// Succeeds(): exit code 0. Prints(), Warns(): the same, and stdout or stderr as `facts` say. Fails(): exit code 1, and
// stderr with one error. Refuses(): exit code 2, that of wrong input, and stderr with one error.
inline testing::Matcher<const Outcome&> Succeeds() {
  return ended(0, &Outcome::out);
}
template <class... Facts>
auto Prints(const Facts&... facts) {
  return ended(0, &Outcome::out, facts...);
}
template <class... Facts>
auto Warns(const Facts&... facts) {
  return ended(0, &Outcome::err, facts...);
}
template <class... Facts>
auto Fails(const Facts&... facts) {
  return AllOf(ended(1, &Outcome::err, facts...), testing::Field("err", &Outcome::err, HasOneError()));
}
template <class... Facts>
auto Refuses(const Facts&... facts) {
  return AllOf(ended(2, &Outcome::err, facts...), testing::Field("err", &Outcome::err, HasOneError()));
}

// `environment` is added to the environment of this process.
inline Outcome run_process(const Words& command, const std::map<std::string, std::string>& environment = {}) {
  const TempFolder folder;
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  Words settings;
  for (char** e = environ; *e; ++e) {
    const std::string setting = *e;
    if (!environment.contains(setting.substr(0, setting.find('=')))) settings.push_back(setting);
  }
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (std::string& s : settings) envp.push_back(s.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string out = folder.path("out"), err = folder.path("err");
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  Outcome outcome;
  if (failed == 0) {
    int status = 0;
    waitpid(pid, &status, 0);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = read_file(out);
    outcome.err = read_file(err);
  } else {
    ADD_FAILURE() << "cannot start " << command[0];
  }
  return outcome;
}

// `settings` with sanitizers that leave crashes to the process's own handlers; otherwise they end it with their report.
inline std::map<std::string, std::string> crashes_unhandled(std::map<std::string, std::string> settings) {
  for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"})
    settings[name] = std::string(std::getenv(name) ? std::getenv(name) : "") + ":handle_segv=0:handle_abort=0";
  return settings;
}

inline Outcome run_lmx(Words arguments, const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin(), build_path("/bin/lmx"));
  return run_process(arguments, environment);
}

}  // namespace lmx_test
