// The text files of a corpus: finding them, hashing their contents, and reading them in chunks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmx::data {

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

}  // namespace lmx::data
