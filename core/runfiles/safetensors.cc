// The safetensors format: u64 header length (little endian), JSON header, data. A file may come from any source, so its
// header is checked before use: sizes against the file, offsets against each other, names for duplicates.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "backend/cuda.h"
#include "base/files.h"
#include "base/output_file.h"
#include "base/repeated_keys.h"
#include "runfiles/checkpoint.h"

namespace lmx {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr int kMaxDepth = 4;                  // {name: {shape: [..]}} needs 3

struct Entry {
  std::string name;
  DType type = DType::f32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

[[noreturn]] void damaged_file(const std::string& path, const std::string& why) {
  throw UserError(str("[checkpoint] ", path, " is no intact safetensors file: ", why));
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

// JSON would silently use the later of two equal names, and end at a NUL byte.
Json parse_header(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) damaged_file(path, "its header is no JSON");
  RepeatedKeys repeated;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) damaged_file(path, "its header is nested too deeply");
    if (repeated.found(depth, event, value))
      damaged_file(path, str("its header names '", value.get<std::string>(), "' twice"));
    return true;
  };
  try {
    Json header = Json::parse(text, check);
    if (!header.is_object()) damaged_file(path, "its header is no JSON object");
    return header;
  } catch (const Json::exception&) {
    damaged_file(path, "its header is no JSON");
  }
}

DType read_type(const Json& value, const std::string& name, const std::string& path) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  std::string known;
  for (const DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    const std::string own = upper(name_of(t));
    if (own == text) return t;
    known += str(known.empty() ? "" : ", ", own);
  }
  throw UserError(
      str("[checkpoint] tensor '", name, "' of ", path, " has the type ", text, "; lmx reads the types ", known));
}

// Non-negative sizes whose product fits into 64 bits; at most Shape::kMaxRank of them.
Shape read_shape(const Json& value, const std::string& name, const std::string& path) {
  if (!value.is_array() || value.size() > Shape::kMaxRank)
    damaged_file(path, str("the shape of tensor '", name, "' is ", value.dump()));
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (const Json& size : value) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX)
      damaged_file(path, str("the shape of tensor '", name, "' is ", value.dump()));
    dims.push_back(size.get<int64_t>());
    if (__builtin_mul_overflow(product, dims.back(), &product))
      damaged_file(path, str("tensor '", name, "' ", value.dump(), " is larger than memory can be"));
  }
  return Shape(std::span<const int64_t>(dims));
}

Entry read_entry(const std::string& name, const Json& value, uint64_t data_size, const std::string& path) {
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets"))
    damaged_file(path, str("tensor '", name, "' lacks dtype, shape or data_offsets"));
  Entry e{name, read_type(value["dtype"], name, path), read_shape(value["shape"], name, path)};
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    damaged_file(path, str("the offsets of tensor '", name, "' are ", offsets.dump()));
  e.begin = offsets[0];
  e.end = offsets[1];
  if (e.begin > e.end || e.end > data_size)
    damaged_file(path, str("tensor '", name, "' is at bytes ", e.begin, " to ", e.end, " of ", data_size,
                           "; the file is truncated or its header wrong"));
  const uint64_t size = size_of(e.type);
  if ((e.end - e.begin) % size != 0 || (e.end - e.begin) / size != static_cast<uint64_t>(e.shape.numel()))
    damaged_file(path, str("tensor '", name, "' ", e.shape, " ", name_of(e.type), " does not fill its ",
                           e.end - e.begin, " bytes"));
  return e;
}

// The entries in the order of their data, which they must cover without overlaps or gaps.
std::vector<Entry> read_entries(const Json& header, uint64_t data_size, const std::string& path) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__") entries.push_back(read_entry(name, value, data_size, path));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin != at)
      damaged_file(path, str("tensor '", e.name, "' begins at byte ", e.begin, " where ", at, " is expected (",
                             e.begin < at ? "overlap" : "hole", ")"));
    at = e.end;
  }
  if (at != data_size) damaged_file(path, str(data_size - at, " bytes after the last tensor belong to none"));
  return entries;
}

