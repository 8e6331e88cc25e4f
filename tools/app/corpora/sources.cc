#include "app/corpora/sources.h"

#include <archive.h>
#include <archive_entry.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "app/corpora/corpora.h"
#include "app/text/cleaner.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Returns $variable/lmx, otherwise ~/fallback/lmx.
std::string user_folder(const char* variable, const char* fallback) {
  const std::string base = environment(variable);
  if (!base.empty() && base[0] == '/') return base + "/lmx";
  const std::string home = environment("HOME");
  if (home.empty())
    throw UserError(str("[data] neither ", variable, " nor HOME is set; set LMX_CACHE_DIR and LMX_DATA_DIR"));
  return str(home, "/", fallback, "/lmx");
}

}  // namespace

std::string default_cache_directory() {
  const std::string own = environment("LMX_CACHE_DIR");
  return own.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : own;
}

std::vector<std::string> data_directories() {
  const std::string own = environment("LMX_DATA_DIR");
  if (own.empty()) return {user_folder("XDG_DATA_HOME", ".local/share")};
  std::vector<std::string> folders;
  for (std::string& folder : config::split(own, ':'))
    if (!folder.empty()) folders.push_back(std::move(folder));
  return folders;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kNameField = "data.field (`--field` of lmx new and lmx eval) names the field that holds the text";

bool has_end(std::string_view name, std::initializer_list<const char*> ends) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

bool is_text_name(const std::string& name, bool fields) {
  return has_end(name, {".txt", ".text"}) || (fields && format_of(name) != Format::lines);
}

std::vector<std::string> text_files_below(const std::string& directory, bool fields) {
  std::vector<std::string> paths;
  int64_t records = 0, others = 0;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, fs::directory_options::follow_directory_symlink, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().filename().string().starts_with(".")) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    if (is_text_name(it->path().filename().string(), fields))
      paths.push_back(it->path().string());
    else
      ++(format_of(it->path().filename().string()) == Format::lines ? others : records);
  }
  if (error) throw UserError(str("[data] cannot list ", directory, ": ", error.message()));
  if (paths.empty()) {
    throw UserError(str("[data] directory ", directory, " holds no text file (.txt, .text, ",
                        fields ? ".csv, .jsonl, .ndjson, " : "", "also with .gz and .zst); ",
                        records > 0 ? str("it has .csv or .jsonl files: ", kNameField)
                                    : str(others, " other files there; name them in `files` to read them as text")));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (!fs::is_directory(found.gl_pathv[i])) paths.emplace_back(found.gl_pathv[i]);
    }
  }
  globfree(&found);
  if (paths.empty())
    throw UserError(str("[data] no file matches ", pattern, " (looked from ", fs::current_path().string(), ")"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct stat look_at(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
  return info;
}

int64_t modified_ns(const struct stat& info) {
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

std::vector<std::string> find_paths(const std::string& pattern, bool fields) {
  std::error_code error;
  const fs::file_status status = fs::status(pattern, error);
  if (fs::is_directory(status)) return text_files_below(pattern, fields);
  if (fs::exists(status)) return {pattern};  // a file with exactly this name has priority over a pattern
  if (pattern.find_first_of("*?[") != std::string::npos) return matches(pattern);
  throw UserError(str("[data] no such file or directory: ", pattern,
                      pattern.starts_with("/") ? "" : str(" (looked from ", fs::current_path().string(), ")")));
}

Format format_of(const std::string& name) {
  if (has_end(name, {".csv"})) return Format::csv;
  return has_end(name, {".jsonl", ".ndjson"}) ? Format::jsonl : Format::lines;
}

void check_field(const std::vector<SourceFile>& files, const std::string& field, const std::string& place) {
  const auto records = [](const SourceFile& file) { return format_of(file.path) != Format::lines; };
  const auto found = std::find_if(files.begin(), files.end(), records);
  if (field.empty() && found != files.end())
    throw UserError(str("[data] ", found->path, " is a file of records: ", kNameField));
  if (!field.empty() && found == files.end())
    throw UserError(str(place, "field '", field, "' is of .csv, .jsonl or .ndjson files; none is among the ",
                        plural(files.size(), "file")));
}

std::vector<SourceFile> find_sources(const std::vector<std::string>& patterns, Split split, const std::string& field) {
  std::vector<SourceFile> files;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    for (const std::string& path : find_paths(pattern, !field.empty())) {
      const struct stat info = look_at(path);
      if (!S_ISREG(info.st_mode)) throw UserError(str("[data] ", path, " is not a regular file"));
      if (access(path.c_str(), R_OK) != 0)
        throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
      if (info.st_size == 0) throw UserError(str("[data] ", path, " is empty"));
      if (!seen.insert(fs::canonical(path).string()).second) {
        throw UserError(str("[data] ", path, " is named twice in `files` (again by ", pattern, ")"));
      }
      files.push_back({path, split, info.st_size, modified_ns(info), ""});
      if (field.empty()) continue;
      SourceFile& file = files.back();
      file.format = format_of(path);
      file.field = field;
      if (file.format == Format::csv) file.column = csv_column(path, field);
    }
  }
  return files;
}

void hash_sources(std::vector<SourceFile>& files) {
  std::string buffer(1 << 20, '\0');
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  for (SourceFile& file : files) {
    XXH3_128bits_reset(state.get());
    InputFile in(file.path, Content::bytes);
    while (const size_t n = in.read(buffer.data(), buffer.size())) XXH3_128bits_update(state.get(), buffer.data(), n);
    const XXH128_hash_t h = XXH3_128bits_digest(state.get());
    file.hash =
        format("%016llx%016llx", static_cast<unsigned long long>(h.high64), static_cast<unsigned long long>(h.low64));
  }
}

void check_unchanged(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) != 0 || info.st_size != file.bytes || modified_ns(info) != file.modified_ns) {
      throw RunError(str("[data] ", file.path, " changed while it was being prepared; try again"));
    }
  }
}

