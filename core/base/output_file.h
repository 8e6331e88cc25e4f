// The one way in which lmx writes whole files. A run's journals, which grow line by line, are written by their own
// classes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lmx {

// A file that appears under its name when it is complete. Until close(), its content is in a temporary file beside it,
// and what had the name before is unchanged, so the output of a command may be its input as well.
// - `-` is standard output.
// - A symbolic link stays, and the file that it leads to is replaced.
// - A device, a FIFO, and the file that standard output already writes to are not replaced: the bytes go to them
//   directly.
// - The permissions of a file that is replaced stay; those of a new one are what the umask leaves of 0666.
// - Temporary files that killed processes left for this name are removed. They are `name.tmp-0`, `name.tmp-1`, ...: two
//   processes may write the same file, and the last one that closes it wins.
// RunError names the path and the reason, such as a full disk.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();  // without close(), nothing appears
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(const void* bytes, size_t size, int64_t position);  // not for devices and FIFOs
  void sync();   // the content is on the disk; for two files that appear together
  void close();  // the file is on the disk under its name
  // The content so far is on the disk as `FILE.part`, whose name is returned; "" if there is no content, or if it went
  // where it belongs already.
  std::string keep_part();

 private:
  void create_temporary();
  [[noreturn]] void fail(const char* what) const;
  std::string path_;
  std::string target_;     // the file that `path_` leads to
  std::string temporary_;  // "" if the bytes go where they belong
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view text);  // the same for a whole text

// Runs `body`, which writes lines to `out`, and closes `out`. If a UserError ends it, such as a line that cannot be
// read, nothing appears under the file's name, but the lines before the error, which may be hours of work, stay in
// `FILE.part`. A warning says so.
void write_lines(OutputFile& out, const std::function<void()>& body);

// The file or folder in which a process writes until the content is complete: `target.tmp-0`, or the next number that
// is free. The names are numbered, so that leftovers are found without reading the folder, which may hold thousands of
// files.
struct Temporary {
  std::string path;
  int descriptor;  // locked while its process lives; -1 if it cannot be created (errno)
};
// `remove` deletes a file or folder of this name if the process that made it has ended. `create` returns a locked
// descriptor, or -1: another process uses the name (EEXIST), or it cannot be created.
Temporary make_temporary(const std::string& target, const std::function<void(const std::string&)>& remove,
                         const std::function<int(const std::string&)>& create);

// Creates a folder, and those above it, if there is none. RunError: `prefix`, such as "[sweep] ", and the reason.
void make_folder(const std::string& path, const std::string& prefix);

// Writes the entries of a directory to the disk. RunError.
void sync_directory(const std::string& path);

// Checks at the start that a file can be written that will be needed after long work. Returns "cannot write `path`:
// why", or "" if it can be written. A name with the ending of a compressed file is refused, except with `packing`, the
// ending for which the writer compresses.
std::string output_problem(const std::string& path, std::string_view packing = "");

// The file that writing `path` would create or replace: absolute, without links.
std::string target_of_output(const std::string& path);

// Whether writing `output` changes the regular file that `input` names, whatever the names are: links, ./a for a,
// /dev/stdin. `-` is standard output and standard input.
bool is_same_file(const std::string& output, const std::string& input);

// Whether writing both would leave the content of one only. The file need not exist.
bool is_same_output(const std::string& a, const std::string& b);

}  // namespace lmx
