// The text files of a corpus: finding them, hashing their contents, reading them in chunks, and their formats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::app {

enum class Split : int { train = 0, valid = 1, test = 2, drawn = 3 };  // drawn: a hash assigns each line to a split
inline constexpr int kSplits = 3;
inline constexpr const char* kSplitNames[kSplits] = {"train", "valid", "test"};

// How a file is divided into strings: its lines, the records of CSV or JSON lines, its paragraphs (each with the empty
// lines after it), or not at all.
enum class Format : int { lines = 0, csv = 1, jsonl = 2, paragraphs = 3, whole = 4 };

// Determines the format from a file's name, also with .gz or .zst.
Format format_of(const std::string& name);

struct SourceFile {
  std::string path;
  Split split = Split::drawn;
  int64_t bytes = 0;  // on disk
  int64_t modified_ns = 0;
  std::string hash;  // XXH3-128 of the bytes on disk, hexadecimal; "" until hash_sources
  Format format = Format::lines;
  std::string field = "";  // of JSON lines: the field that contains the text
  int64_t column = 0;      // of CSV: the column that contains the text, from 0
};

// Returns the paths that a pattern (a path, a directory, a glob) names, sorted, without a look at what they are. With
// `fields`, directories are also searched for files named .csv, .jsonl or .ndjson. UserError: as find_sources.
std::vector<std::string> find_paths(const std::string& pattern, bool fields);

// Returns the files that match `patterns` (paths, directories, globs), in the given order. The files of a directory or
// glob are sorted by path. With `field`, files named .csv, .jsonl or .ndjson (also with .gz or .zst) contain the text
// in that column or field, and directories are also searched for them. UserError: no such path, a directory without
// text files, a glob without a match, a file named twice, a file that is empty or cannot be read, a CSV file without
// the column.
std::vector<SourceFile> find_sources(const std::vector<std::string>& patterns, Split split,
                                     const std::string& field = "");

// UserError: `field` is not given, and one of the files has records; or it is given, and none has. `place` begins that
// message.
void check_field(const std::vector<SourceFile>& files, const std::string& field, const std::string& place);

// Reads every file once and sets `hash`.
void hash_sources(std::vector<SourceFile>& files);

// RunError: a file has changed since hash_sources read it.
void check_unchanged(const std::vector<SourceFile>& files);

// Whole lines of one file, and whole strings: records, paragraphs, or the file. For CSV, the first record in a file's
// first chunk is the header.
struct Chunk {
  int64_t index = 0;  // chunks are numbered over all files
  size_t file = 0;
  Split split = Split::drawn;
  int64_t first_line = 0;  // 0-based, counted over all files; determines the splits of lines
  int64_t file_line = 1;   // 1-based in this file, for messages
  int64_t offset = 0;      // of `text` in the (decompressed) file
  std::string text;
};

// Returns the files chunk by chunk to any number of threads. A chunk has about `chunk_bytes`, or more if one line is
// longer. Compressed files are decompressed; a byte order mark is skipped.
class ChunkReader {
 public:
  ChunkReader(const std::vector<SourceFile>& files, size_t chunk_bytes, std::string progress_title);
  ~ChunkReader();
  bool next(
      Chunk& chunk);  // false at the end. UserError: a damaged compressed file; RunError: the file became unreadable
  void stop();        // ends the reading: no further chunks

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls visit(chunk, thread) for every chunk on `threads` threads. Of several errors, the one of the earliest chunk is
// thrown, for any number of threads. `failed` is called as soon as an error occurs.
void for_each_chunk(ChunkReader& reader, int threads, const std::function<void(Chunk&, int)>& visit,
                    const std::function<void()>& failed = {});

// Calls line(text, number within the chunk) for each line, without its line end (\n or \r\n).
template <class Visit>
void for_each_line(const std::string& text, Visit&& line) {
  int64_t number = 0;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    size_t length = end - at;
    if (length > 0 && text[end - 1] == '\r') --length;
    line(std::string_view(text).substr(at, length), number);
    at = end + 1;
  }
}

// Records of CSV (RFC 4180: quoted fields may contain commas, line ends and doubled quotes) and of JSON lines.

// Reads the records of a text one after the other.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}
  // Reads the next record into `fields`; false at the end. Skips empty lines.
  bool next(std::vector<std::string>& fields);
  // Properties of the record that next() read last:
  int64_t line() const { return line_; }         // number of lines before it in the text
  std::string_view raw() const { return raw_; }  // its unchanged text, without the line end
  bool closed() const { return closed_; }        // false: a quoted field has no end

 private:
  void read_field(std::string& field);
  std::string_view text_, raw_;
  size_t at_ = 0;
  int64_t line_ = 0, next_line_ = 0;
  bool closed_ = true;
};

// Returns the position after the last line end of `text` that ends a record; npos if there is none. REQUIRES: `text`
// starts with a new record.
size_t csv_records_end(std::string_view text);

// Returns the position of `column` in the header of the CSV file at `path`, from 0. UserError: no such column; the
// message lists the columns.
int64_t csv_column(const std::string& path, const std::string& column);
// The same for a header that has already been read.
int64_t csv_column(const std::vector<std::string>& header, const std::string& path, const std::string& column);

// Returns the string `field` of a JSON object. `place` is its position for messages ("FILE:LINE"). UserError: not a
// JSON object, no such field, not a string. With `numbers`, an integer is also accepted and returned as its digits.
std::string json_field(std::string_view line, const std::string& field, const std::string& place, bool numbers = false);

// Extracts the sentences of WMT's development and test sets from SGML.

// Returns one line for each `<seg ...> ... </seg>`, in their order. White space becomes single spaces and is removed at
// the ends; character references become characters. An empty segment becomes an empty line, so that both sides stay
// aligned. UserError, starting with `name`: a segment without an end, or no segment.
std::string lines_of_segments(std::string_view sgml, const std::string& name);

// Unpacks the archives of corpora.

// Extracts the regular files of a .tar or .tar.gz below `folder`, without the first `strip` folders of their names.
// Each file is written under a temporary name and renamed when it is complete. Returns their names. UserError: a
// damaged archive, or a name outside of `folder`. RunError: a full disk.
std::vector<std::string> unpack_tar(const std::string& archive, const std::string& folder, int64_t strip);
// Decompresses a .gz file into `path`.
void unpack_gz(const std::string& archive, const std::string& path);

}  // namespace lmx::app
