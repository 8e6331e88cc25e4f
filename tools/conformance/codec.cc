// Checks of codecs: sizes, the round trip, and values that must keep their meaning.
#include "lmx/codec.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cuda.h"
#include "conformance/conformance.h"

namespace lmx::app::conformance {
namespace {

const std::vector<int64_t> kSizes{1, 2, 3, 7, 64, 65, 1000, 4099};

class CodecCheck {
 public:
  explicit CodecCheck(const Subject& s) : s_(s), codec_(create<CodecFactory>(s.plugin, s.config, "codec")) {
    if (!codec_) fail("the factory returns no codec");
    if (s.device.kind != Device::Kind::cpu) compute_on(ctx_, s.device);
  }

  void run(Report& report) {
    report.run("bytes", [&] { return bytes(); });
    report.run("feedback", [&] { return feedback(); });
    report.run("encoding", [&] { return encoding(); });
    report.run("round trip", [&] { return round_trip(); });
    report.run("zeros", [&] { return zeros(); });
    report.run("finite", [&] { return finite(); });
    report.run("not finite", [&] { return not_finite(); });
    if (s_.device.kind != Device::Kind::cpu) report.run("on device", [&] { return as_on_the_cpu(); });
  }

 private:
  static std::vector<float> normal(int64_t n, float size = 1) {
    const Tensor t = normal_values({n}, DType::f32, static_cast<uint64_t>(n), static_cast<double>(size));
    return {t.data<float>(), t.data<float>() + n};
  }
  Tensor tensor(const std::vector<float>& values) const {
    return ctx_.upload(Tensor::from<float>(ctx_.host, {static_cast<int64_t>(values.size())}, values));
  }
  // Encodes into memory that is full of `before`.
  Tensor encoded(const std::vector<float>& values, uint8_t before = 0) {
    const int64_t size = codec_->bytes(static_cast<int64_t>(values.size()));
    const std::vector<uint8_t> filled(static_cast<size_t>(size), before);
    Tensor to = ctx_.empty({size}, DType::u8);
    to.copy_from(ctx_.upload(Tensor::from<uint8_t>(ctx_.host, {size}, filled)));
    codec_->encode(ctx_, tensor(values), to);
    return to;
  }
  template <class T>
  std::vector<T> on_host(const Tensor& t) const {
    const auto reading = ctx_.read<T>(t);
    const auto values = reading.get();
    return {values.begin(), values.end()};
  }
  std::vector<float> decoded(const std::vector<float>& values, float before = NAN) {
    const Tensor from = encoded(values), to = ctx_.empty({static_cast<int64_t>(values.size())});
    Tensor(to).copy_from(tensor(std::vector<float>(values.size(), before)));
    codec_->decode(ctx_, from, to);
    return on_host<float>(to);
  }
  // The size of the quantisation error, relative to the values.
  double error_of(const std::vector<float>& values) {
    const std::vector<float> got = decoded(values);
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double lost = static_cast<double>(values[i]) - static_cast<double>(got[i]);
      error += lost * lost;
      norm += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    return std::sqrt(error / norm);
  }

  std::string bytes() const {
    if (codec_->bytes(0) != 0) fail("bytes(0) is ", codec_->bytes(0), "; no values are no message");
    int64_t before = 0;
    for (int64_t n = 1; n <= kSizes.back(); ++n) {
      const int64_t size = codec_->bytes(n);
      if (size < 1 || size < before) fail("bytes(", n, ") is ", size, ", and bytes(", n - 1, ") is ", before);
      before = size;
    }
    constexpr int64_t kMany = 1 << 20;
    return str(8.0 * static_cast<double>(codec_->bytes(kMany)) / kMany, " bits for each of many values");
  }

  std::string feedback() const {
    const double part = codec_->feedback();
    if (!(part >= 0 && part <= 1)) fail("feedback() is ", part, ", no number from 0 to 1");
    return part == 0 ? "none" : str("the next exchange adds ", part, " times the error");
  }

  std::string encoding() {
    for (const int64_t n : kSizes) {
      const std::vector<float> values = normal(n);
      const auto first = on_host<uint8_t>(encoded(values, 0)), second = on_host<uint8_t>(encoded(values, 0xFF));
      for (size_t i = 0; i < first.size(); ++i)
        if (first[i] != second[i])
          fail("byte ", i, " of ", n, " encoded values is ", int{first[i]}, ", then ", int{second[i]},
               "; encode() must write every byte, and the same ones each time");
    }
    return "every byte is written, the same each time";
  }

  std::string round_trip() {
    double worst = 0;
    for (const int64_t n : kSizes)
      for (const float size : {1e-4f, 1.0f, 1e4f}) {
        const std::vector<float> values = normal(n, size);
        const double error = error_of(values);
        if (!(error < 1))
          fail("the error of ", n, " values of size ", size, " is ", error,
               " of their norm; error feedback needs less than 1, and decode() must write all values");
        worst = std::max(worst, error);
      }
    return str("the error is at most ", worst, " of the values' norm, and ", error_of(normal(kSizes.back())),
               " for many normal ones");
  }

  std::string zeros() {
    for (const int64_t n : kSizes)
      for (const float v : decoded(std::vector<float>(static_cast<size_t>(n))))
        if (v != 0) fail(n, " zeros are decoded as ", v, "; a parameter without a gradient would change");
    return "zeros are decoded as zeros";
  }

  std::string finite() {
    for (const float v : {1e-45f, -1e-38f, 1e-20f, 1.0f, -1e20f, 1e30f}) {
      std::vector<float> values = normal(100);
      for (const bool all : {true, false}) {
        if (all)
          std::fill(values.begin(), values.end(), v);
        else
          values[50] = v;
        for (const float got : decoded(values))
          if (!std::isfinite(got)) fail("values from 0 to ", v, " are decoded as ", got);
      }
    }
    return "finite values stay finite, from 1e-45 to 1e30";
  }

  std::string not_finite() {
    for (const float v : {INFINITY, -INFINITY, NAN})
      for (const int64_t n : kSizes) {
        std::vector<float> values = normal(n);
        values[static_cast<size_t>(n / 2)] = v;
        const float got = decoded(values, 0)[static_cast<size_t>(n / 2)];
        if (std::isfinite(got))
          fail(v, " among ", n, " values is decoded as ", got, "; a divergence would not be seen");
      }
    return "a value that is not finite is not decoded as a finite one";
  }

  std::string as_on_the_cpu() {
    Subject here = s_;
    here.device = {};
    CodecCheck cpu(here);
    double apart = 0;
    for (const int64_t n : kSizes) {
      const std::vector<float> values = normal(n), own = decoded(values), other = cpu.decoded(values);
      apart = std::max(
          apart, difference(Tensor::from<float>(ctx_.host, {n}, own), Tensor::from<float>(ctx_.host, {n}, other)));
    }
    if (apart > 1e-5) fail("the device decodes other values, which differ by ", apart, " of the largest");
    return str("decodes what the CPU decodes, up to ", apart);
  }

  const Subject& s_;
  Context ctx_;
  std::unique_ptr<VectorCodec> codec_;
};

}  // namespace

void check_codec(Report& report, const Subject& subject) {
  report.run("construction", [&] {
    const CodecCheck check(subject);
    if (subject.device.kind == Device::Kind::cpu) return std::string("on the CPU");
    return str("on ", name_of(subject.device), ", ", describe(cuda_device_info(subject.device.index)));
  });
  if (report.failures() == 0) CodecCheck(subject).run(report);
}

}  // namespace lmx::app::conformance
