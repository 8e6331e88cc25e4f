// The functions on child processes and on regular expressions that test.h declares.
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <limits>
#include <regex>

namespace lmx_test {

pid_t start_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    _exit(body());
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
  } catch (...) {
  }
  _exit(255);
}
int exit_code_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<Match> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<Match> all;
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
    all.emplace_back(at->begin(), at->end());
  return all;
}
Match first_match(const std::string& text, const std::string& pattern) {
  std::smatch found;
  std::regex_search(text, found, std::regex(pattern));
  return {found.begin(), found.end()};
}
std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern), by);
}
size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}
double number_behind(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? std::numeric_limits<double>::quiet_NaN()
                                 : std::stod(text.substr(at + name.size() + 2));
}
double number_in(const std::string& text, const std::string& pattern) {
  const Match found = first_match(text, pattern);
  if (found.size() > 1) return std::stod(found[1]);
  ADD_FAILURE() << "'" << pattern << "' is not in:\n" << text;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lmx_test
