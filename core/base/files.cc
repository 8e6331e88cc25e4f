#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/hex.h"
#include "base/sha256.h"
#include "lmx/error.h"

namespace lmx {

struct InputFile::Impl {
  std::string path;
  int descriptor = -1;
  gzFile gz = nullptr;
  bool at_start = false;  // a byte order mark may follow
  std::string first;      // the first bytes of a text that has no mark
  int64_t skipped = 0;

  size_t read_some(char* buffer, size_t bytes);
  void look_for_mark();
};

InputFile::InputFile(const std::string& path, Content content) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->at_start = content == Content::text;
  impl_->descriptor = path == "-" ? fcntl(0, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (impl_->descriptor < 0) throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
  if (content != Content::bytes && path.ends_with(".gz")) {
    impl_->gz = gzdopen(impl_->descriptor, "rb");
    LMX_CHECK(impl_->gz != nullptr, path);
    gzbuffer(impl_->gz, 1 << 18);
  }
}

InputFile::~InputFile() {
  if (impl_->gz)
    gzclose_r(impl_->gz);
  else if (impl_->descriptor >= 0)
    ::close(impl_->descriptor);
}

size_t InputFile::Impl::read_some(char* buffer, size_t bytes) {
  const size_t step = std::min<size_t>(bytes, 1u << 30);
  for (;;) {
    const auto n =
        gz ? static_cast<ssize_t>(gzread(gz, buffer, static_cast<unsigned>(step))) : ::read(descriptor, buffer, step);
    if (n < 0 && errno == EINTR && !gz) continue;
    int code = Z_OK;
    const char* why = gz ? gzerror(gz, &code) : "";
    // zlib returns the part of a truncated file that it could decompress, and reports the truncation only in its error
    // state.
    if (gz && (n < 0 || code == Z_BUF_ERROR)) {
      throw UserError(str("[data] ", path, " is a damaged or truncated gzip file: ", why));
    }
    if (n < 0) throw RunError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
    return static_cast<size_t>(n);
  }
}

// Waits for the bytes of a mark only while those before could be its start.
void InputFile::Impl::look_for_mark() {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  at_start = false;
  char byte = 0;
  while (first.size() < kMark.size() && kMark.starts_with(first) && read_some(&byte, 1) == 1) first.push_back(byte);
  if (first != kMark) return;
  skipped = static_cast<int64_t>(kMark.size());
  first.clear();
}

size_t InputFile::read_some(char* buffer, size_t bytes) {
  if (impl_->at_start) impl_->look_for_mark();
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
  return impl_->gz ? gzoffset(impl_->gz) : lseek(impl_->descriptor, 0, SEEK_CUR);
}

int64_t InputFile::skipped() const {
  return impl_->skipped;
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
