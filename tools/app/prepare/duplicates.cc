#include "app/prepare/prepare.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <tuple>

#include "lmx/error.h"

namespace lmx::data {
namespace {

constexpr size_t kParts = 256;    // parts by the first byte of the hash; each is sorted in memory
constexpr size_t kBuffer = 1024;  // strings of a part that are kept in memory before they are written

struct Entry {
  uint64_t high, low;
  int64_t line;
  bool same_text(const Entry& other) const { return high == other.high && low == other.low; }
  bool operator<(const Entry& other) const {
    return std::tie(high, low, line) < std::tie(other.high, other.low, other.line);
  }
};
static_assert(sizeof(Entry) == 24);

struct Part {
  std::mutex mutex;
  std::vector<Entry> waiting;
  int file = -1;  // without a name; made when the first buffer is full
  int64_t written = 0;
  int64_t last_line = -1;
};

}  // namespace

struct DuplicateFinder::Impl {
  std::string directory;
  std::array<Part, kParts> parts;
  [[noreturn]] void fail(const char* what) const {
    throw RunError(str("[data] cannot ", what, " a temporary file in ", directory, ": ", std::strerror(errno)));
  }
  void spill(size_t index);
  std::vector<Entry> collect(size_t index);
};

DuplicateFinder::DuplicateFinder(std::string directory) : impl_(std::make_unique<Impl>()) {
  impl_->directory = std::move(directory);
}

DuplicateFinder::~DuplicateFinder() {
  for (const Part& part : impl_->parts)
    if (part.file >= 0) close(part.file);
}

void DuplicateFinder::Impl::spill(size_t index) {
  Part& part = parts[index];
  if (part.file < 0) {
    std::string name = directory + "/duplicates-XXXXXX";
    part.file = mkostemp(name.data(), O_CLOEXEC);
    if (part.file < 0) fail("create");
    unlink(name.c_str());
  }
  const auto bytes = std::as_bytes(std::span(part.waiting));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(part.file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) fail("write");
    done += n > 0 ? static_cast<size_t>(n) : 0;
  }
  part.written += static_cast<int64_t>(part.waiting.size());
  part.waiting.clear();
}

void DuplicateFinder::add(std::string_view text, int64_t line) {
  const XXH128_hash_t h = XXH3_128bits(text.data(), text.size());
  const size_t index = h.high64 >> 56;
  Part& part = impl_->parts[index];
  const std::lock_guard lock(part.mutex);
  part.waiting.push_back({h.high64, h.low64, line});
  part.last_line = std::max(part.last_line, line);
  if (part.waiting.size() >= kBuffer) impl_->spill(index);
}

std::vector<Entry> DuplicateFinder::Impl::collect(size_t index) {
  Part& part = parts[index];
  std::vector<Entry> entries(static_cast<size_t>(part.written));
  const auto bytes = std::as_writable_bytes(std::span(entries));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(part.file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n <= 0) fail("read");
    done += static_cast<size_t>(n);
  }
  entries.insert(entries.end(), part.waiting.begin(), part.waiting.end());
  return entries;
}

std::vector<bool> DuplicateFinder::finish() {
  int64_t last = -1;
  for (const Part& part : impl_->parts) last = std::max(last, part.last_line);
  std::vector<bool> repeated(static_cast<size_t>(last + 1));
  for (size_t p = 0; p < kParts; ++p) {
    std::vector<Entry> entries = impl_->collect(p);
    std::sort(entries.begin(), entries.end());
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].same_text(entries[i - 1])) repeated[static_cast<size_t>(entries[i].line)] = true;
  }
  return repeated;
}

}  // namespace lmx::data
