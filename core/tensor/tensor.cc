#include "lmx/tensor.h"

#include <array>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "lmx/dtype.h"
#include "lmx/error.h"

namespace lmx {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  LMX_CHECK(rank_ <= kMaxRank, "a tensor has at most ", kMaxRank, " dimensions, not ", rank_);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t d : dims())
    if (__builtin_mul_overflow(n, d, &n))
      throw UserError(
          str("a tensor of the shape ", *this, " has more elements than 64 bits count: a size is too large"));
  return n;
}

bool Shape::operator==(const Shape& o) const {
  return rank_ == o.rank_ && std::equal(dims_.begin(), dims_.begin() + rank_, o.dims_.begin());
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ')';
}

struct Tensor::Storage {
  Storage(std::shared_ptr<Allocator> a, size_t n, MemClass c)
      : allocator(std::move(a)), bytes(n), mem_class(c), block(allocator->allocate(n, c)) {}
  // Uses another storage's block; this storage's allocator counts the bytes as well.
  Storage(std::shared_ptr<Allocator> a, size_t n, MemClass c, std::shared_ptr<Storage> from)
      : allocator(std::move(a)), bytes(n), mem_class(c), block(from->block), lender(std::move(from)) {
    allocator->charge(bytes, mem_class);
  }
  ~Storage() {
    if (lender) {
      allocator->discharge(bytes, mem_class);
    } else {
      allocator->release(block, bytes, mem_class);
    }
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::shared_ptr<Allocator> allocator;
  size_t bytes;
  MemClass mem_class;
  void* block;
  std::shared_ptr<Storage> lender;
};

Tensor Tensor::empty(const std::shared_ptr<Allocator>& allocator, Shape shape, DType type, MemClass c) {
  LMX_CHECK(allocator != nullptr);
  for (int64_t d : shape.dims()) LMX_CHECK(d >= 0, "negative size in ", shape);
  Tensor t;
  t.shape_ = shape;
  t.numel_ = shape.numel();
  t.dtype_ = type;
  if (t.numel_ > std::numeric_limits<int64_t>::max() / 8)
    throw UserError(str("a tensor of the shape ", shape, " has more bytes than 64 bits count: a size is too large"));
  t.storage_ = std::make_shared<Storage>(allocator, static_cast<size_t>(t.bytes()), c);
  t.base_ = t.storage_->block;
  return t;
}

Tensor Tensor::zeros(const std::shared_ptr<Allocator>& allocator, Shape shape, DType type, MemClass c) {
  Tensor t = empty(allocator, shape, type, c);
  t.zero();
  return t;
}

template <class T>
Tensor Tensor::from(const std::shared_ptr<Allocator>& allocator, Shape shape, std::span<const T> values, MemClass c) {
  Tensor t = empty(allocator, shape, dtype_of<T>, c);
  LMX_CHECK(static_cast<int64_t>(values.size()) == t.numel_, values.size(), " values for shape ", shape);
  t.expect_host();
  if (!values.empty()) std::memcpy(t.base_, values.data(), values.size_bytes());
  return t;
}
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const double>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const float>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const bfloat16>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const float16>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const int32_t>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const int64_t>, MemClass);
template Tensor Tensor::from(const std::shared_ptr<Allocator>&, Shape, std::span<const uint8_t>, MemClass);

Device Tensor::device() const {
  return storage_ ? storage_->allocator->device() : Device{};
}

MemClass Tensor::mem_class() const {
  return storage_ ? storage_->mem_class : MemClass::other;
}

const std::shared_ptr<Allocator>& Tensor::allocator() const {
  LMX_CHECK(defined(), "an undefined tensor has no allocator");
  return storage_->allocator;
}

void Tensor::expect(DType type) const {
  LMX_CHECK(defined() && type == dtype_, "elements read as ", name_of(type), " of ", describe(*this));
}

