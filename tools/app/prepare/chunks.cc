// ChunkReader and for_each_chunk: one thread at a time reads files and splits them at line ends, and any number of
// threads process the chunks.
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "app/corpora/sources.h"
#include "app/prepare/chunks.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

constexpr size_t kLongestRecord = 64 << 20;  // bytes of a CSV record: the limit for an unbalanced quotation mark
constexpr size_t kLongestDocument = 1 << 30;

// Returns whether the line at `at` is empty, and sets `next` to the start of the line after it.
bool is_empty_line(std::string_view text, size_t at, size_t& next) {
  const size_t end = std::min(text.find('\n', at), text.size());
  next = end + 1;
  return end == at || (end == at + 1 && text[at] == '\r');
}

// Returns the start of the first paragraph that begins after `from`, the start of a line: a line that is not empty,
// after an empty one. The size of `text` if there is none.
size_t next_paragraph(std::string_view text, size_t from) {
  bool empty = false;
  for (size_t at = from, next = 0; at < text.size(); at = next) {
    const bool was_empty = std::exchange(empty, is_empty_line(text, at, next));
    if (was_empty && !empty && at > from) return at;
  }
  return text.size();
}

// Returns the start of the last paragraph of `text`; npos if it is the only one. The empty lines before the first
// paragraph of a file belong to that one.
size_t last_paragraph(std::string_view text) {
  for (size_t end = text.size();
       (end = text.rfind('\n', end == 0 ? 0 : end - 1)) != std::string_view::npos && end > 0;) {
    size_t next = 0;
    const size_t before = text[end - 1] == '\r' ? end - 1 : end;
    const bool after_empty = before > 0 && text[before - 1] == '\n';
    if (after_empty && end + 1 < text.size() && !is_empty_line(text, end + 1, next) &&
        text.substr(0, end).find_first_not_of("\r\n") != std::string_view::npos)
      return end + 1;
  }
  return std::string_view::npos;
}

}  // namespace

struct ChunkReader::Impl {
  Impl(const std::vector<SourceFile>& f, size_t bytes, std::string t)
      : files(f), chunk_bytes(bytes), title(std::move(t)) {}
  const std::vector<SourceFile>& files;
  const size_t chunk_bytes;
  const std::string title;
  std::mutex mutex;
  size_t file = 0;
  std::unique_ptr<InputFile> input;
  std::string rest;    // the start of a line whose end has not been read yet
  int64_t offset = 0;  // of `rest` in the file
  int64_t file_line = 1, line = 0, index = 0;
  int64_t bytes_before = 0, bytes_total = 0;  // on disk: of files read completely, and of all files
  bool stopped = false;
  std::chrono::steady_clock::time_point reported{};

  bool cut(Chunk& chunk);
  size_t lines_end(const std::string& text, size_t had) const;
  void open_file();
  void report();
};

ChunkReader::ChunkReader(const std::vector<SourceFile>& files, size_t chunk_bytes, std::string progress_title)
    : impl_(std::make_unique<Impl>(files, chunk_bytes, std::move(progress_title))) {
  for (const SourceFile& f : files) impl_->bytes_total += f.bytes;
}

ChunkReader::~ChunkReader() {
  progress_line("");
}

void ChunkReader::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
}

void ChunkReader::Impl::report() {
  const auto now = std::chrono::steady_clock::now();
  if (now - reported < std::chrono::milliseconds(200)) return;
  reported = now;
  const int64_t done = bytes_before + (input ? input->disk_position() : 0);
  progress_line(str("[data] ", title, " ", 100 * done / std::max<int64_t>(bytes_total, 1), " % of ",
                    bytes_total / 1'000'000, " MB"));
}

void ChunkReader::Impl::open_file() {
  input = std::make_unique<InputFile>(files[file].path, Content::text);
  file_line = 1;
  offset = 0;
}

// Returns the position after the last complete line (or CSV record) of `text`; npos if it contains none. The first
// `had` bytes contain no line end.
size_t ChunkReader::Impl::lines_end(const std::string& text, size_t had) const {
  if (files[file].format == Format::csv) {
    const size_t end = csv_records_end(text);
    if (end == std::string::npos && text.size() > kLongestRecord)
      throw UserError(str("[data] ", files[file].path, ":", file_line,
                          ": a record of CSV begins here and does not end ", "within ", kLongestRecord >> 20,
                          " MB; is a quotation mark unbalanced?"));
    return end;
  }
  if (files[file].format == Format::paragraphs || files[file].format == Format::whole) {
    if (text.size() > kLongestDocument)
      throw UserError(str("[data] ", files[file].path, ":", file_line, ": a document begins here that has more than ",
                          kLongestDocument >> 30, " GB; data.document says what a document is"));
    return files[file].format == Format::whole ? std::string::npos : last_paragraph(text);
  }
  const size_t newline = std::string_view(text).substr(had).rfind('\n');
  if (newline == std::string_view::npos && text.size() > kLongestLine) refuse_long_line(files[file].path, file_line);
  return newline == std::string_view::npos ? newline : had + newline + 1;
}

// Reads the next chunk of the open file; false at its end.
bool ChunkReader::Impl::cut(Chunk& chunk) {
  std::string text = std::move(rest);
  rest.clear();
  for (;;) {  // repeats if a line is longer than a chunk
    const size_t had = text.size();
    text.resize(had + chunk_bytes);
    const size_t got = input->read(text.data() + had, chunk_bytes);
    text.resize(had + got);
    if (got < chunk_bytes) break;  // the end of the file
    const size_t end = lines_end(text, had);
    if (end == std::string::npos) continue;
    rest.assign(text, end);
    text.resize(end);
    break;
  }
  if (text.empty()) return false;
  const int64_t lines = std::count(text.begin(), text.end(), '\n') + (text.back() != '\n');
  chunk = {index++, file, files[file].split, line, file_line, input->skipped() + offset, {}};
  line += lines;
  file_line += lines;
  offset += static_cast<int64_t>(text.size());
  chunk.text = std::move(text);
  return true;
}

