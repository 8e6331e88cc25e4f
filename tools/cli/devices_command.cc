// lmx devices
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/memory/memory_check.h"
#include "app/print/terminal.h"
#include "backend/cuda.h"
#include "backend/cudnn.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output/json_output.h"
#include "lmx/error.h"
#include "lmx/matmul.h"

namespace lmx::app::cli {
namespace {

void list_devices(bool as_json) {
  const int64_t memory = machine_memory().bytes;
  std::vector<std::vector<std::string>> rows{{"DEVICE", "NAME", "MEMORY", "CUDA OF DRIVER", "CUDA OF LMX"},
                                             {"cpu", cpu_isa(), bytes_text(memory), "", ""}};
  Json devices = Json::array();
  devices.push_back({{"device", "cpu"}, {"name", cpu_isa()}, {"memory_bytes", memory}});
  for (int i = 0; i < load_cuda(); ++i) {
    const CudaDeviceInfo info = cuda_device_info(i);
    const std::string device = name_of(Device{Device::Kind::cuda, i});
    const std::string driver = cuda_version_text(info.driver), runtime = cuda_version_text(info.runtime);
    rows.push_back({device, lmx::describe(info), bytes_text(info.memory), driver, runtime});
    devices.push_back({{"device", device},
                       {"name", info.name},
                       {"compute_capability", str(info.major, ".", info.minor)},
                       {"memory_bytes", info.memory},
                       {"driver", driver},
                       {"runtime", runtime}});
  }
  const std::string& reason = cuda_unavailable();
  const CudnnApi* api = reason.empty() ? load_cudnn() : nullptr;
  const std::string cudnn = api ? cudnn_version_text(api->version) : "";
  const std::string no_cudnn = reason.empty() && !api ? cudnn_unavailable() : "";
  if (as_json) {
    Json all{{"devices", devices}};
    if (!reason.empty()) all["cuda_unavailable"] = reason;
    if (!cudnn.empty()) all["cudnn"] = cudnn;
    if (!no_cudnn.empty()) all["cudnn_unavailable"] = no_cudnn;
    return print_json(all);
  }
  std::cout << table(rows);
  if (!reason.empty()) std::cout << "no CUDA device: " << reason << "\n";
  if (!cudnn.empty()) std::cout << "cuDNN " << cudnn << "\n";
  if (!no_cudnn.empty()) std::cout << "no cuDNN: " << no_cudnn << "\n";
}

}  // namespace

void add_devices(Command app) {
  const Command command = app.add_subcommand("devices", "the devices of this machine on which a recipe can compute");
  set_examples(command, {{"lmx devices", "the CPU and each GPU, or why there is no GPU"},
                         {"lmx run recipes/quickstart.yaml device=cuda:1", "trains on the second GPU"}});
  const auto as_json = std::make_shared<bool>(false);
  add_json(command, *as_json);
  command.callback([as_json] { list_devices(*as_json); });
}

}  // namespace lmx::app::cli
