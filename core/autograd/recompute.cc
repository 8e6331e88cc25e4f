#include "lmx/recompute.h"

#include <utility>

namespace lmx {
namespace {

// Adds the gradients of out = f(x) to those of x and of all leaves that f uses.
void differentiate_again(Context& ctx, const Var& x, const Var& out, const std::function<Var(Context&, const Var&)>& f,
                         const Tape& outer) {
  Tape tape;
  tape.wrap = outer.wrap;
  Context again = ctx;
  again.tape = &tape;
  const Var input(x.value());
  tape.record("recompute_input", {x}, {input},
              [&ctx, x, input](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(input)); });
  Tape::accumulate(again, f(again, input), Tape::grad_of(out));
  tape.backward(again, Var(ctx.zeros({1})));  // from the gradient that is already there
}

}  // namespace

Var recompute(Context& ctx, const Var& x, std::vector<Var> parameters, std::function<Var(Context&, const Var&)> f) {
  if (!ctx.tape) return f(ctx, x);
  Context quiet = ctx;
  quiet.tape = nullptr;
  const Var out(f(quiet, x).value());
  parameters.push_back(x);
  ctx.tape->record("recompute", std::move(parameters), {out},
                   [&ctx, x, out, f = std::move(f)](Tape& outer) { differentiate_again(ctx, x, out, f, outer); });
  return out;
}

}  // namespace lmx
