// Mistakes that are told at once.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lmx/error.h"

namespace lmx::config {

// Several; what() counts them and has a line for each.
class SeveralMistakes : public UserError {
 public:
  SeveralMistakes(std::vector<std::string> lines, const std::string& what);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// One is thrown as it is; of several `what` is the word, such as "unknown keys".
[[noreturn]] void fail_together(const std::vector<std::string>& lines, const std::string& what);

// What several readings refuse.
class Mistakes {
 public:
  // False where `read` throws a UserError, which waits for tell().
  template <class Read>
  bool keep(const Read& read) {
    try {
      read();
      return true;
    } catch (const UserError& e) {
      add(e);
      return false;
    }
  }
  void tell() const;  // throws what waits, if anything does

 private:
  void add(const UserError& e);  // the exception being handled

  std::exception_ptr first_;
  size_t readings_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace lmx::config
