#include "data/shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lmx/data.h"
#include "lmx/error.h"

namespace lmx {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and mapped as they lie");

struct Header {
  char magic[8] = {'L', 'M', 'X', 'T', 'O', 'K', '\r', '\n'};  // a copy in text mode changes these bytes
  uint32_t version = 1;
  uint32_t token_bytes = 4;
  int64_t count = 0;
  uint64_t content_hash = 0;  // XXH3-64 of the ids
  char unused[24] = {};
  uint64_t header_hash = 0;  // XXH3-64 of the fields above
  uint64_t own_hash() const { return XXH3_64bits(this, offsetof(Header, header_hash)); }
};
static_assert(sizeof(Header) == 64);

[[noreturn]] void damaged(const std::string& path, const std::string& how) {
  throw UserError(str("[data] token shard ", path, " is damaged (", how, "); delete the directory ",
                      std::filesystem::path(path).parent_path().string(), " and it will be prepared again"));
}

struct Mapping {
  void* base = MAP_FAILED;
  size_t bytes = 0;
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (base != MAP_FAILED) munmap(base, bytes);
  }
};

}  // namespace

struct ShardWriter::Impl {
  OutputFile file;
  XXH3_state_t* state;
  int64_t count = 0;
  explicit Impl(const std::string& path) : file(path), state(XXH3_createState()) { XXH3_64bits_reset(state); }
  ~Impl() { XXH3_freeState(state); }
};

ShardWriter::ShardWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  const char blank[sizeof(Header)] = {};
  impl_->file.write(blank, sizeof blank);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const int32_t> tokens) {
  XXH3_64bits_update(impl_->state, tokens.data(), tokens.size_bytes());
  impl_->file.write(tokens.data(), tokens.size_bytes());
  impl_->count += static_cast<int64_t>(tokens.size());
}

int64_t ShardWriter::finish() {
  Header header;
  header.count = impl_->count;
  header.content_hash = XXH3_64bits_digest(impl_->state);
  header.header_hash = header.own_hash();
  impl_->file.write_at(&header, sizeof header, 0);
  impl_->file.close();
  return impl_->count;
}

