// comm: {name: nccl, ...}
#pragma once

#include "processes/process_config.h"

namespace lmx_nccl {

struct NcclConfig : lmx::processes::ProcessConfig {
  std::string host = "auto";
  std::string interface;
  int64_t port = 0;
  bool direct = true;
  void fields(lmx::Fields& f) {
    f.choice(
        "host", host, {"auto", "mpi", "gloo"},
        "group that starts the ranks, finds lost ones and carries what is in the memory of the host; auto: by what "
        "started this process, gloo for torchrun and for lmx itself, mpi for mpirun and srun (for srun gloo, if "
        "MASTER_ADDR is set)");
    ProcessConfig::fields(f);
    f.field("interface", interface, "see comm.name=gloo; only with that host");
    f.field("port", port, "see comm.name=gloo; only with that host", {0, 65535});
    f.field("direct", direct, "see comm.name=gloo; only with that host");
  }
};

}  // namespace lmx_nccl