std::string make_header(const StateDict& tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  header["__metadata__"] = metadata;
  header["__metadata__"].emplace("format", "pt");  // some Python readers reject a file without it
  uint64_t at = 0;
  for (const auto& [name, t] : tensors) {
    const uint64_t end = at + static_cast<uint64_t>(t.bytes());
    const std::vector<int64_t> shape(t.shape().dims().begin(), t.shape().dims().end());
    header[name] = {{"dtype", upper(name_of(t.dtype()))}, {"shape", shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts at a multiple of eight bytes
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::map<std::string, std::string>& metadata) {
  LMX_CHECK(!tensors.contains("__metadata__"), "a tensor cannot have this name");
  const std::string header = make_header(tensors, metadata);
  const uint64_t length = header.size();
  OutputFile file(path);
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (const auto& [name, t] : tensors) {
    const Tensor here = t.device().kind == Device::Kind::cpu ? t : copy_to(t, Allocator::cpu());
    file.write(here.raw(), static_cast<size_t>(here.bytes()));
  }
  file.close();
}

namespace {

struct Layout {
  Json header;
  std::vector<Entry> entries;
  uint64_t data = 0;  // offset of the data in the file
};

// Reads and checks the header. `file` is then positioned at the start of the data.
Layout read_layout(InputFile& file, const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) throw UserError(str("[checkpoint] cannot read ", path, ": ", error.message()));
  uint64_t length = 0;
  if (file.read(reinterpret_cast<char*>(&length), sizeof length) != sizeof length)
    damaged_file(path, str("it has ", size, " bytes; the length of the header alone takes 8"));
  if (length > kMaxHeader || length > size - sizeof length)
    damaged_file(path, str("the stated length of its header is ", length, " bytes, and the file has ", size));
  std::string text(length, '\0');
  if (file.read(text.data(), length) != length) damaged_file(path, "it ends in its header");
  const uint64_t data = sizeof length + length;
  Json header = parse_header(text, path);
  std::vector<Entry> entries = read_entries(header, size - data, path);
  return {std::move(header), std::move(entries), data};
}

// An allocator that returns the memory of a mapped file. A tensor's storage holds its allocator, so the mapping exists
// as long as the tensor.
class MappedFile final : public Allocator {
 public:
  MappedFile(const std::string& path, size_t size) : size_(size) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) at_ = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (at_ == MAP_FAILED) throw UserError(str("[checkpoint] cannot map ", path, ": ", std::strerror(error)));
  }
  ~MappedFile() override { munmap(at_, size_); }
  std::byte* at(uint64_t offset) { return static_cast<std::byte*>(at_) + offset; }
  void next(std::byte* block) { next_ = block; }  // the block that allocate() returns

  Device device() const override { return {}; }
  void* allocate(size_t, MemClass) override {
    LMX_CHECK(next_, "a tensor of a mapped file is cloned");
    return std::exchange(next_, nullptr);
  }
  void release(void*, size_t, MemClass) noexcept override {}
  void charge(size_t, MemClass) override {}
  void discharge(size_t, MemClass) noexcept override {}
  MemoryStats stats() const override { return {}; }
  void reset_peak() override {}
  void trim() override {}

 private:
  void* at_ = MAP_FAILED;
  std::byte* next_ = nullptr;
  size_t size_;
};

}  // namespace

StateDict load_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator) {
  InputFile file(path, Content::bytes);
  StateDict tensors;
  for (const Entry& e : read_layout(file, path).entries) {
    Tensor t = Tensor::empty(allocator, e.shape, e.type, MemClass::other);
    if (file.read(static_cast<char*>(t.raw()), e.end - e.begin) != e.end - e.begin)
      damaged_file(path, str("it ends in tensor '", e.name, "'"));
    tensors.emplace(e.name, std::move(t));
  }
  return tensors;
}

std::map<std::string, std::string> safetensors_metadata(const std::string& path) {
  InputFile file(path, Content::bytes);
  const Json header = read_layout(file, path).header;
  std::map<std::string, std::string> metadata;
  if (const auto found = header.find("__metadata__"); found != header.end() && found->is_object())
    for (const auto& [key, value] : found->items())
      if (value.is_string()) metadata[key] = value.get<std::string>();
  return metadata;
}

StateDict map_safetensors(const std::string& path, const std::shared_ptr<Allocator>& allocator) {
  InputFile file(path, Content::bytes);
  const Layout layout = read_layout(file, path);
  if (layout.entries.empty() || layout.entries.back().end == 0) return load_safetensors(path, allocator);
  const auto mapped = std::make_shared<MappedFile>(path, layout.data + layout.entries.back().end);
  StateDict tensors;
  for (const Entry& e : layout.entries) {
    std::byte* values = mapped->at(layout.data + e.begin);
    const bool aligned = reinterpret_cast<uintptr_t>(values) % size_of(e.type) == 0;
    mapped->next(values);
    Tensor t = Tensor::empty(aligned && e.end > e.begin ? mapped : allocator, e.shape, e.type, MemClass::other);
    if (!aligned) std::memcpy(t.raw(), values, e.end - e.begin);
    tensors.emplace(e.name, std::move(t));
  }
  return tensors;
}

}  // namespace lmx