TokenArray TokenArray::map(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) damaged(path, std::strerror(errno));
  struct stat info {};
  auto mapping = std::make_shared<Mapping>();
  if (fstat(descriptor, &info) == 0 && info.st_size >= static_cast<int64_t>(sizeof(Header))) {
    mapping->bytes = static_cast<size_t>(info.st_size);
    mapping->base = mmap(nullptr, mapping->bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  if (mapping->bytes == 0) damaged(path, str(info.st_size, " bytes, shorter than its header"));
  if (mapping->base == MAP_FAILED) throw RunError(str("[data] cannot map ", path, ": ", std::strerror(errno)));

  Header header;
  std::memcpy(&header, mapping->base, sizeof header);
  if (std::memcmp(header.magic, Header{}.magic, sizeof header.magic) != 0)
    damaged(path, "not a token shard, or not finished");
  if (header.header_hash != header.own_hash()) damaged(path, "its header's checksum is wrong");
  if (header.version != 1 || header.token_bytes != 4)
    damaged(path, str("format version ", header.version, ", this lmx reads 1"));
  const int64_t expected = static_cast<int64_t>(sizeof(Header)) + 4 * header.count;
  if (info.st_size != expected) damaged(path, str(info.st_size, " bytes, its header says ", expected));
  const char* content = static_cast<const char*>(mapping->base) + sizeof(Header);
  madvise(mapping->base, mapping->bytes, MADV_SEQUENTIAL);  // the checksum reads in order; training reads in any order
  if (XXH3_64bits(content, 4 * static_cast<size_t>(header.count)) != header.content_hash) {
    damaged(path, "the checksum of its content is wrong");
  }
  madvise(mapping->base, mapping->bytes, MADV_NORMAL);
  TokenArray array;
  array.data_ = reinterpret_cast<const int32_t*>(content);
  array.size_ = header.count;
  array.owner_ = std::move(mapping);
  return array;
}

TokenArray TokenArray::map_parts(std::span<const Part> parts) {
  auto mappings = std::make_shared<std::vector<Mapping>>(parts.size());
  auto pieces = std::make_shared<std::vector<Piece>>();
  TokenArray array;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    LMX_CHECK((part.width == 2 || part.width == 4) && part.count >= 0 && part.offset % part.width == 0, part.path);
    Mapping& mapping = (*mappings)[i];
    const int descriptor = open(part.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw UserError(str("[data] cannot read ", part.path, ": ", std::strerror(errno)));
    struct stat info {};
    const int64_t needed = part.offset + part.width * part.count;
    const bool whole = fstat(descriptor, &info) == 0 && info.st_size >= needed;
    if (whole && needed > 0) {
      mapping.bytes = static_cast<size_t>(needed);
      mapping.base = mmap(nullptr, mapping.bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    }
    close(descriptor);
    if (!whole) throw UserError(str("[data] ", part.path, " has ", info.st_size, " bytes, fewer than ", needed));
    if (part.count == 0) continue;
    if (mapping.base == MAP_FAILED) throw RunError(str("[data] cannot map ", part.path, ": ", std::strerror(errno)));
    pieces->push_back({static_cast<const char*>(mapping.base) + part.offset, array.size_, part.width});
    array.size_ += part.count;
  }
  array.owner_ = std::move(mappings);
  if (pieces->size() == 1 && pieces->front().width == 4)
    array.data_ = reinterpret_cast<const int32_t*>(pieces->front().data);
  else if (!pieces->empty())
    array.pieces_ = std::move(pieces);
  return array;
}

std::span<const int32_t> TokenArray::tokens() const {
  LMX_CHECK(!pieces_, "tokens of several parts or of 2 bytes have no span");
  return {data_, static_cast<size_t>(size_)};
}

void TokenArray::copy(int64_t first, std::span<int32_t> to) const {
  LMX_CHECK(first >= 0 && first + std::ssize(to) <= size_, "tokens ", first, " + ", to.size(), " of ", size_);
  if (!pieces_) {
    std::copy_n(data_ + first, to.size(), to.data());
    return;
  }
  auto piece = std::upper_bound(pieces_->begin(), pieces_->end(), first,
                                [](int64_t token, const Piece& p) { return token < p.begin; }) -
               1;
  for (int64_t done = 0; done < std::ssize(to); ++piece) {
    const int64_t end = piece + 1 == pieces_->end() ? size_ : (piece + 1)->begin;
    const int64_t from = first + done - piece->begin, n = std::min(end - first - done, std::ssize(to) - done);
    if (piece->width == 4)
      std::copy_n(reinterpret_cast<const int32_t*>(piece->data) + from, n, to.data() + done);
    else
      std::copy_n(reinterpret_cast<const uint16_t*>(piece->data) + from, n, to.data() + done);
    done += n;
  }
}

TokenArray TokenArray::repeated(const std::vector<int32_t>& tokens, int64_t size) {
  constexpr int64_t kBlock = int64_t{1} << 22;  // tokens; whole pages
  if (size <= kBlock) {
    std::vector<int32_t> all(static_cast<size_t>(std::max<int64_t>(size, 0)));
    for (size_t i = 0; i < all.size(); ++i) all[i] = tokens[i % tokens.size()];
    return of(std::move(all));
  }
  constexpr size_t kBytes = kBlock * sizeof(int32_t);
  constexpr int64_t kMost = 16'384;  // blocks, of the 65,530 mappings that Linux allows a process
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  const auto too_long = [&] { return UserError(str("[data] a text of ", size, " tokens is too long to be counted")); };
  if (blocks > kMost) throw too_long();
  const int file = memfd_create("lmx-text", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kBytes) != 0) throw RunError(str("[data] memfd_create: ", std::strerror(errno)));
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = static_cast<size_t>(blocks) * kBytes;
  mapping->base = mmap(nullptr, mapping->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  bool mapped = mapping->base != MAP_FAILED;
  for (int64_t i = 0; mapped && i < blocks; ++i)
    mapped = mmap(static_cast<char*>(mapping->base) + static_cast<size_t>(i) * kBytes, kBytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  close(file);
  if (!mapped) throw too_long();
  auto* first = static_cast<int32_t*>(mapping->base);
  for (size_t i = 0; i < static_cast<size_t>(kBlock); ++i) first[i] = tokens[i % tokens.size()];
  TokenArray array;
  array.data_ = first;
  array.size_ = size;
  array.owner_ = std::move(mapping);
  return array;
}

TokenArray TokenArray::of(std::vector<int32_t> tokens) {
  auto owned = std::make_shared<std::vector<int32_t>>(std::move(tokens));
  TokenArray array;
  array.data_ = owned->data();
  array.size_ = static_cast<int64_t>(owned->size());
  array.owner_ = std::move(owned);
  return array;
}

}  // namespace lmx
