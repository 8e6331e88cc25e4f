#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/hex.h"
#include "base/sha256.h"
#include "lmx/error.h"

namespace lmx {

namespace fs = std::filesystem;

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
    // zlib returns the part of a truncated file that it could decompress, and reports the truncation only in its error
    // state.
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
  if (fsync(descriptor_) != 0 && errno != EINVAL)
    fail("write");  // EINVAL: a device or a pipe, which is not stored on
                    // a disk
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

void replace_atomically(const std::string& path, const std::function<void(const std::string&)>& write) {
  const std::string temporary = str(path, ".tmp-", getpid());
  std::error_code error;
  try {
    write(temporary);
    fs::rename(temporary, path);
  } catch (const fs::filesystem_error& e) {
    fs::remove(temporary, error);
    throw RunError(str("[write] cannot replace ", path, ": ", e.code().message()));
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
  const std::string folder = fs::path(path).parent_path().string();
  sync_directory(folder.empty() ? "." : folder);
}

void write_file_atomically(const std::string& path, const std::string& content) {
  replace_atomically(path, [&](const std::string& temporary) { write_file(temporary, content); });
}

void require_writable(const std::string& what, const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw UserError(str(what, ": cannot write ", path, ": ", why)); };
  std::error_code error;
  const std::string folder = fs::absolute(path, error).parent_path().string();
  if (!fs::is_directory(folder, error)) refuse("there is no folder " + folder);
  if (fs::is_directory(path, error)) refuse(std::strerror(EISDIR));
  const bool there = fs::exists(path, error);
  if (access(there ? path.c_str() : folder.c_str(), W_OK) != 0) refuse(std::strerror(errno));
}

}  // namespace lmx
