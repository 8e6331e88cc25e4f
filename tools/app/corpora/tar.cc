#include "app/corpora/tar.h"

#include <archive.h>
#include <archive_entry.h>

#include <filesystem>
#include <memory>

#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = 1 << 20;
constexpr int64_t kBlock = 512;

class TarReader {
 public:
  explicit TarReader(const std::string& path) : path_(path), archive_(archive_read_new(), archive_read_free) {
    archive_read_support_filter_gzip(archive_.get());
    archive_read_support_format_tar(archive_.get());
    if (archive_read_open_filename(archive_.get(), path.c_str(), kBuffer) != ARCHIVE_OK) damaged();
  }

  // The next regular file; null after the last one.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    for (;;) {
      const int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) {
        // libarchive accepts an archive that ends between two files; after the last file there must be a block of
        // zeros.
        const int64_t after_last =
            archive_filter_bytes(archive_.get(), 0) - archive_read_header_position(archive_.get());
        if (after_last < kBlock) refuse("it ends without the blocks of zeros that mark its end");
        return nullptr;
      }
      if (code != ARCHIVE_OK) damaged();
      if (archive_entry_filetype(entry) == AE_IFREG) return entry;
    }
  }

  // Writes the content of the entry that next() has returned.
  void extract(OutputFile& out) {
    std::vector<char> buffer(kBuffer);
    for (la_ssize_t n = 0; (n = archive_read_data(archive_.get(), buffer.data(), buffer.size())) != 0;) {
      if (n < 0) damaged();
      out.write(buffer.data(), static_cast<size_t>(n));
    }
  }

  // The name of an entry below the folder, without its first `strip` folders; "" if nothing is left of it.
  std::string target_of(const std::string& name, int64_t strip) const {
    fs::path out;
    int64_t skipped = 0;
    for (const fs::path& part : fs::path(name)) {
      if (part == "..") refuse("it holds " + name + ", which leads out of its folder");
      if (part == "." || part == "/" || part.empty()) continue;
      if (skipped++ >= strip) out /= part;
    }
    return out.string();
  }

 private:
  [[noreturn]] void damaged() const {
    const char* why = archive_error_string(archive_.get());
    refuse(why ? why : "it cannot be read");
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(str("[fetch] ", path_, " is no intact tar archive: ", why));
  }

  std::string path_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
};

}  // namespace

std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip) {
  TarReader tar(archive);
  std::vector<std::string> names;
  while (archive_entry* entry = tar.next()) {
    const std::string name = tar.target_of(archive_entry_pathname(entry), strip);
    if (name.empty()) continue;
    const std::string path = folder + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    OutputFile out(path);
    tar.extract(out);
    out.close();
    names.push_back(name);
  }
  return names;
}

void unpack_gz(const std::string& archive, const std::string& path) {
  OutputFile out(path);
  InputFile in(archive, Content::unpacked);
  std::vector<char> buffer(kBuffer);
  for (size_t n; (n = in.read(buffer.data(), buffer.size())) > 0;) out.write(buffer.data(), n);
  out.close();
}

}  // namespace lmx::data
