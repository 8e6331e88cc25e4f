#include "app/pairs/pair_files.h"

#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "app/prepare/chunks.h"
#include "app/text/utf8.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

// Reads whole lines of one file from start to end.
class LineFile {
 public:
  // Reads the first byte, after which the offset of the first line is known.
  explicit LineFile(const std::string& path) : path_(path), input_(path, Content::text) { fill(1); }

  // Takes whole lines of about `bytes`, at least one line. Returns their number; 0 at the end.
  int64_t take_bytes(size_t bytes, std::string& text) {
    fill(bytes);
    size_t end = rest_.size();
    if (!ended_) {
      while ((end = rest_.rfind('\n')) == std::string::npos && !ended_) fill(rest_.size() + bytes);
      end = ended_ ? rest_.size() : end + 1;
    }
    return cut(end, text);
  }

  // Takes `lines` lines, or fewer at the end of the file.
  int64_t take_lines(int64_t lines, std::string& text) {
    size_t end = 0;
    for (int64_t line = 0; line < lines; ++line) {
      size_t newline;
      while ((newline = rest_.find('\n', end)) == std::string::npos && !ended_) fill(rest_.size() + kStep);
      if (newline == std::string::npos) {
        end = rest_.size();
        break;
      }
      end = newline + 1;
    }
    return cut(end, text);
  }

  int64_t offset() const { return input_.skipped() + offset_; }  // of the next line
  int64_t disk_position() const { return input_.disk_position(); }

 private:
  static constexpr size_t kStep = 1 << 20;

  void fill(size_t bytes) {
    if (ended_ || rest_.size() >= bytes) return;
    const size_t had = rest_.size();
    rest_.resize(bytes);
    rest_.resize(had + input_.read(rest_.data() + had, bytes - had));
    ended_ = rest_.size() < bytes;
    if (rest_.size() > kLongestLine && rest_.find('\n') == std::string::npos) refuse_long_line(path_, lines_ + 1);
  }

  int64_t cut(size_t end, std::string& text) {
    text.assign(rest_, 0, end);
    rest_.erase(0, end);
    offset_ += static_cast<int64_t>(end);
    const int64_t lines = text.empty() ? 0 : std::count(text.begin(), text.end(), '\n') + (text.back() != '\n');
    lines_ += lines;
    return lines;
  }

  std::string path_;
  InputFile input_;
  std::string rest_;
  int64_t offset_ = 0, lines_ = 0;
  bool ended_ = false;
};

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Finds a column (1-based) of a line and keeps its white space. Returns false if the line has too few columns.
bool column_of(std::string_view line, int64_t column, std::string_view& out) {
  for (; column > 1; --column) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return false;
    line.remove_prefix(tab + 1);
  }
  out = line.substr(0, line.find('\t'));
  return true;
}

}  // namespace

struct PairReader::Impl {
  Impl(const std::vector<PairFiles>& f, size_t bytes, std::string t)
      : files(f), chunk_bytes(bytes), title(std::move(t)) {
    for (const PairFiles& both : files) bytes_total += both.source.bytes;
  }
  const std::vector<PairFiles>& files;
  const size_t chunk_bytes;
  const std::string title;
  std::mutex mutex;
  size_t file = 0;
  std::unique_ptr<LineFile> source, target;
  int64_t file_line = 1, pair = 0, index = 0;
  int64_t bytes_before = 0, bytes_total = 0;
  bool stopped = false;
  std::chrono::steady_clock::time_point reported{};

  bool cut(PairChunk& chunk);
  [[noreturn]] void refuse_counts(int64_t source_more, int64_t target_more);
  void report();
};

PairReader::PairReader(const std::vector<PairFiles>& files, size_t chunk_bytes, std::string progress_title)
    : impl_(std::make_unique<Impl>(files, chunk_bytes, std::move(progress_title))) {}

PairReader::~PairReader() {
  progress_line("");
}

void PairReader::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
}

void PairReader::Impl::report() {
  const auto now = std::chrono::steady_clock::now();
  if (now - reported < std::chrono::milliseconds(200)) return;
  reported = now;
  progress_line(str("[data] ", title, " ",
                    100 * (bytes_before + source->disk_position()) / std::max<int64_t>(bytes_total, 1), " % of ",
                    bytes_total / 1'000'000, " MB of source text"));
}

// Counts the lines of both files up to their ends, so that the message can contain the totals.
void PairReader::Impl::refuse_counts(int64_t source_more, int64_t target_more) {
  std::string skipped;
  int64_t sources = file_line - 1 + source_more, targets = file_line - 1 + target_more;
  while (const int64_t n = source->take_bytes(chunk_bytes, skipped)) sources += n;
  while (const int64_t n = target->take_bytes(chunk_bytes, skipped)) targets += n;
  throw UserError(str("[data] ", files[file].source.path, " has ", sources, " lines and ", files[file].target.path, " ",
                      targets, "; line i of one must translate line i of the other"));
}

bool PairReader::Impl::cut(PairChunk& chunk) {
  const PairFiles& pair_files = files[file];
  if (!source) {
    source = std::make_unique<LineFile>(pair_files.source.path);
    target = pair_files.tsv() ? nullptr : std::make_unique<LineFile>(pair_files.target.path);
    file_line = 1;
  }
  chunk = {index, file, pair, file_line, source->offset(), target ? target->offset() : 0, 0, {}, {}};
  chunk.pairs = source->take_bytes(chunk_bytes, chunk.source);
  if (target) {
    // Asks for one line even if the source has none left, to detect a target file that is too long.
    const int64_t found = target->take_lines(std::max<int64_t>(chunk.pairs, 1), chunk.target);
    if (found != chunk.pairs) refuse_counts(chunk.pairs, found);
  }
  if (chunk.pairs == 0) return false;
  ++index;
  pair += chunk.pairs;
  file_line += chunk.pairs;
  return true;
}

