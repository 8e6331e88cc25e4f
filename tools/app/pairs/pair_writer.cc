#include "app/pairs/pair_writer.h"

#include <zlib.h>

#include <filesystem>

#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::data {
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
  if (two && fs::path(out.source).lexically_normal() == fs::path(out.target).lexically_normal())
    throw UserError(str("[data] ", out.source, " cannot hold both sides; name two files to write, or a TSV file"));
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

}  // namespace lmx::data