// Reads from at_ to the comma or line end after the field.
void CsvReader::read_field(std::string& field) {
  field.clear();
  bool quoted = false;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      const bool doubled = quoted && at_ + 1 < text_.size() && text_[at_ + 1] == '"';
      if (doubled) {
        field.push_back('"');
        ++at_;
      } else if (quoted || field.empty()) {
        quoted = !quoted;
      } else {
        field.push_back('"');  // inside an unquoted field it is an ordinary character
      }
    } else if (!quoted && (c == ',' || c == '\n')) {
      break;
    } else {
      next_line_ += c == '\n';
      field.push_back(c);
    }
  }
  closed_ = closed_ && !quoted;
}

bool CsvReader::next(std::vector<std::string>& fields) {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_.substr(at_).starts_with("\r\n"))) {
    at_ += text_[at_] == '\r' ? 2 : 1;
    ++next_line_;
  }
  if (at_ >= text_.size()) return false;
  const size_t begin = at_;
  line_ = next_line_;
  closed_ = true;
  size_t count = 0;
  for (bool more = true; more; ++count) {
    if (count == fields.size()) fields.emplace_back();
    read_field(fields[count]);
    more = at_ < text_.size() && text_[at_] == ',';
    at_ += more;
  }
  fields.resize(count);
  raw_ = text_.substr(begin, at_ - begin);
  if (at_ < text_.size()) {  // its line end
    ++at_;
    ++next_line_;
  }
  if (raw_.ends_with('\r')) {
    raw_.remove_suffix(1);
    if (fields.back().ends_with('\r')) fields.back().pop_back();
  }
  return true;
}

size_t csv_records_end(std::string_view text) {
  size_t end = std::string_view::npos;
  bool quoted = false, begins = true;  // in a quoted field; at the start of a field
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      const bool doubled = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
      quoted = c != '"' || doubled;
      i += doubled;
      continue;
    }
    quoted = begins && c == '"';
    begins = c == ',' || c == '\n';
    if (c == '\n') end = i + 1;
  }
  return end;
}

int64_t csv_column(const std::string& path, const std::string& column) {
  InputFile file(path, Content::text);
  std::string head(1 << 16, '\0');
  head.resize(file.read(head.data(), head.size()));
  CsvReader reader(head);
  std::vector<std::string> header;
  static_cast<void>(reader.next(header));
  return csv_column(header, path, column);
}

int64_t csv_column(const std::vector<std::string>& header, const std::string& path, const std::string& column) {
  if (header.empty()) throw UserError(str("[data] ", path, " is empty; the first line of CSV names the columns"));
  const auto found = std::find(header.begin(), header.end(), column);
  if (found != header.end()) return found - header.begin();
  throw UserError(str("[data] ", path, " has no column '", column, "'", did_you_mean(column, header),
                      "; the columns of its first line are ", config::join(header)));
}

std::string json_field(std::string_view line, const std::string& field, const std::string& place, bool numbers) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& e) {
    const std::string what =
        e.what();  // "[json.exception...] parse error at line 1, column 9: ... - invalid string: ..."
    const size_t why = what.find(": ");
    throw UserError(str("[data] ", place, ":", e.byte,
                        ": not valid JSON: ", why == std::string::npos ? what : what.substr(why + 2)));
  }
  if (!object.is_object())
    throw UserError(str("[data] ", place, ": expected a JSON object a line, found '", line.substr(0, 60), "'"));
  const auto found = object.find(field);
  if (found == object.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) names.push_back(name);
    throw UserError(str("[data] ", place, " has no field '", field, "'", did_you_mean(field, names), "; it has ",
                        config::join(names)));
  }
  if (numbers && found->is_number_integer()) return found->dump();
  if (!found->is_string())
    throw UserError(str("[data] ", place, ": field '", field, "' is ", found->type_name(), ", not a string"));
  return *found;
}

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

// Ignores case, because some sets have tags in lower case, others in upper case.
size_t find_tag(std::string_view text, std::string_view tag, size_t from) {
  for (size_t at = from; (at = text.find('<', at)) != std::string_view::npos; ++at) {
    size_t same = 0;
    while (same < tag.size() && at + same < text.size() && (text[at + same] | 0x20) == (tag[same] | 0x20)) ++same;
    const bool whole =
        at + same < text.size() && (kSpaces.find(text[at + same]) != std::string_view::npos || text[at + same] == '>');
    if (same == tag.size() && whole) return at;
  }
  return std::string_view::npos;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (size_t at = 0; (at = text.find_first_not_of(kSpaces, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    if (!out.empty()) out.push_back(' ');
    out.append(text.substr(at, end - at));
    at = end;
  }
  return out;
}

}  // namespace

std::string lines_of_segments(std::string_view sgml, const std::string& name) {
  std::string lines;
  int64_t segments = 0;
  for (size_t at = 0; (at = find_tag(sgml, "<seg", at)) != std::string_view::npos; ++segments) {
    const size_t begin = sgml.find('>', at), end = find_tag(sgml, "</seg", at), next = find_tag(sgml, "<seg", at + 1);
    if (begin == std::string_view::npos || end == std::string_view::npos || end > next)
      throw UserError(str(name, ": segment ", segments + 1, " has no end, `</seg>`"));
    lines += squeezed(unescape_html(sgml.substr(begin + 1, end - begin - 1))) + "\n";
    at = end;
  }
  if (segments == 0) throw UserError(str(name, " holds no segments, `<seg id=...>`; is it WMT's SGML?"));
  return lines;
}

namespace {

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

}  // namespace lmx::app