bool PairReader::next(PairChunk& chunk) {
  const std::lock_guard lock(impl_->mutex);
  while (!impl_->stopped && impl_->file < impl_->files.size()) {
    if (impl_->cut(chunk)) {
      impl_->report();
      return true;
    }
    impl_->source.reset();
    impl_->target.reset();
    impl_->bytes_before += impl_->files[impl_->file].source.bytes;
    ++impl_->file;
  }
  return false;
}

void for_each_pair(const PairFiles& files, const PairChunk& chunk, const std::function<void(const PairLine&)>& visit,
                   bool any_bytes) {
  std::string_view sources = chunk.source, targets = chunk.target;
  const auto check = [&](const SourceFile& file, std::string_view line, const std::string& text, int64_t offset,
                         int64_t i) {
    const size_t bad = any_bytes ? kValidUtf8 : find_invalid_utf8(line);
    if (bad != kValidUtf8)
      refuse_invalid_utf8(file.path, chunk.file_line + i, offset + (line.data() - text.data()), line, bad);
  };
  for (int64_t i = 0; i < chunk.pairs; ++i) {
    const std::string_view source = next_line(sources);
    check(files.source, source, chunk.source, chunk.source_offset, i);
    PairLine pair{source, {}, chunk.first_pair + i};
    if (files.tsv()) {
      if (!column_of(source, files.columns[0], pair.source) || !column_of(source, files.columns[1], pair.target)) {
        throw UserError(str("[data] ", files.source.path, ":", chunk.file_line + i, ": needs the columns ",
                            files.columns[0], " and ", files.columns[1],
                            " (data.tsv_columns, --columns) with a tab between columns; it has ",
                            std::count(source.begin(), source.end(), '\t') + 1));
      }
    } else {
      pair.target = next_line(targets);
      check(files.target, pair.target, chunk.target, chunk.target_offset, i);
    }
    visit(pair);
  }
}

void for_each_pair_chunk(PairReader& reader, int threads, const std::function<void(PairChunk&, int)>& visit,
                         const std::function<void()>& failed) {
  std::vector<PairChunk> chunks(static_cast<size_t>(threads));
  const auto own = [&](int thread) -> PairChunk& { return chunks[static_cast<size_t>(thread)]; };
  work_on_chunks(threads, {[&](int thread) { return reader.next(own(thread)) ? own(thread).index : -1; },
                           [&](int thread) { visit(own(thread), thread); }, [&] { reader.stop(); }, failed});
}

namespace {

namespace fs = std::filesystem;

// Compresses text into a separate gzip member. Concatenated members form a valid gzip file.
std::string gzip(const std::string& text) {
  if (text.empty()) return "";
  z_stream stream{};
  constexpr int kGzip = 15 + 16;  // window bits, plus a flag for gzip's header
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw RunError("[data] zlib cannot start");
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw RunError("[data] zlib cannot compress");
  return out;
}

}  // namespace

struct PairWriter::File {
  explicit File(const std::string& path) : out(path), gz(path.ends_with(".gz")) {}
  void append(const std::string& bytes) {
    out.write(bytes);
    wrote = wrote || !bytes.empty();
  }
  void sync() {
    if (gz && !wrote) append(std::string("\x1f\x8b\x08\0\0\0\0\0\0\3\3\0\0\0\0\0\0\0\0\0", 20));  // empty
    out.sync();
  }
  OutputFile out;
  bool gz, wrote = false;
};

PairWriter::PairWriter(const PairTextOutput& out) : tsv_(!out.tsv.empty()) {
  const bool two = !out.source.empty() && !out.target.empty(), any = !out.source.empty() || !out.target.empty();
  if (tsv_ == two || (tsv_ && any))
    throw UserError("[data] name either a source and a target file to write, or one TSV file");
  source_ = std::make_unique<File>(tsv_ ? out.tsv : out.source);
  if (two) target_ = std::make_unique<File>(out.target);
}

PairWriter::~PairWriter() = default;

void PairWriter::add(PairBlock& block, std::string_view source, std::string_view target) const {
  block.source.append(source);
  if (tsv_) {
    block.source.push_back('\t');
    block.source.append(target).push_back('\n');
    return;
  }
  block.source.push_back('\n');
  block.target.append(target).push_back('\n');
}

void PairWriter::seal(PairBlock& block) const {
  if (source_->gz) block.source = gzip(block.source);
  if (target_ && target_->gz) block.target = gzip(block.target);
}

void PairWriter::append(const PairBlock& block) {
  source_->append(block.source);
  if (target_) target_->append(block.target);
}

void PairWriter::finish() {
  source_->sync();
  if (target_) target_->sync();
  source_->out.close();
  if (target_) target_->out.close();
}

std::vector<PairFiles> find_pair_files(const PairTextFiles& in) {
  const bool two = !in.source.empty() || !in.target.empty();
  if (in.tsv.empty() != two) throw UserError("[data] name either source and target files, or TSV files");
  std::vector<PairFiles> files;
  for (SourceFile& file : find_sources(in.tsv, Split::train)) files.push_back({std::move(file), {}, in.columns});
  std::vector<SourceFile> sources = find_sources(in.source, Split::train),
                          targets = find_sources(in.target, Split::train);
  if (sources.size() != targets.size()) {
    throw UserError(str("[data] there are ", sources.size(), " source files and ", targets.size(),
                        " target files; each source file needs the target file that translates it"));
  }
  for (size_t i = 0; i < sources.size(); ++i) files.push_back({std::move(sources[i]), std::move(targets[i]), {}});
  return files;
}

}  // namespace lmx::app
