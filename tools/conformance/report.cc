#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "base/text.h"
#include "conformance/conformance.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app::conformance {

void Report::run(const std::string& name, const std::function<std::string()>& body) {
  std::cout << kBegins << name << std::endl;
  const auto line = [&](const char* verdict, const std::string& text) {
    std::cout << verdict << padded(name, 13) << " " << text << std::endl;
  };
  const auto failed = [&](const std::string& why) {
    ++failures_;
    if (why == why_) return line("FAIL  ", "as " + failed_);
    failed_ = name;
    why_ = why;
    line("FAIL  ", why);
  };
  try {
    const std::string seen = body();
    ++passes_;
    line("ok    ", seen);
  } catch (const Skipped& e) {
    line("skip  ", e.what());
  } catch (const std::exception& e) {
    failed(e.what());
  } catch (...) {
    failed("threw what is no std::exception");
  }
}

double at(const Tensor& t, int64_t i) {
  return t.dtype() == DType::f64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
}

double difference(const Tensor& a, const Tensor& b) {
  if (a.numel() != b.numel()) return INFINITY;
  double largest = 1e-6, apart = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(at(a, i)));
    const double d = std::abs(at(a, i) - at(b, i));
    apart = std::isfinite(d) ? std::max(apart, d) : INFINITY;
  }
  return apart / largest;
}

void check_form(const Gradient& gradient, const ParameterSpec& spec) {
  const auto form = [](bool sparse) { return sparse ? "row-sparse" : "dense"; };
  if (gradient.sparse() != spec.sparse)
    fail("the gradient of ", spec.name, " is ", form(gradient.sparse()), ", but parameters() says that it is ",
         form(spec.sparse), "; the plans of memory and exchange need it");
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  return std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

Tensor normal_values(Shape shape, DType type, uint64_t seed, double deviation) {
  Tensor t = Tensor::empty(Allocator::cpu(), shape, type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double v = deviation * RandomKey(seed).normal(static_cast<uint64_t>(i));
    if (type == DType::f64)
      t.data<double>()[i] = v;
    else
      t.data<float>()[i] = static_cast<float>(v);
  }
  return t;
}

namespace {

std::vector<int32_t> words(uint64_t seed, int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(2 + RandomKey(seed).below(static_cast<uint64_t>(i), kVocabulary - 2)));
  return ids;
}

Tensor tensor_of(const std::vector<int32_t>& ids, Shape shape) {
  return Tensor::from<int32_t>(Allocator::cpu(), shape, ids);
}

Batch rows_of(int64_t rows) {
  Batch b;
  for (int64_t i = 0; i < rows; ++i) b.slots.push_back(i);
  b.fresh.assign(static_cast<size_t>(rows), 1);
  return b;
}

}  // namespace

Batch text_batch(int64_t first, int64_t last, int64_t begin, int64_t end) {
  std::vector<int32_t> in, out;
  for (int64_t s = first; s < last; ++s) {
    const std::vector<int32_t> line = words(40 + static_cast<uint64_t>(s), kLength + 1);
    in.insert(in.end(), line.begin() + begin, line.begin() + end);
    out.insert(out.end(), line.begin() + begin + 1, line.begin() + end + 1);
  }
  Batch b = rows_of(last - first);
  for (int64_t& slot : b.slots) slot += first;
  b.inputs = tensor_of(in, {last - first, end - begin});
  b.targets = tensor_of(out, {last - first, end - begin});
  return b;
}

Batch pair_batch(int64_t first, int64_t last) {
  std::vector<int32_t> source, in, out;
  Batch b = rows_of(last - first);
  for (int64_t s = first; s < last; ++s) {
    b.slots[static_cast<size_t>(s - first)] = s;
    std::vector<int32_t> from = words(60 + static_cast<uint64_t>(s), 3 + 2 * s),
                         to = words(80 + static_cast<uint64_t>(s), 2 + 2 * s);
    from.push_back(Vocabulary::kEos);
    source.insert(source.end(), from.begin(), from.end());
    in.push_back(Vocabulary::kEos);
    in.insert(in.end(), to.begin(), to.end());
    out.insert(out.end(), to.begin(), to.end());
    out.push_back(Vocabulary::kEos);
    b.source_lengths.push_back(static_cast<int64_t>(from.size()));
    b.lengths.push_back(static_cast<int64_t>(to.size()) + 1);
  }
  b.inputs = tensor_of(in, {static_cast<int64_t>(in.size())});
  b.targets = tensor_of(out, {static_cast<int64_t>(out.size())});
  b.source = tensor_of(source, {static_cast<int64_t>(source.size())});
  return b;
}

}  // namespace lmx::app::conformance
