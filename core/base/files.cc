#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "lmx/error.h"

namespace lmx {
namespace {

// Decompresses gzip and zstd while a file is read.
class Unpacker {
 public:
  // Reads the next compressed bytes: at least one, or 0 at the end.
  using Source = std::function<size_t(char* buffer, size_t bytes)>;
  virtual ~Unpacker() = default;
  // Returns some decompressed bytes, at least one; 0 at the end. UserError: the file is damaged or truncated.
  virtual size_t read_some(char* buffer, size_t bytes) = 0;

  // Returns whether `first` may be the start of a compressed file; `whole`: whether it is long enough to be one.
  static bool may_begin(std::string_view first);
  static bool whole(std::string_view first);
  // `first`: the first bytes of the file, which `source` returns again; `path`: for messages. REQUIRES: whole(first).
  static std::unique_ptr<Unpacker> make(std::string_view first, Source source, const std::string& path);
};

constexpr size_t kBuffer = 1 << 18;
constexpr std::string_view kGzip = "\x1f\x8b", kZstd = "\x28\xb5\x2f\xfd", kSkippable = "\x2a\x4d\x18";

[[noreturn]] void refuse(const std::string& path, const char* format, const std::string& why) {
  throw UserError(str("[data] ", path, " is a damaged or truncated ", format, " file: ", why));
}

bool may_be(std::string_view first, std::string_view magic) {
  return first.starts_with(magic) || magic.starts_with(first);
}

// A frame that zstd skips, such as those of pzstd, begins with 0x50 to 0x5F and kSkippable.
bool may_be_skippable(std::string_view first) {
  return !first.empty() && (first[0] & 0xF0) == 0x50 && may_be(first.substr(1), kSkippable);
}

class Gzip : public Unpacker {
 public:
  Gzip(Source source, std::string path) : source_(std::move(source)), path_(std::move(path)), in_(kBuffer) {
    LMX_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, path_);  // the largest window, with gzip's header
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t read_some(char* buffer, size_t bytes) override {
    const size_t step = std::min<size_t>(bytes, 1u << 30);
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(step);
    while (stream_.avail_out == step && !ended_ && step > 0) {
      if (stream_.avail_in == 0) fill();
      if (between_ && !ended_) next_member();
      if (ended_) break;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      between_ = code == Z_STREAM_END;
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        refuse(path_, "gzip", stream_.msg ? stream_.msg : "invalid data");
    }
    return step - stream_.avail_out;
  }

 private:
  void fill() {
    const size_t n = source_(in_.data(), in_.size());
    if (n == 0 && !between_) refuse(path_, "gzip", "unexpected end of file");
    ended_ = n == 0;
    stream_.next_in = reinterpret_cast<Bytef*>(in_.data());
    stream_.avail_in = static_cast<uInt>(n);
  }
  // A file may have several members. Any other bytes after the last one are padding, as for gzip itself.
  void next_member() {
    ended_ = *stream_.next_in != static_cast<Bytef>(kGzip[0]);
    inflateReset(&stream_);
    between_ = false;
  }

  Source source_;
  std::string path_;
  std::vector<char> in_;
  z_stream stream_{};
  bool between_ = false;  // a member has ended
  bool ended_ = false;
};

class Zstd : public Unpacker {
 public:
  Zstd(Source source, std::string path) : source_(std::move(source)), path_(std::move(path)), in_(kBuffer) {}

  size_t read_some(char* buffer, size_t bytes) override {
    ZSTD_outBuffer out{buffer, bytes, 0};
    while (out.pos == 0 && bytes > 0) {
      if (next_.pos == next_.size) {
        next_ = {in_.data(), source_(in_.data(), in_.size()), 0};
        if (next_.size == 0 && left_ == 0) return 0;  // the end of the last frame
      }
      const size_t taken = next_.pos;
      left_ = ZSTD_decompressStream(stream_.get(), &out, &next_);
      if (ZSTD_isError(left_)) refuse(path_, "zstd", ZSTD_getErrorName(left_));
      if (next_.size == 0 && out.pos == 0 && next_.pos == taken) refuse(path_, "zstd", "unexpected end of file");
    }
    return out.pos;
  }

 private:
  Source source_;
  std::string path_;
  std::vector<char> in_;
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> stream_{ZSTD_createDCtx(), ZSTD_freeDCtx};
  ZSTD_inBuffer next_{nullptr, 0, 0};
  size_t left_ = 0;  // 0: a frame has ended
};

bool Unpacker::may_begin(std::string_view first) {
  return may_be(first, kGzip) || may_be(first, kZstd) || may_be_skippable(first);
}

bool Unpacker::whole(std::string_view first) {
  const bool zstd = first.size() >= kZstd.size() && (first.starts_with(kZstd) || may_be_skippable(first));
  return first.starts_with(kGzip) || zstd;
}

// Whether a file is the text that Git stores instead of a large file. A pipe is none, and nothing is taken from it.
bool is_pointer(int descriptor) {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  char first[kPointer.size()];
  return pread(descriptor, first, sizeof first, 0) == std::ssize(kPointer) &&
         kPointer == std::string_view(first, sizeof first);
}

std::unique_ptr<Unpacker> Unpacker::make(std::string_view first, Source source, const std::string& path) {
  if (first.starts_with(kGzip)) return std::make_unique<Gzip>(std::move(source), path);
  return std::make_unique<Zstd>(std::move(source), path);
}

}  // namespace

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
  if (is_pointer(impl_->descriptor))
    throw UserError(
        str("[data] ", path, " is a pointer of Git LFS, not the file itself; `git lfs pull` fetches the file"));
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
