// `lmx plugins check`: the checks that every plugin of a kind must pass, one line per check, and the values that they
// compare.
#pragma once

#include <functional>
#include <string>

#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "lmx/tensor.h"

namespace lmx::app::conformance {

// A check failed. The text contains the observed and the expected result.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Args>
[[noreturn]] void fail(const Args&... args) {
  throw Failed(str(args...));
}
// A check does not apply. The text gives the reason.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Report {
 public:
  // `body` returns the observed result. Prints a line to stdout immediately, so that it is visible if the next check
  // crashes. A failure with the same text as the one before names that check instead.
  void run(const std::string& name, const std::function<std::string()>& body);
  int failures() const { return failures_; }
  int passes() const { return passes_; }

 private:
  int failures_ = 0, passes_ = 0;
  std::string failed_, why_;  // the last check that failed with another text than the one before, and its text
};

struct Subject {
  const PluginInfo& plugin;
  Node config;  // the plugin's subtree of a recipe, with `name`
  // A strategy that does not promise the exact sum; a loss whose gradient is an approximation.
  bool approximate = false;
  Device device = {};  // of the ranks of a strategy, and of a codec
};
void check_model(Report& report, const Subject& subject);
// Compares a model on a CUDA device with the CPU: features, gradients, states.
void check_model_on(Report& report, const Subject& subject, Device device);
void check_sync(Report& report, const Subject& subject);
void check_batcher(Report& report, const Subject& subject);
void check_loss(Report& report, const Subject& subject);
void check_optimizer(Report& report, const Subject& subject);
// Compares an optimizer on a CUDA device with the CPU: parameters and states.
void check_optimizer_on(Report& report, const Subject& subject, Device device);
void check_schedule(Report& report, const Subject& subject);
void check_metric(Report& report, const Subject& subject);
// On the subject's device; on a CUDA device also compares it with the CPU.
void check_codec(Report& report, const Subject& subject);

// Start of a line that names the check that begins, for the parent process; the parent does not print it.
inline constexpr char kBegins = '\x01';

// Values of tensors in the host's memory, for comparisons.

// Element i of an f32 or f64 tensor.
double at(const Tensor& t, int64_t i);

// Returns the largest difference of two tensors' elements, divided by the largest element; infinite if a size differs
// or an element is not finite.
double difference(const Tensor& a, const Tensor& b);

// Returns whether shape, type and all bytes are equal.
bool same_bytes(const Tensor& a, const Tensor& b);

// An f32 or f64 tensor of normal random values with this standard deviation, which depend on the seed alone.
Tensor normal_values(Shape shape, DType type, uint64_t seed, double deviation = 1);

// Fails if the gradient is row-sparse where the parameter is declared dense, or the reverse.
void check_form(const Gradient& gradient, const ParameterSpec& spec);

// The batches on which models are checked.

inline constexpr int64_t kVocabulary = 23, kSequences = 3, kLength = 6;

// Returns sequences `first` to `last` of a text batch, positions `begin` to `end`.
Batch text_batch(int64_t first = 0, int64_t last = kSequences, int64_t begin = 0, int64_t end = kLength);

// Returns pairs of sentences of 4 and 3, 6 and 5, 8 and 7 words, including </s>.
Batch pair_batch(int64_t first = 0, int64_t last = kSequences);

}  // namespace lmx::app::conformance
