#include "lmx/last_words.h"

#include <exception>
#include <mutex>
#include <utility>

namespace lmx {
namespace {

std::mutex g_mutex;
std::function<void(const std::string&)> g_note;

}  // namespace

LastWords::LastWords(std::function<void(const std::string& reason)> note) {
  const std::lock_guard lock(g_mutex);
  g_note = std::move(note);
}

LastWords::~LastWords() {
  const std::lock_guard lock(g_mutex);
  g_note = nullptr;
}

void say_last_words(const std::string& reason) {
  const std::lock_guard lock(g_mutex);
  try {
    if (g_note) g_note(reason);
  } catch (const std::exception&) {  // a full disk: the reason was already printed to stderr
  }
}

}  // namespace lmx