void Tensor::expect_host() const {
  LMX_CHECK(device().kind == Device::Kind::cpu, "the host reads ", describe(*this), " on ", name_of(device()));
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  LMX_CHECK(rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0], "rows [", begin, ", ", end, ") of ", shape_);
  Tensor view = *this;
  const int64_t row = shape_[0] ? numel_ / shape_[0] : 0;
  view.shape_[0] = end - begin;
  view.numel_ = row * (end - begin);
  view.base_ = static_cast<std::byte*>(base_) + begin * row * static_cast<int64_t>(size_of(dtype_));
  return view;
}

Tensor Tensor::reshape(Shape shape) const {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      LMX_CHECK(unknown < 0, "two unknown sizes in ", shape);
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0) shape[unknown] = known ? numel_ / known : 0;
  LMX_CHECK(shape.numel() == numel_, "cannot reshape ", shape_, " to ", shape);
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::like(MemClass c) const {
  return empty(allocator(), shape_, dtype_, c);
}

Tensor Tensor::clone(MemClass c) const {
  Tensor copy = like(c);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::clone() const {
  return clone(mem_class());
}

void Tensor::zero() {
  if (numel_) allocator()->zero(base_, static_cast<size_t>(bytes()));
}

void Tensor::copy_from(const Tensor& source) {
  LMX_CHECK(source.dtype_ == dtype_ && source.shape_ == shape_, "copy of ", describe(source), " into ",
            describe(*this));
  LMX_CHECK(source.device() == device(), "copy from ", name_of(source.device()), " to ", name_of(device()));
  if (numel_) allocator()->copy(base_, source.base_, static_cast<size_t>(bytes()));
}

Tensor Tensor::lent(const std::shared_ptr<Allocator>& allocator, MemClass c) const {
  LMX_CHECK(defined() && allocator != nullptr);
  Tensor view = *this;
  view.storage_ = std::make_shared<Storage>(allocator, static_cast<size_t>(bytes()), c, storage_);
  return view;
}

namespace {

// Calls f with a value of the C++ type that corresponds to a floating-point element type.
template <class F>
void with_floating(DType type, F&& f) {
  switch (type) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::f16:
      return f(float16{});
    default:
      LMX_CHECK(false, name_of(type), " is no floating type");
  }
}

template <class To, class From>
To convert(From v) {
  if constexpr (std::is_same_v<To, double> || std::is_same_v<From, double>) {
    if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>)
      return static_cast<float>(v);
    else if constexpr (std::is_same_v<From, double>)
      return To(static_cast<float>(v));
    else
      return static_cast<double>(static_cast<float>(v));
  } else {
    return To(static_cast<float>(v));
  }
}

}  // namespace

Tensor Tensor::to(DType type) const {
  if (type == dtype_) return *this;
  Tensor out = empty(allocator(), shape_, type, mem_class());
  with_floating(dtype_, [&](auto from) {
    with_floating(type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      if constexpr (!std::is_same_v<From, To>) {
        const From* in = static_cast<const From*>(base_);
        To* result = static_cast<To*>(out.raw());
        for (int64_t i = 0; i < numel_; ++i) result[i] = convert<To>(in[i]);
      }
    });
  });
  return out;
}

std::string describe(const Tensor& t) {
  return t.defined() ? str(t.shape(), ' ', name_of(t.dtype())) : "an undefined tensor";
}

namespace {

struct Row {
  std::string_view name;
  size_t size;
};
constexpr std::array<Row, 7> kTypes{
    {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i32", 4}, {"i64", 8}, {"u8", 1}}};

}  // namespace

size_t size_of(DType type) {
  return kTypes[static_cast<size_t>(type)].size;
}

std::string_view name_of(DType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

DType dtype_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
    names.emplace_back(kTypes[i].name);
  }
  throw UserError(str("[tensor] unknown element type '", name, "'", did_you_mean(name, names)));
}

}  // namespace lmx
