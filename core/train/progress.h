// Progress of a training: sums between two log steps, speed, remaining time, and the text of the progress line.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "runfiles/metrics.h"

namespace lmx {

// Sums since the last record. They are saved in a checkpoint, so that a resumed run writes the same records.
struct Window {
  double nats = 0;
  int64_t tokens = 0;            // targets whose loss is in `nats`
  int64_t skipped = 0;           // updates skipped because of divergence
  double grad_norm = 0, lr = 0;  // of the last step whose gradients did not overflow; of the last step
  int64_t updates = 0;
  int64_t positions = 0, padded = 0;  // for sub-batches: tokens of both sides; the same with padding
  int64_t overflows = 0;
  std::map<std::string, double> terms = {};        // sums of the terms that the model adds to the loss, by name
  std::map<std::string, int64_t> overflowed = {};  // number of overflows by parameter
  std::map<std::string, int64_t> rows = {};        // updated rows of parameters with row-sparse gradients
};

// Time spent in training. It stops during validation and checkpoints.
class Stopwatch {
 public:
  void start() { begin_ = Clock::now(); }
  double stop() {  // seconds since start()
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    seconds_ += seconds;
    return seconds;
  }
  double lap();                                // seconds since the last lap
  double elapsed() const { return seconds_; }  // the same, without starting a new lap

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  double seconds_ = 0;
};

struct Pace {
  int64_t step = 0, total_steps = 0;
  double seconds_per_step = 0;
  double tokens_per_second = 0;
};

// How the loss of training is shown.
struct LossText {
  std::string unit;      // what a token is: word, char, byte, subword
  bool sampled = false;  // over a part of the words: exp(loss) is not comparable with the perplexity of a validation
};

// "step 250/2000  ETA 3m20s  loss 4.1032  ppl 60.5  412k words/s  lr 2.14e-04  gnorm 0.87". Two spaces separate the
// parts, of which a narrow terminal shows the first ones (shortened()).
std::string progress_text(const Window& window, const Pace& pace, const LossText& loss);
// The bin of a histogram for a duration, four bins for each factor of two, and the minimum seconds of a bin.
int64_t duration_bin(double seconds);
double duration_of_bin(int64_t bin);
// "45s", "3m20s", "2h05m", "3d04h".
std::string duration_text(double seconds);
// "412k", "1.2M", "87".
std::string rate_text(double per_second);

}  // namespace lmx
