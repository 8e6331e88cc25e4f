#include "app/corpora/fetch.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "app/corpora/corpora.h"
#include "app/corpora/sources.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSums = "SHA256SUMS.lmx";  // checksums that were recorded at the first download

int64_t size_at(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::string megabytes(int64_t bytes) {
  return format("%.1f MB", static_cast<double>(bytes) / 1e6);
}

// One download: its partial file, what is known about the file, and the failures so far.
class Downloading {
 public:
  Downloading(const Download& what, std::string path, const FetchOptions& options)
      : what_(what), path_(std::move(path)), part_(path_ + ".part"), note_(part_ + ".from"), options_(options) {
    if (fs::exists(part_) && fs::exists(note_)) validator_ = read_file(note_);
  }

  int64_t run() {
    double wait = options_.wait_s;
    for (int64_t failures = 0;;) {
      const int64_t before = received_;
      const std::string failure = attempt();
      if (failure.empty()) break;
      failures = received_ > before ? 1 : failures + 1;
      if (failures >= options_.attempts)
        throw RunError(str("[fetch] ", what_.url, ": ", failure, "; gave up after ", failures,
                           " attempts without progress; the ", size_at(part_), " bytes in ", part_,
                           " are kept, and the same command continues after them"));
      if (failures > 1) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      wait = failures > 1 ? std::min(wait * 2, 60.0) : options_.wait_s;
    }
    finish();
    return received_;
  }
  // Returns the checksum of the whole file if the download was compared with one; otherwise "".
  const std::string& sum() const { return sum_; }

 private:
  // Returns "" if the part is complete, otherwise why the connection ended early. Throws errors that another attempt
  // would not fix.
  std::string attempt() {
    const int64_t offset = size_at(part_);
    const Transfer t =
        transfer({what_.url, part_, offset, validator_, options_.stall_s, [&](int64_t now, int64_t total) {
                    check_total(total, now);
                    say(now, total);
                  }});
    received_ += t.received;
    remember(t);
    if (!t.write_error.empty())
      throw RunError(str("[fetch] cannot write ", part_, ": ", t.write_error,
                         "; the part that was written is kept, and the same command continues after it"));
    if (t.status == 416) return after_416(t.total, offset);
    if (t.status >= 400) return http_failure(t.status);
    if (!t.error.empty()) return t.error;
    const int64_t size = size_at(part_);
    if (t.total >= 0 && size != t.total) return str("the connection ended after ", size, " of ", t.total, " bytes");
    return "";
  }

  // The server has no data after `offset`: either the part is complete, or it belongs to another file.
  std::string after_416(int64_t total, int64_t offset) {
    if (total == offset || (total < 0 && offset == what_.bytes && offset > 0)) return "";
    start_again();
    return str("the server has ", total, " bytes, the part had ", offset);
  }

  std::string http_failure(long status) const {
    const bool passing = status >= 500 || status == 408 || status == 429;
    const char* meaning = status == 404   ? " (not found)"
                          : status == 403 ? " (forbidden)"
                          : status == 410 ? " (gone)"
                                          : "";
    const std::string text = str("the server answers ", status, meaning);
    if (passing) return text;
    throw RunError(str("[fetch] ", what_.url, ": ", text, "; has the corpus moved?"));
  }

  void check_total(int64_t total, int64_t now) {
    if (what_.bytes > 0 && total >= 0 && total != what_.bytes) refuse_size(total);
    if (total <= now || room_checked_) return;
    room_checked_ = true;
    std::error_code error;
    const auto room = static_cast<int64_t>(fs::space(fs::path(path_).parent_path(), error).available);
    if (!error && room < total - now)
      throw RunError(str("[fetch] ", what_.url, " has ", megabytes(total), ", of which ", megabytes(total - now),
                         " are missing, and the disk of ", path_, " has ", megabytes(room), " left"));
  }

  [[noreturn]] void refuse_size(int64_t size) {
    start_again();
    throw RunError(str("[fetch] ", what_.url, " has ", size, " bytes, but the registry says ", what_.bytes,
                       "; it is another file than that of the registry"));
  }

  void say(int64_t now, int64_t total) const {
    progress_line(str("fetching ", what_.file, " ", megabytes(now), total > 0 ? " of " + megabytes(total) : ""));
  }

  void remember(const Transfer& t) {
    if (t.validator.empty() || t.validator == validator_ || t.status >= 300) return;
    validator_ = t.validator;
    write_file(note_, validator_);
  }

  void start_again() {
    std::error_code ignored;
    fs::remove(part_, ignored);
    fs::remove(note_, ignored);
    validator_.clear();
  }

  void finish() {
    progress_line("");
    const int64_t size = size_at(part_);
    if (what_.bytes > 0 && size != what_.bytes) refuse_size(size);
    if (!what_.sha256.empty()) {
      sum_ = sha256_of_file(part_);
      if (sum_ != what_.sha256) {
        start_again();
        throw RunError(str("[fetch] ", what_.url, " has the SHA-256 ", sum_, ", expected was ", what_.sha256,
                           "; the download was thrown away"));
      }
    }
    fs::rename(part_, path_);
    sync_directory(fs::path(path_).parent_path().string());
    std::error_code ignored;
    fs::remove(note_, ignored);
  }

  const Download& what_;
  const std::string path_, part_, note_;
  const FetchOptions& options_;
  std::string validator_;  // identifies the version of the file that the part belongs to
  std::string sum_;
  int64_t received_ = 0;
  bool room_checked_ = false;
};

// Checksums by file name, in sha256sum's format.
std::map<std::string, std::string> read_sums(const std::string& folder) {
  std::map<std::string, std::string> sums;
  const std::string path = folder + "/" + kSums;
  if (!fs::exists(path)) return sums;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);)
    if (line.size() > 66) sums[line.substr(66)] = line.substr(0, 64);
  return sums;
}

