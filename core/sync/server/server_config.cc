// Keys of a rule whose parameters are stored on a server.
#include "lmx/error.h"
#include "lmx/param_server.h"

namespace lmx {

void DelayConfig::fields(Fields& f) {
  f.choice("kind", kind, {"fixed", "exponential", "trace"}, "duration of a worker's step in simulated time");
  f.field("mean", mean, "fixed, exponential: mean duration of a step, in simulated seconds", kNonNegative);
  f.field("spread", spread, "workers differ in speed: durations of one are multiplied by 1 + spread u, u in [-1, 1)",
          {0, 0.99});
  f.field(
      "file", file,
      "trace: seconds, a line a step; one column for each worker, or one column, which they begin at equal distances");
}

void ServerConfig::fields(Fields& f) {
  f.group("codec", codec, "how gradients are encoded on the way to the server; parameters are sent back unchanged");
  f.group("delay", delay, "the simulated clock of virtual ranks; processes (comm=mpi) use real time");
  f.field("schedule", schedule, "file into which the order of pulls and pushes is written; empty: none");
  f.field("replay", replay,
          "a file written by `schedule`, whose order is repeated, in threads or in processes; empty: none");
}

void ServerConfig::check(const std::string& where) const {
  codec.check(where);
  codec.check_sums(where, "a server adds each push to its values in fp32");
  if ((delay.kind == "trace") != !delay.file.empty())
    throw UserError(str(where, ".delay: ",
                        delay.file.empty() ? "kind trace needs a file of durations"
                                           : str("a file of durations is for kind trace, not ", delay.kind)));
}

Traits ServerConfig::traits() const {
  return {{trait::kWorkerClock, str("delay {kind: ", delay.kind, ", mean: ", delay.mean, ", spread: ", delay.spread,
                                    ", file: '", delay.file, "'}, schedule '", schedule, "', replay '", replay, "'")}};
}

}  // namespace lmx
