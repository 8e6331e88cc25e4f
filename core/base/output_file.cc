#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx {

namespace {

namespace fs = std::filesystem;

// The path to which a chain of symbolic links leads; nothing has to exist there.
fs::path end_of_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as in Linux
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / next;
  }
  return path;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A name has at most 255 bytes.
std::string temporary_name(const fs::path& target, int number) {
  constexpr size_t kMostOfName = 200;
  return (folder_of(target) / str(target.filename().string().substr(0, kMostOfName), ".tmp-", number)).string();
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_standard_output(const struct stat& file) {
  struct stat out {};
  return fstat(STDOUT_FILENO, &out) == 0 && is_same(file, out);
}

// False for a file that only its descriptor reaches: the link /proc/self/fd/5 then leads to a name that does not exist.
bool has_name(const struct stat& file, const fs::path& name) {
  struct stat there {};
  return stat(name.c_str(), &there) == 0 && is_same(file, there);
}

// A process holds a lock on its temporary file, so one without a lock belongs to a process that has ended. The
// name is compared after the lock: the owner may have renamed the file meanwhile, and a new file may have its name.
void remove_leftover(const std::string& name) {
  const int file = open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat opened {};
  const bool dead = fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0;
  if (dead && has_name(opened, name)) unlink(name.c_str());
  ::close(file);
}

// Creates a file that did not exist, and locks it. Returns -1 if the name is in use or cannot be made (errno).
int create_locked(const std::string& name) {
  const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  struct stat made {};
  if (file < 0 || flock(file, LOCK_EX) != 0 || fstat(file, &made) != 0 || made.st_nlink > 0) return file;
  ::close(file);  // another process took it for a leftover before it was locked
  errno = EEXIST;
  return -1;
}

}  // namespace

Temporary make_temporary(const std::string& target, const std::function<void(const std::string&)>& remove,
                         const std::function<int(const std::string&)>& create) {
  constexpr int kMostAtOnce = 8;  // so many processes rarely write one target at the same time
  for (int number = 0; number < kMostAtOnce; ++number) remove(temporary_name(target, number));
  for (int number = 0;; ++number) {
    const std::string name = temporary_name(target, number);
    const int descriptor = create(name);
    if (descriptor >= 0 || errno != EEXIST) return {name, descriptor};
  }
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat now {};
  const bool exists = path_ != "-" && stat(path_.c_str(), &now) == 0;
  if (path_ != "-" && !exists && errno != ENOENT) fail("create");
  if (path_ == "-" || (exists && is_standard_output(now)))
    descriptor_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  else if (exists && (!S_ISREG(now.st_mode) || !has_name(now, end_of_links(path_))))
    descriptor_ = open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  else
    create_temporary();
  if (descriptor_ < 0) fail("write");
  if (!exists || temporary_.empty()) return;
  // Only root can keep another owner. Without that, the file is the caller's.
  if (fchown(descriptor_, now.st_uid, now.st_gid) == 0 || now.st_uid == geteuid())
    fchmod(descriptor_, now.st_mode & 07777);
}

void OutputFile::create_temporary() {
  target_ = end_of_links(path_).string();
  const Temporary made = make_temporary(target_, remove_leftover, create_locked);
  if (made.descriptor < 0) fail("create");
  temporary_ = made.path;
  descriptor_ = made.descriptor;
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string OutputFile::keep_part() {
  if (temporary_.empty() || lseek(descriptor_, 0, SEEK_CUR) == 0) return "";
  target_ += ".part";
  close();
  return target_;
}

void OutputFile::fail(const char* what) const {
  throw RunError(
      str("[data] cannot ", what, " ", path_ == "-" ? "standard output" : path_, ": ", std::strerror(errno)));
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

void OutputFile::sync() {
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail("write");  // EINVAL: a device or a pipe, which has no disk
}

void OutputFile::close() {
  sync();
  if (!temporary_.empty()) {
    if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("write");
    temporary_.clear();
    sync_directory(folder_of(target_).string());
  }
  const int status = ::close(descriptor_);
  descriptor_ = -1;
  if (status != 0) fail("write");
}

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

void write_lines(OutputFile& out, const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError&) {
    const std::string part = out.keep_part();
    if (!part.empty()) log_warn(str("[data] the lines before the error are in ", part));
    throw;
  }
  out.close();
}

void make_folder(const std::string& path, const std::string& prefix) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw RunError(str(prefix, "cannot create ", path, ": ", error.message()));
}

void sync_directory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw RunError(str("[data] cannot open ", path, ": ", std::strerror(errno)));
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL)  // EINVAL: a file system that does not sync directories
    throw RunError(str("[data] cannot write the directory ", path, " to its disk: ", std::strerror(error)));
}

std::string output_problem(const std::string& path, std::string_view packing) {
  const auto problem = [&](const std::string& why) { return str("cannot write ", path, ": ", why); };
  if (path == "-") return "";
  if (path.empty()) return "the path is empty";
  for (const char* ending : {".gz", ".zst", ".bz2", ".xz"})
    if (path.ends_with(ending) && packing != ending)
      return problem(str("this output is not compressed as ", ending, "; use a name without this ending"));
  std::error_code error;
  const fs::path target = end_of_links(path);
  const std::string folder = folder_of(fs::absolute(target, error)).string();
  if (!fs::is_directory(folder, error)) return problem("there is no folder " + folder);
  if (fs::is_directory(target, error)) return problem(std::strerror(EISDIR));
  const bool replaced = !fs::exists(target, error) || fs::is_regular_file(target, error);
  if (replaced && access(folder.c_str(), W_OK | X_OK) != 0)
    return problem(str("the folder ", folder, ": ", std::strerror(errno)));
  return fs::exists(target, error) && access(path.c_str(), W_OK) != 0 ? problem(std::strerror(errno)) : "";
}

std::string target_of_output(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(end_of_links(path), error), error).string();
}

namespace {

bool is_one_regular_file(const std::string& a, int stream_a, const std::string& b, int stream_b) {
  struct stat file_a {
  }, file_b{};
  const auto look = [](const std::string& path, int stream, struct stat& file) {
    return (path == "-" ? fstat(stream, &file) : stat(path.c_str(), &file)) == 0 && S_ISREG(file.st_mode);
  };
  return look(a, stream_a, file_a) && look(b, stream_b, file_b) && is_same(file_a, file_b);
}

}  // namespace

bool is_same_file(const std::string& output, const std::string& input) {
  return is_one_regular_file(output, STDOUT_FILENO, input, STDIN_FILENO);
}

bool is_same_output(const std::string& a, const std::string& b) {
  std::error_code error;
  const bool appears = a != "-" && !fs::exists(a, error) && target_of_output(a) == target_of_output(b);
  return appears || is_one_regular_file(a, STDOUT_FILENO, b, STDOUT_FILENO);
}

}  // namespace lmx