void write_sums(const std::string& folder, const std::map<std::string, std::string>& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) text += str(sum, "  ", name, "\n");
  write_file(folder + "/" + kSums, text);
}

std::string unpacked_name(const Download& d) {
  return d.unpack == "gz" ? d.file.substr(0, d.file.size() - 3) : d.file;
}

void write_segments(const std::string& archive, const std::string& sgml, const std::string& lines) {
  if (!fs::exists(sgml)) throw RunError(str("[fetch] ", archive, " holds no ", sgml, "; its source has changed"));
  write_file(lines, lines_of_segments(read_file(sgml), sgml));
}

// Downloads, checks and unpacks one file, and adds its checksum to `sums`.
std::string fetch_one(const Download& d, const std::string& folder, const FetchOptions& options,
                      std::map<std::string, std::string>& sums, int64_t& bytes) {
  const std::string path = folder + "/" + d.file;
  Download what = d;
  const auto recorded = sums.find(d.file);
  const bool stated = !d.sha256.empty();
  if (!stated && recorded != sums.end()) what.sha256 = recorded->second;
  fs::create_directories(fs::path(path).parent_path());
  std::string sum;
  if (!fs::exists(path)) {
    Downloading downloading(what, path, options);
    bytes += downloading.run();
    sum = downloading.sum();
  }
  if (sum.empty()) sum = sha256_of_file(path);
  if (!what.sha256.empty() && sum != what.sha256)
    throw RunError(str("[fetch] ", path, " has the SHA-256 ", sum, ", expected was ", what.sha256,
                       "; remove it to download it again"));
  sums[d.file] = sum;
  const std::string line = str(d.file, "  ", size_at(path), " bytes  SHA-256 ", sum,
                               stated                 ? " as its source states"
                               : !what.sha256.empty() ? " as recorded"
                                                      : " recorded");
  if (d.unpack == "gz") unpack_gz(path, folder + "/" + unpacked_name(d));
  if (d.unpack == "tar" && unpack_tar(path, folder, d.strip).empty())
    throw UserError(str("[fetch] ", path, " holds no file"));
  for (const auto& [sgml, lines] : d.segments) write_segments(path, folder + "/" + sgml, folder + "/" + lines);
  if (!d.unpack.empty() && !options.keep_archives) fs::remove(path);
  return line;
}

// Returns whether a file was unpacked before. Then `sums` contains its name, and its output (for tar: a marker file)
// exists.
bool done_before(const Download& d, const std::string& folder, const std::map<std::string, std::string>& sums) {
  if (!sums.contains(d.file)) return false;
  return d.unpack == "tar" ? fs::exists(folder + "/" + d.file + ".unpacked")
                           : fs::exists(folder + "/" + unpacked_name(d));
}

}  // namespace

int64_t download(const Download& what, const std::string& path, const FetchOptions& options) {
  return Downloading(what, path, options).run();
}

FetchReport fetch_files(std::span<const Download> files, const FetchOptions& options) {
  FetchReport report{options.directory, 0, {}, ""};
  try {
    fs::create_directories(options.directory);
    std::map<std::string, std::string> sums = read_sums(options.directory);
    for (const Download& d : files) {
      if (done_before(d, options.directory, sums)) {
        report.files.push_back(d.file + "  is there already");
        continue;
      }
      report.files.push_back(fetch_one(d, options.directory, options, sums, report.bytes));
      if (d.unpack == "tar") write_file(options.directory + "/" + d.file + ".unpacked", "");
      write_sums(options.directory, sums);
    }
  } catch (const fs::filesystem_error& e) {
    throw RunError(str("[fetch] cannot write below ", options.directory, ": ", e.code().message()));
  }
  return report;
}

