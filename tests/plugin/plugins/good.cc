// A plugin as it should be, small: its factory answers a number that its config holds.
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "lmx/plugin.h"

namespace {

// Code that runs as soon as the library is loaded, and leaves a trace.
[[gnu::constructor]] void leave_witness() {
  if (const char* file = std::getenv("LMX_TEST_WITNESS")) std::ofstream(file) << "loaded\n";
}

struct GoodConfig {
  int64_t length = 35;
  std::string order = "corpus";
  bool explode = false;
  void fields(lmx::Fields& f) {
    f.field("length", length, "tokens of a sequence", lmx::kPositive);
    f.choice("order", order, {"corpus", "random"}, "order of the sequences");
    f.field("explode", explode, "throw in the factory");
  }
};

int64_t make_length(const lmx::Node& config, const std::string& path) {
  const GoodConfig c = lmx::read_config<GoodConfig>(config, path);
  if (c.explode) throw std::runtime_error("the fuse was lit");
  return c.length;
}

}  // namespace

LMX_PLUGIN(batcher, test_good, GoodConfig, make_length)
