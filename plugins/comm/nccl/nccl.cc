// Ranks are processes with a device each. The group of the host starts them and finds lost ones; NCCL carries tensors
// from device to device.
#include <algorithm>
#include <cstdlib>

#include "lmx/launch.h"
#include "lmx/plugin.h"
#include "nccl_communicator.h"
#include "nccl_link.h"

namespace lmx_nccl {
namespace {

using lmx::str;

class NcclGroup final : public lmx::CommGroup {
 public:
  NcclGroup(std::unique_ptr<lmx::CommGroup> host, const NcclConfig& config)
      : host_(std::move(host)),
        native_(config.reduce == "native"),
        start_s_(config.lag_s > 0 ? std::max(config.lag_s, config.timeout_s) : 0) {}
  int size() const override { return host_->size(); }
  void run(const std::function<void(lmx::Communicator&)>& body) override {
    host_->run([&](lmx::Communicator& host) {
      NcclCommunicator comm(host, native_, start_s_);
      body(comm);
      comm.finish();
    });
  }
  std::string describe() const override { return host_->describe() + ", NCCL between GPUs"; }

 private:
  std::unique_ptr<lmx::CommGroup> host_;
  bool native_;
  double start_s_;
};

// The name of the group of the host.
std::string host_of(const NcclConfig& config) {
  if (config.host != "auto") return config.host;
  switch (lmx::detect_launch().launcher) {
    case lmx::Launcher::open_mpi:
    case lmx::Launcher::mpich:
      return "mpi";
    case lmx::Launcher::slurm:
      return std::getenv("MASTER_ADDR") ? "gloo" : "mpi";
    case lmx::Launcher::none:
      return LMX_HAS_GLOO ? "gloo" : "mpi";
    default:
      return "gloo";
  }
}

// The settings of the group of the host, which are those of `node` that it has.
lmx::Node host_config(const lmx::Node& node, const std::string& path, const NcclConfig& config) {
  const std::string host = host_of(config);
  lmx::Node own = lmx::Node::map(node.mark);
  own.set("name", lmx::Node::string(host, node.mark));
  for (const auto& [key, value] : node.entries) {
    const bool gloo_only = key == "interface" || key == "port" || key == "direct";
    if (key == "name" || key == "host") continue;
    if (gloo_only && host != "gloo") {
      if ((key == "port" && config.port == 0) || (key == "interface" && config.interface.empty()) ||
          (key == "direct" && config.direct))
        continue;
      throw lmx::UserError(str("[", path, "] ", key, " is a setting of host=gloo, and the host is ", host));
    }
    own.set(key, value);
  }
  return own;
}

std::unique_ptr<lmx::CommGroup> make_nccl(const lmx::Node& node, const std::string& path, const lmx::CommEnv& env) {
  const auto config = lmx::read_config<NcclConfig>(node, path);
  const lmx::Node host = host_config(node, path, config);
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::comm, host, path);
  return std::make_unique<NcclGroup>(lmx::create<lmx::CommFactory>(plugin, host, path, env), config);
}

}  // namespace
}  // namespace lmx_nccl

LMX_PLUGIN(comm, nccl, lmx_nccl::NcclConfig, lmx_nccl::make_nccl)