FetchReport fetch_corpus(const std::string& name, const FetchOptions& options) {
  const Corpus& corpus = find_corpus(name);
  std::vector<Download> files = downloads_of(name);
  if (files.empty())
    throw UserError(str("[fetch] corpus '", name, "' has to be got by hand (licence: ", corpus.licence,
                        "): ", corpus.get, "; it belongs into ", data_directories().front(), "/", corpus.folder));
  if (files.size() == 1 && !corpus.archive_sha256.empty()) files[0].sha256 = corpus.archive_sha256;
  FetchOptions own = options;
  if (own.directory.empty()) own.directory = data_directories().front() + "/" + corpus.folder;
  FetchReport report = fetch_files(files, own);
  for (const auto& [file, sum] : corpus.sha256) {
    const std::string path = own.directory + "/" + file;
    if (!fs::exists(path)) continue;
    if (const std::string found = sha256_of_file(path); found != sum)
      throw RunError(str("[fetch] ", path, " has the SHA-256 ", found, ", the registry's is ", sum,
                         "; its source offers another version than the one that lmx's numbers are of"));
  }
  if (options.directory.empty()) report.missing = locate(corpus).problem;
  return report;
}

// Download addresses of the corpora. Checksums are those of the registry (Corpus); unknown ones are left out.

namespace {

std::vector<Download> multi30k_files() {
  std::vector<Download> files;
  for (const char* split : {"train", "val", "test_2016_flickr", "test_2017_flickr"})
    for (const char* language : {"en", "de"}) {
      const std::string file = std::string(split) + "." + language + ".gz";
      files.push_back({"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/" + file, file, "gz"});
    }
  return files;
}

std::vector<Download> sst2_files() {
  std::vector<Download> files;
  for (const char* file : {"train.csv", "val.csv", "test.csv"})
    files.push_back(
        {std::string("https://raw.githubusercontent.com/NVIDIA/sentiment-discovery/master/data/binary_sst/") + file,
         file});
  return files;
}

// newstest2012 to 2014 are SGML files.
std::vector<Download> wmt14_en_fr_files() {
  const std::string wmt13 = "http://www.statmt.org/wmt13/training-parallel-";
  return {{wmt13 + "europarl-v7.tgz", "europarl-v7.tar.gz", "tar", 1},
          {wmt13 + "commoncrawl.tgz", "commoncrawl.tar.gz", "tar"},
          {wmt13 + "un.tgz", "un.tar.gz", "tar"},
          {"http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", "training-parallel-nc-v9.tar.gz", "tar"},
          {"http://www.statmt.org/wmt10/training-giga-fren.tar", "training-giga-fren.tar", "tar"},
          {.url = "http://www.statmt.org/wmt14/dev.tgz",
           .file = "dev.tar.gz",
           .unpack = "tar",
           .segments = {{"dev/newstest2012-src.en.sgm", "newstest2012.en"},
                        {"dev/newstest2012-ref.fr.sgm", "newstest2012.fr"},
                        {"dev/newstest2013-src.en.sgm", "newstest2013.en"},
                        {"dev/newstest2013-ref.fr.sgm", "newstest2013.fr"}}},
          {.url = "http://www.statmt.org/wmt14/test-full.tgz",
           .file = "test-full.tar.gz",
           .unpack = "tar",
           .segments = {{"test-full/newstest2014-fren-src.en.sgm", "newstest2014.en"},
                        {"test-full/newstest2014-fren-ref.fr.sgm", "newstest2014.fr"}}}};
}

}  // namespace

std::vector<Download> downloads_of(const std::string& corpus) {
  if (corpus == "multi30k") return multi30k_files();
  if (corpus == "news_commentary")
    return {{"http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz", "training-parallel-nc-v9.tar.gz", "tar"}};
  if (corpus == "one_billion_word")
    return {{.url = "http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz",
             .file = "1-billion-word-language-modeling-benchmark-r13output.tar.gz",
             .unpack = "tar",
             .strip = 1}};
  if (corpus == "paracrawl")  // cleaned pairs of a later release than the paper's; Corpus::get describes raw ones
    return {{"https://s3.amazonaws.com/web-language-models/paracrawl/release6/en-de.txt.gz", "part-release6.tsv.gz"}};
  if (corpus == "sst2") return sst2_files();
  if (corpus == "tinyshakespeare")
    return {{.url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
             .file = "input.txt"}};
  if (corpus == "wmt14_en_fr") return wmt14_en_fr_files();
  if (corpus == "wmt16_en_de")
    return {{"https://drive.usercontent.google.com/download?id=0B_bZck-ksdkpM25jRUN2X2UxMm8&export=download&confirm=t",
             "wmt16_en_de.tar.gz", "tar"}};
  return {};
}

}  // namespace lmx::app
