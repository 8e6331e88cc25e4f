// The ustar format: blocks of 512 bytes, for each file a header and the padded content. Two extensions for long names
// are supported: those of GNU tar ('L') and pax ('x', key "path").
#include "app/corpora/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/files.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512;
using Block = std::array<char, kBlock>;

std::string field(const Block& block, size_t at, size_t size) {
  const std::string_view text(block.data() + at, size);
  return std::string(text.substr(0, text.find('\0')));
}

// Reads octal digits, or base 256 if the highest bit of the first byte is set. -1: neither.
int64_t number(const Block& block, size_t at, size_t size) {
  if (block[at] & '\x80') {
    int64_t value = block[at] & 0x3F;
    for (size_t i = 1; i < size; ++i) {
      if (value >> 54) return -1;
      value = value << 8 | static_cast<unsigned char>(block[at + i]);
    }
    return value;
  }
  std::string text = field(block, at, size);
  text.erase(0, text.find_first_not_of(' '));
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value, 8);
  return value;
}

bool checksum_right(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  return number(block, 148, 8) == sum;
}

// Returns the value of `path` in a pax header: lines "27 path=...\n".
std::string pax_path(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), length);
    if (error != std::errc() || length == 0 || at + length > text.size()) break;
    const std::string_view line(text.data() + at, length);
    const size_t key = line.find(' ') + 1;
    if (line.substr(key).starts_with("path=")) return std::string(line.substr(key + 5, length - key - 6));
    at += length;
  }
  return "";
}

// The file appears under its name only after `write` has finished.
template <class Write>
void write_whole(const std::string& path, const Write& write) {
  const std::string temporary = path + ".unpacking";
  try {
    OutputFile out(temporary);
    write(out);
    out.close();
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  fs::rename(temporary, path);
}

class TarReader {
 public:
  TarReader(const std::string& path, std::string folder) : path_(path), folder_(std::move(folder)), file_(path) {}

  std::vector<std::string> unpack(int64_t strip) {
    std::vector<std::string> names;
    for (std::string long_name; next_header();) {
      const char type = block_[156];
      if (type == 'L' || type == 'x') {
        const std::string text = content();
        long_name = type == 'L' ? std::string(text.c_str()) : pax_path(text);
        continue;
      }
      const std::string prefix = field(block_, 345, 155);
      const std::string own = (prefix.empty() ? "" : prefix + "/") + field(block_, 0, 100);
      const std::string name = target_of(long_name.empty() ? own : long_name, strip);
      long_name.clear();
      const bool regular = type == '0' || type == '\0';
      if (regular && !name.empty()) {
        extract(folder_ + "/" + name);
        names.push_back(name);
      } else {
        copy(nullptr);
      }
    }
    return names;
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const {
    throw UserError(str("[fetch] ", path_, " is no intact tar archive: ", why));
  }

  bool next_header() {
    if (file_.read(block_.data(), kBlock) != kBlock) damaged("it ends without the blocks of zeros that mark its end");
    if (std::all_of(block_.begin(), block_.end(), [](char c) { return c == 0; })) return false;
    if (!checksum_right(block_)) damaged("a header's checksum is wrong");
    left_ = number(block_, 124, 12);
    if (left_ < 0) damaged("a size is no number");
    return true;
  }

  // Returns the name below the folder; "" if nothing is left of it.
  std::string target_of(const std::string& name, int64_t strip) const {
    fs::path out;
    int64_t skipped = 0;
    for (const fs::path& part : fs::path(name)) {
      if (part == "..") damaged("it holds " + name + ", which leads out of its folder");
      if (part == "." || part == "/" || part.empty()) continue;
      if (skipped++ >= strip) out /= part;
    }
    return out.string();
  }

  void copy(OutputFile* out) {
    std::vector<char> buffer(1 << 20);
    for (int64_t rest = (left_ + kBlock - 1) / kBlock * kBlock; rest > 0;) {
      const size_t n = std::min<size_t>(buffer.size(), static_cast<size_t>(rest));
      if (file_.read(buffer.data(), n) != n) damaged("it ends in a file");
      if (out && left_ > 0) out->write(buffer.data(), std::min<size_t>(n, static_cast<size_t>(left_)));
      left_ -= static_cast<int64_t>(n);
      rest -= static_cast<int64_t>(n);
    }
  }

  std::string content() {
    const auto size = static_cast<size_t>(left_);
    if (size > 1 << 20) damaged("a name of a megabyte");
    std::string text((size + kBlock - 1) / kBlock * kBlock, '\0');
    if (file_.read(text.data(), text.size()) != text.size()) damaged("it ends in a name");
    text.resize(size);
    return text;
  }

  void extract(const std::string& path) {
    fs::create_directories(fs::path(path).parent_path());
    write_whole(path, [&](OutputFile& out) { copy(&out); });
  }

  const std::string path_, folder_;
  InputFile file_;
  Block block_{};
  int64_t left_ = 0;  // bytes of the current file
};

}  // namespace

std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip) {
  return TarReader(archive, folder).unpack(strip);
}

void unpack_gz(const std::string& archive, const std::string& path) {
  write_whole(path, [&](OutputFile& out) {
    InputFile in(archive);
    std::vector<char> buffer(1 << 20);
    for (size_t n; (n = in.read(buffer.data(), buffer.size())) > 0;) out.write(buffer.data(), n);
  });
}

}  // namespace lmx::data
