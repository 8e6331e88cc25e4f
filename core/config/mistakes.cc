#include "config/mistakes.h"

namespace lmx::config {
namespace {

std::string counted(const std::vector<std::string>& lines, const std::string& what) {
  std::string text = str(lines.size(), " ", what, ":");
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

}  // namespace

SeveralMistakes::SeveralMistakes(std::vector<std::string> lines, const std::string& what)
    : UserError(counted(lines, what)), lines_(std::move(lines)) {}

void fail_together(const std::vector<std::string>& lines, const std::string& what) {
  if (lines.size() == 1) throw UserError(lines[0]);
  throw SeveralMistakes(lines, what);
}

void Mistakes::add(const UserError& e) {
  if (!first_) first_ = std::current_exception();
  ++readings_;
  if (const auto* several = dynamic_cast<const SeveralMistakes*>(&e))
    lines_.insert(lines_.end(), several->lines().begin(), several->lines().end());
  else
    lines_.emplace_back(e.what());
}

void Mistakes::tell() const {
  if (readings_ == 1) std::rethrow_exception(first_);
  if (readings_ > 1) throw SeveralMistakes(lines_, "mistakes");
}

}  // namespace lmx::config
