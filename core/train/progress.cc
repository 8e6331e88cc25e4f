#include "train/progress.h"

#include <cmath>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx {
double Stopwatch::lap() {
  const double seconds = seconds_;
  seconds_ = 0;
  return seconds;
}

int64_t duration_bin(double seconds) {
  return static_cast<int64_t>(std::floor(4 * std::log2(std::max(seconds, 1e-9)) + 1e-9));
}

double duration_of_bin(int64_t bin) {
  return std::exp2(static_cast<double>(bin) / 4);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return format("%llds", s);
  if (s < 3600) return format("%lldm%02llds", s / 60, s % 60);
  if (s < 86400) return format("%lldh%02lldm", s / 3600, s % 3600 / 60);
  return format("%lldd%02lldh", s / 86400, s % 86400 / 3600);
}

std::string rate_text(double per_second) {
  if (per_second < 999.5) return format("%.0f", per_second);
  const double scaled = per_second < 999500 ? per_second / 1e3 : per_second / 1e6;
  return format(scaled < 10 ? "%.1f%s" : "%.0f%s", scaled, per_second < 999500 ? "k" : "M");
}

std::string progress_text(const Window& window, const Pace& pace, const LossText& loss) {
  std::string text =
      format("step %lld/%lld", static_cast<long long>(pace.step), static_cast<long long>(pace.total_steps));
  const int64_t left = pace.total_steps - pace.step;
  if (left > 0) text += str("  ETA ", duration_text(static_cast<double>(left) * pace.seconds_per_step));
  const double nats = window.tokens ? window.nats / static_cast<double>(window.tokens) : NAN;
  text += loss.sampled ? format("  sampled loss %.4f", nats) : format("  loss %.4f  ppl %.1f", nats, std::exp(nats));
  return text + str("  ", rate_text(pace.tokens_per_second), " ", loss.unit, "s/s") +
         format("  lr %.2e  gnorm %.2f", window.lr, window.grad_norm);
}

}  // namespace lmx
