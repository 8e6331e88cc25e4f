#include "base/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "lmx/error.h"

namespace lmx {
namespace {

constexpr size_t kBuffer = 1 << 18;
constexpr std::string_view kGzip = "\x1f\x8b", kZstd = "\x28\xb5\x2f\xfd", kSkippable = "\x2a\x4d\x18";

[[noreturn]] void refuse(const std::string& path, const char* format, const std::string& why) {
  throw UserError(str("[data] ", path, " is a damaged or truncated ", format, " file: ", why));
}

bool may_be(std::string_view first, std::string_view magic) {
  return first.starts_with(magic) || magic.starts_with(first);
}

// A frame that zstd skips, such as those of pzstd, begins with 0x50 to 0x5F and kSkippable.
bool may_be_skippable(std::string_view first) {
  return !first.empty() && (first[0] & 0xF0) == 0x50 && may_be(first.substr(1), kSkippable);
}

class Gzip : public Unpacker {
 public:
  Gzip(Source source, std::string path) : source_(std::move(source)), path_(std::move(path)), in_(kBuffer) {
    LMX_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, path_);  // the largest window, with gzip's header
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t read_some(char* buffer, size_t bytes) override {
    const size_t step = std::min<size_t>(bytes, 1u << 30);
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    stream_.avail_out = static_cast<uInt>(step);
    while (stream_.avail_out == step && !ended_ && step > 0) {
      if (stream_.avail_in == 0) fill();
      if (between_ && !ended_) next_member();
      if (ended_) break;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      between_ = code == Z_STREAM_END;
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        refuse(path_, "gzip", stream_.msg ? stream_.msg : "invalid data");
    }
    return step - stream_.avail_out;
  }

 private:
  void fill() {
    const size_t n = source_(in_.data(), in_.size());
    if (n == 0 && !between_) refuse(path_, "gzip", "unexpected end of file");
    ended_ = n == 0;
    stream_.next_in = reinterpret_cast<Bytef*>(in_.data());
    stream_.avail_in = static_cast<uInt>(n);
  }
  // A file may have several members. Any other bytes after the last one are padding, as for gzip itself.
  void next_member() {
    ended_ = *stream_.next_in != static_cast<Bytef>(kGzip[0]);
    inflateReset(&stream_);
    between_ = false;
  }

  Source source_;
  std::string path_;
  std::vector<char> in_;
  z_stream stream_{};
  bool between_ = false;  // a member has ended
  bool ended_ = false;
};

class Zstd : public Unpacker {
 public:
  Zstd(Source source, std::string path) : source_(std::move(source)), path_(std::move(path)), in_(kBuffer) {}

  size_t read_some(char* buffer, size_t bytes) override {
    ZSTD_outBuffer out{buffer, bytes, 0};
    while (out.pos == 0 && bytes > 0) {
      if (next_.pos == next_.size) {
        next_ = {in_.data(), source_(in_.data(), in_.size()), 0};
        if (next_.size == 0 && left_ == 0) return 0;  // the end of the last frame
      }
      const size_t taken = next_.pos;
      left_ = ZSTD_decompressStream(stream_.get(), &out, &next_);
      if (ZSTD_isError(left_)) refuse(path_, "zstd", ZSTD_getErrorName(left_));
      if (next_.size == 0 && out.pos == 0 && next_.pos == taken) refuse(path_, "zstd", "unexpected end of file");
    }
    return out.pos;
  }

 private:
  Source source_;
  std::string path_;
  std::vector<char> in_;
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> stream_{ZSTD_createDCtx(), ZSTD_freeDCtx};
  ZSTD_inBuffer next_{nullptr, 0, 0};
  size_t left_ = 0;  // 0: a frame has ended
};

}  // namespace

bool Unpacker::may_begin(std::string_view first) {
  return may_be(first, kGzip) || may_be(first, kZstd) || may_be_skippable(first);
}

bool Unpacker::whole(std::string_view first) {
  const bool zstd = first.size() >= kZstd.size() && (first.starts_with(kZstd) || may_be_skippable(first));
  return first.starts_with(kGzip) || zstd;
}

std::unique_ptr<Unpacker> Unpacker::make(std::string_view first, Source source, const std::string& path) {
  if (first.starts_with(kGzip)) return std::make_unique<Gzip>(std::move(source), path);
  return std::make_unique<Zstd>(std::move(source), path);
}

}  // namespace lmx
