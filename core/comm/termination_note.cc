#include "lmx/launch.h"

#include <exception>
#include <mutex>
#include <utility>

namespace lmx {
namespace {

std::mutex g_mutex;
std::function<void(const std::string&)> g_note;

}  // namespace

TerminationNote::TerminationNote(std::function<void(const std::string& reason)> note) {
  const std::lock_guard lock(g_mutex);
  g_note = std::move(note);
}

TerminationNote::~TerminationNote() {
  const std::lock_guard lock(g_mutex);
  g_note = nullptr;
}

void leave_termination_note(const std::string& reason) {
  const std::lock_guard lock(g_mutex);
  try {
    if (g_note) g_note(reason);
  } catch (const std::exception&) {  // a full disk: the reason was already printed to stderr
  }
}

}  // namespace lmx
