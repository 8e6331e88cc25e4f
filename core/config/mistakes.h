// Mistakes that a user is told at once.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lmx/error.h"

namespace lmx {

// A UserError that holds several messages. what() counts them and has a line for each; if there is only one, what() is
// that message.
class SeveralMistakes : public UserError {
 public:
  // `what`: the word for them, such as "unknown keys".
  SeveralMistakes(std::vector<std::string> messages, const std::string& what);
  ~SeveralMistakes() override;
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

// Throws one message as it is, several as SeveralMistakes.
[[noreturn]] void fail_together(const std::vector<std::string>& messages, const std::string& what);

// Those of SeveralMistakes, or the error's own.
std::vector<std::string> messages_of(const UserError& error);

// Collects the UserErrors of independent checks.
class Mistakes {
 public:
  // False where `check` throws a UserError, which is kept.
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
  void throw_any() const;  // what was kept: one error as it is, several as SeveralMistakes; nothing where all went well

 private:
  void add(const UserError& e);  // the exception being handled

  std::exception_ptr first_;
  size_t errors_ = 0;
  std::vector<std::string> messages_;
};

}  // namespace lmx
