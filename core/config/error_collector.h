// Errors of independent checks, collected so that they are reported together.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lmx/error.h"

namespace lmx {

// A UserError that holds several messages. what() counts them and has a line for each; if there is only one, what() is
// that message.
class CollectedErrors : public UserError {
 public:
  // `what`: the noun for the messages, such as "unknown keys".
  CollectedErrors(std::vector<std::string> messages, const std::string& what);
  ~CollectedErrors() override;
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

// Throws a UserError with the message if there is only one, otherwise CollectedErrors.
[[noreturn]] void fail_together(const std::vector<std::string>& messages, const std::string& what);

// The messages of a CollectedErrors, or the message of any other UserError.
std::vector<std::string> messages_of(const UserError& error);

// Collects the UserErrors of independent checks.
class ErrorCollector {
 public:
  // Runs `check`. If it throws a UserError, stores the error and returns false.
  template <class Check>
  bool keep(const Check& check) {
    try {
      check();
      return true;
    } catch (const UserError& e) {
      add(e);
      return false;
    }
  }
  const std::vector<std::string>& messages() const { return messages_; }
  void throw_any() const;  // throws the stored error or CollectedErrors; does nothing if there is none

 private:
  void add(const UserError& e);  // the exception being handled

  std::exception_ptr first_;
  size_t errors_ = 0;
  std::vector<std::string> messages_;
};

}  // namespace lmx
