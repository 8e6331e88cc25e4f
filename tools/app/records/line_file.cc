#include "app/records/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lmx/error.h"

namespace lmx_cli::jobs {

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> read_lines(const std::string& path) {
  const std::string text = read_text(path);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  if (begin < text.size() && truncate(path.c_str(), static_cast<off_t>(begin)) != 0)
    throw lmx::RunError(lmx::str("[jobs] cannot write ", path, ": ", std::strerror(errno)));
  return lines;
}

void append_line(const std::string& path, const std::string& line) {
  const std::string text = line + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  errno = 0;
  const bool whole =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
  const int reason = errno;
  if (file >= 0) close(file);
  if (!whole)
    throw lmx::RunError(lmx::str("[jobs] cannot write ", path, ": ", reason ? std::strerror(reason) : "disk full"));
}

}  // namespace lmx_cli::jobs