bool ChunkReader::next(Chunk& chunk) {
  const std::lock_guard lock(impl_->mutex);
  while (!impl_->stopped && impl_->file < impl_->files.size()) {
    if (!impl_->input) impl_->open_file();
    impl_->report();
    if (impl_->cut(chunk)) return true;
    impl_->input.reset();
    impl_->bytes_before += impl_->files[impl_->file].bytes;
    ++impl_->file;
  }
  return false;
}

void for_each_chunk(ChunkReader& reader, int threads, const std::function<void(Chunk&, int)>& visit,
                    const std::function<void()>& failed) {
  std::vector<Chunk> chunks(static_cast<size_t>(threads));
  const auto own = [&](int thread) -> Chunk& { return chunks[static_cast<size_t>(thread)]; };
  work_on_chunks(threads, {[&](int thread) { return reader.next(own(thread)) ? own(thread).index : -1; },
                           [&](int thread) { visit(own(thread), thread); }, [&] { reader.stop(); }, failed});
}

void work_on_chunks(int threads, const ChunkWork& work) {
  std::mutex mutex;
  int64_t failed_chunk = -1;
  std::exception_ptr error;
  auto run = [&](int thread) {
    int64_t reading = 0;  // an error of the reader itself counts as later than that of any chunk
    try {
      for (;;) {
        reading = INT64_MAX;
        const int64_t index = work.take(thread);
        if (index < 0) return;
        reading = index;
        work.visit(thread);
      }
    } catch (...) {
      work.stop();
      {
        const std::lock_guard lock(mutex);
        if (!error || reading < failed_chunk) {
          error = std::current_exception();
          failed_chunk = reading;
        }
      }
      if (work.failed) work.failed();
    }
  };
  std::vector<std::jthread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(run, t);
  run(0);
  pool.clear();  // joins
  if (error) std::rethrow_exception(error);
}

namespace {

std::string place(const SourceFile& file, const Chunk& chunk, int64_t line) {
  return str(file.path, ":", chunk.file_line + line);
}

void visit_csv(const SourceFile& file, const Chunk& chunk, const std::function<void(const TextRecord&)>& visit) {
  CsvReader reader(chunk.text);
  std::vector<std::string> fields;
  if (chunk.file_line == 1) static_cast<void>(reader.next(fields));  // the header
  while (reader.next(fields)) {
    if (!reader.closed())
      throw UserError(str("[data] ", place(file, chunk, reader.line()),
                          ": a record of CSV begins here whose quoted field does not end; is a quotation mark "
                          "unbalanced?"));
    if (static_cast<int64_t>(fields.size()) <= file.column)
      throw UserError(str("[data] ", place(file, chunk, reader.line()), ": a record of ",
                          plural(fields.size(), "field"), "; '", file.field, "' is column ", file.column + 1));
    visit({fields[static_cast<size_t>(file.column)], reader.raw(), reader.line()});
  }
}

void visit_paragraphs(const Chunk& chunk, const std::function<void(const TextRecord&)>& visit) {
  const std::string_view text = chunk.text;
  int64_t line = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const size_t first = std::min(text.find_first_not_of("\r\n", at), text.size());  // empty lines at a file's start
    const size_t start = first == 0 ? 0 : text.rfind('\n', first - 1) + 1;
    end = next_paragraph(text, std::max(at, start));
    const std::string_view paragraph = text.substr(at, end - at);
    visit({paragraph, paragraph, line});
    line += std::count(paragraph.begin(), paragraph.end(), '\n');
  }
}

void visit_json(const SourceFile& file, const Chunk& chunk, const std::function<void(const TextRecord&)>& visit) {
  for_each_line(chunk.text, [&](std::string_view line, int64_t number) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (find_invalid_utf8(line) != kValidUtf8) refuse_invalid_utf8(file, chunk, line);
    const std::string text = json_field(line, file.field, place(file, chunk, number));
    visit({text, line, number});
  });
}

}  // namespace

void for_each_record(const SourceFile& file, const Chunk& chunk, const std::function<void(const TextRecord&)>& visit) {
  if (file.format == Format::csv) return visit_csv(file, chunk, visit);
  if (file.format == Format::jsonl) return visit_json(file, chunk, visit);
  if (file.format == Format::paragraphs) return visit_paragraphs(chunk, visit);
  if (file.format == Format::whole) return visit({chunk.text, chunk.text, 0});
  for_each_line(chunk.text, [&](std::string_view line, int64_t number) { visit({line, line, number}); });
}

void refuse_invalid_utf8(const SourceFile& file, const Chunk& chunk, std::string_view raw) {
  const size_t bad = find_invalid_utf8(raw);
  LMX_CHECK(bad != kValidUtf8, "every byte is UTF-8");
  const auto begin = static_cast<size_t>(raw.data() - chunk.text.data());
  const auto line = std::count(chunk.text.begin(), chunk.text.begin() + static_cast<std::ptrdiff_t>(begin + bad), '\n');
  refuse_invalid_utf8(file.path, chunk.file_line + line, chunk.offset + static_cast<int64_t>(begin), raw, bad);
}

}  // namespace lmx::app
