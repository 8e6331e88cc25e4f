// comm: {name: gloo, ...}
#pragma once

#include "processes/process_config.h"

namespace lmx_gloo {

struct GlooConfig : lmx::processes::ProcessConfig {
  std::string interface;
  int64_t port = 0;
  bool direct = true;
  void fields(lmx::Fields& f) {
    ProcessConfig::fields(f);
    f.field("interface", interface,
            "network interface of this host for the data (eth1); empty: the one that reaches MASTER_ADDR");
    f.field("port", port,
            "port at MASTER_ADDR where rank 0 serves the addresses of the ranks at the start; 0: MASTER_PORT, below "
            "torchrun, which uses that port itself, the next one",
            {0, 65535});
    f.field(
        "direct", direct,
        "in collectives, ranks of one host copy long tensors from each other's memory, as far as the kernel allows it; "
        "false: all data is sent over TCP");
  }
};

}  // namespace lmx_gloo
