#include "data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/hex.h"
#include "base/sha256.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// $variable/lmx, else ~/fallback/lmx.
std::string user_folder(const char* variable, const char* fallback) {
  const std::string base = environment(variable);
  if (!base.empty() && base[0] == '/') return base + "/lmx";
  const std::string home = environment("HOME");
  if (home.empty())
    throw UserError(str("[data] neither ", variable, " nor HOME is set; set LMX_CACHE_DIR and LMX_DATA_DIR"));
  return str(home, "/", fallback, "/lmx");
}

}  // namespace

struct InputFile::Impl {
  std::string path;
  int descriptor = -1;
  gzFile gz = nullptr;
};

InputFile::InputFile(const std::string& path, bool decompress) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->descriptor = path == "-" ? fcntl(0, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (impl_->descriptor < 0) throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
  if (decompress && path.ends_with(".gz")) {
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

size_t InputFile::read_some(char* buffer, size_t bytes) {
  const size_t step = std::min<size_t>(bytes, 1u << 30);
  for (;;) {
    const auto n = impl_->gz ? static_cast<ssize_t>(gzread(impl_->gz, buffer, static_cast<unsigned>(step)))
                             : ::read(impl_->descriptor, buffer, step);
    if (n < 0 && errno == EINTR && !impl_->gz) continue;
    int code = Z_OK;
    const char* why = impl_->gz ? gzerror(impl_->gz, &code) : "";
    // zlib hands out what it could decompress of a truncated file and says so only in its error state.
    if (impl_->gz && (n < 0 || code == Z_BUF_ERROR)) {
      throw UserError(str("[data] ", impl_->path, " is a damaged or truncated gzip file: ", why));
    }
    if (n < 0) throw RunError(str("[data] cannot read ", impl_->path, ": ", std::strerror(errno)));
    return static_cast<size_t>(n);
  }
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

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail(const char* what) const {
  throw RunError(str("[data] cannot ", what, " ", path_, ": ", std::strerror(errno)));
}

void OutputFile::write(const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(descriptor_, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void OutputFile::write_at(const void* bytes, size_t size, int64_t position) {
  if (pwrite(descriptor_, bytes, size, position) != static_cast<ssize_t>(size)) fail("write");
}

void OutputFile::close() {
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail("write");  // EINVAL: a device or a pipe, which has no disk
  const int status = ::close(descriptor_);
  descriptor_ = -1;
  if (status != 0) fail("write");
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.close();
}

std::string read_file(const std::string& path, bool decompress) {
  InputFile file(path, decompress);
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = file.read(buffer, sizeof buffer)) text.append(buffer, n);
  return text;
}

void sync_directory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw RunError(str("[data] cannot open ", path, ": ", std::strerror(errno)));
  fsync(descriptor);
  ::close(descriptor);
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
  InputFile file(path, false);
  Sha256 sum;
  std::string buffer(1 << 20, '\0');
  while (const size_t n = file.read(buffer.data(), buffer.size())) sum.add({buffer.data(), n});
  return sum.digest();
}

std::string default_cache_directory() {
  const std::string own = environment("LMX_CACHE_DIR");
  return own.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : own;
}

std::vector<std::string> data_directories() {
  const std::string own = environment("LMX_DATA_DIR");
  if (own.empty()) return {user_folder("XDG_DATA_HOME", ".local/share")};
  std::vector<std::string> folders;
  for (size_t at = 0; at <= own.size();) {
    const size_t end = std::min(own.find(':', at), own.size());
    if (end > at) folders.push_back(own.substr(at, end - at));
    at = end + 1;
  }
  return folders;
}

}  // namespace lmx::data
