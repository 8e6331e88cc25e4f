#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/hex.h"
#include "base/sha256.h"
#include "base/unpack.h"
#include "lmx/error.h"

namespace lmx {

struct InputFile::Impl {
  std::string path;
  int descriptor = -1;
  std::string head;       // bytes of the file that were read to recognise its compression
  bool at_start = false;  // nothing has been read: the file may be compressed
  bool marked = false;    // a byte order mark may follow
  std::string first;      // the first bytes of a text that has no mark
  int64_t skipped = 0;
  std::unique_ptr<Unpacker> unpacker;  // null: the file is not compressed

  size_t read_disk(char* buffer, size_t bytes);
  size_t read_some(char* buffer, size_t bytes);
  void look_for_compression();
  void look_for_mark();
};

InputFile::InputFile(const std::string& path, Content content) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->at_start = content != Content::bytes;
  impl_->marked = content == Content::text;
  impl_->descriptor = path == "-" ? fcntl(0, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (impl_->descriptor < 0) throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
}

InputFile::~InputFile() {
  if (impl_->descriptor >= 0) ::close(impl_->descriptor);
}

size_t InputFile::Impl::read_disk(char* buffer, size_t bytes) {
  if (!head.empty()) {
    const size_t n = head.copy(buffer, bytes);
    head.erase(0, n);
    return n;
  }
  for (;;) {
    const ssize_t n = ::read(descriptor, buffer, std::min<size_t>(bytes, 1u << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EISDIR) throw UserError(str("[data] cannot read ", path, ": it is a folder"));
    if (n < 0) throw RunError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
    return static_cast<size_t>(n);
  }
}

// Waits for a further byte only while those before it could be the start of a compressed file.
void InputFile::Impl::look_for_compression() {
  at_start = false;
  std::string found;
  char byte = 0;
  while (Unpacker::may_begin(found) && !Unpacker::whole(found) && read_disk(&byte, 1) == 1) found.push_back(byte);
  head = found;
  if (Unpacker::whole(found))
    unpacker = Unpacker::make(
        found, [this](char* buffer, size_t bytes) { return read_disk(buffer, bytes); }, path);
}

size_t InputFile::Impl::read_some(char* buffer, size_t bytes) {
  if (at_start) look_for_compression();
  return unpacker ? unpacker->read_some(buffer, bytes) : read_disk(buffer, bytes);
}

// Waits for the bytes of a mark only while those before could be its start.
void InputFile::Impl::look_for_mark() {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  marked = false;
  char byte = 0;
  while (first.size() < kMark.size() && kMark.starts_with(first) && read_some(&byte, 1) == 1) first.push_back(byte);
  if (first != kMark) return;
  skipped = static_cast<int64_t>(kMark.size());
  first.clear();
}

size_t InputFile::read_some(char* buffer, size_t bytes) {
  if (impl_->marked) impl_->look_for_mark();
  if (impl_->first.empty()) return impl_->read_some(buffer, bytes);
  const size_t n = impl_->first.copy(buffer, bytes);
  impl_->first.erase(0, n);
  return n;
}

size_t InputFile::read(char* buffer, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const size_t n = read_some(buffer + done, bytes - done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

int64_t InputFile::disk_position() const {
  return lseek(impl_->descriptor, 0, SEEK_CUR);
}

int64_t InputFile::skipped() const {
  return impl_->skipped;
}

bool is_compressed(const std::string& path) {
  InputFile file(path, Content::bytes);
  char first[4];
  return Unpacker::whole({first, file.read(first, sizeof first)});
}

std::string read_file(const std::string& path, Content content) {
  InputFile file(path, content);
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = file.read(buffer, sizeof buffer)) text.append(buffer, n);
  return text;
}

std::string hash_text(std::string_view text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  return hexadecimal({reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest});
}

std::string sha256_of_text(std::string_view text) {
  return Sha256().add(text).digest();
}

std::string sha256_of_file(const std::string& path) {
  InputFile file(path, Content::bytes);
  Sha256 sum;
  std::string buffer(1 << 20, '\0');
  while (const size_t n = file.read(buffer.data(), buffer.size())) sum.add({buffer.data(), n});
  return sum.digest();
}

FileLock::FileLock(const std::string& path, const std::string& prefix) : path_(path), prefix_(prefix) {
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw RunError(str(prefix, "cannot write ", path, ": ", std::strerror(errno)));
}

FileLock::~FileLock() {
  close(descriptor_);
}

bool FileLock::lock(int operation) {
  while (flock(descriptor_, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw RunError(str(prefix_, "cannot lock ", path_, ": ", std::strerror(errno)));
  }
  return true;
}

bool FileLock::take() {
  return lock(LOCK_EX | LOCK_NB);
}

bool FileLock::take_soon() {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (!take()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

void FileLock::wait() {
  lock(LOCK_EX);
}

bool FileLock::is_held(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return locked;
}

}  // namespace lmx
