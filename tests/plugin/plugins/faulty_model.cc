// A bigram model with dropout. Its faults 3, 7 and 8 break one promise each, and 4, 5, 9 and 10 fail in forward(),
// where 11 raises SIGINT. With the fault 2 it takes memory that a device that counts does not see.
#include <csignal>
#include <map>

#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"

namespace {

struct Config {
  int64_t size = 8;
  double dropout = 0.5;
  int64_t window = 0;
  int64_t fault = 0;
  void fields(lmx::Fields& f) {
    f.field("size", size, "numbers of a word's vector, and of the features", lmx::kPositive);
    f.field("dropout", dropout, "share of the features that are dropped", lmx::kFraction);
    f.field("window", window, "past positions in the state, which nothing reads", lmx::kNonNegative);
    f.field("fault", fault, "the promise that is broken; 0: none", lmx::kNonNegative);
  }
};

class Faulty : public lmx::Model {
 public:
  Faulty(const Config& config, int64_t vocabulary) : c_(config), vocabulary_(vocabulary) {}

  std::vector<lmx::ParameterSpec> parameters() const override {
    return {{"table", {vocabulary_, c_.size}, {"uniform", 0.1}, c_.fault != 8},
            {"weight", {c_.size, c_.size}, {"xavier_uniform", 1}, false},
            {"bias", {c_.size}, {"zeros", 0}, false}};
  }
  lmx::Var forward(lmx::Context& ctx, const lmx::ParameterStore& params, const lmx::Batch& batch,
                   lmx::ModelState&) const override {
    if (c_.fault == 4) static_cast<void>(std::map<int, int>().at(7));
    if (c_.fault == 5 && !ctx.device.counts) raise(SIGSEGV);
    if (c_.fault == 11) raise(SIGINT);
    if (c_.fault == 9) static_cast<void>(params.at("wieght"));
    if (c_.fault == 10) LMX_CHECK(batch.tokens() < 0, batch.tokens(), " tokens");
    if (c_.fault == 2 && !ctx.device.counts) {
      static lmx::Tensor held;
      held = ctx.empty({1000 * batch.tokens()});
    }
    lmx::Tensor ids = batch.inputs;
    if (c_.fault == 7) {  // positions of the sequence, not of the document
      ids = ids.clone();
      for (int64_t i = 0; i < ids.numel(); ++i)
        ids.data<int32_t>()[i] = static_cast<int32_t>((ids.data<int32_t>()[i] + i % ids.dim(1)) % vocabulary_);
    }
    const lmx::Var words = lmx::embedding(ctx, params.at("table"), ids);
    const lmx::Var hidden = lmx::tanh(ctx, lmx::linear(ctx, words, params.at("weight"), params.at("bias")));
    const lmx::Var features = lmx::reshape(ctx, hidden, {batch.tokens(), c_.size});
    const lmx::RandomKey key = ctx.key.fold("dropout");
    if (c_.fault == 3) return lmx::dropout(ctx, features, c_.dropout, key);  // keyed by the element's index
    std::vector<uint64_t> rows;
    for (const int64_t slot : batch.slots)
      for (int64_t t = 0; t < batch.inputs.dim(1); ++t) rows.push_back(static_cast<uint64_t>(slot * 4096 + t));
    return lmx::dropout(ctx, features, c_.dropout, key, rows);
  }
  lmx::ModelState initial_state(lmx::Context& ctx, int64_t sequences) const override {
    if (c_.window == 0) return {};
    return {{"window", ctx.zeros({sequences, c_.window, c_.size})}};
  }
  int64_t feature_size() const override { return c_.size; }
  bool separates_documents() const override { return c_.fault == 7; }

 private:
  Config c_;
  int64_t vocabulary_;
};

std::unique_ptr<lmx::Model> make(const lmx::Node& config, const std::string& path, const lmx::ModelEnv& env) {
  return std::make_unique<Faulty>(lmx::read_config<Config>(config, path), env.vocab_size);
}

}  // namespace

LMX_PLUGIN(model, test_model, Config, make)
