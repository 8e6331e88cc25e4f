#include "config/error_collector.h"

#include <utility>

namespace lmx {
namespace {

std::string counted(const std::vector<std::string>& messages, const std::string& what) {
  if (messages.size() == 1) return messages[0];
  std::string text = str(messages.size(), " ", what, ":");
  for (const std::string& message : messages) text += "\n  " + message;
  return text;
}

}  // namespace

CollectedErrors::CollectedErrors(std::vector<std::string> messages, const std::string& what)
    : UserError(counted(messages, what)), messages_(std::move(messages)) {}

CollectedErrors::~CollectedErrors() = default;

void fail_together(const std::vector<std::string>& messages, const std::string& what) {
  if (messages.size() == 1) throw UserError(messages[0]);
  throw CollectedErrors(messages, what);
}

std::vector<std::string> messages_of(const UserError& error) {
  const auto* several = dynamic_cast<const CollectedErrors*>(&error);
  return several ? several->messages() : std::vector<std::string>{error.what()};
}

void ErrorCollector::add(const UserError& e) {
  if (!first_) first_ = std::current_exception();
  ++errors_;
  for (const std::string& message : messages_of(e)) messages_.push_back(message);
}

void ErrorCollector::throw_any() const {
  if (errors_ == 1) std::rethrow_exception(first_);
  if (errors_ > 1) throw CollectedErrors(messages_, "mistakes");
}

}  // namespace lmx
