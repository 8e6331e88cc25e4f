#include "ranks.h"

#include <map>
#include <string>
#include <vector>

#include "lmx/device_comm.h"
#include "lmx/error.h"
#include "nccl_library.h"

namespace lmx_nccl {
namespace {

using lmx::str;
using lmx::UserError;

constexpr const char* kCpu = "cpu";

// The text of a rank for the others: "cpu", '!' and the reason why it has no NCCL, or the identity of its device and
// the device's name. No identity contains '!' or ' '.
std::string own_text(lmx::Device device) {
  if (device.kind == lmx::Device::Kind::cpu) return kCpu;
  try {
    static_cast<void>(library());
  } catch (const UserError& e) {
    return str("!", e.what());
  }
  return str(lmx::identity_of(device), ' ', name_of(device));
}

}  // namespace

void require_exchange(lmx::Communicator& host, lmx::Device device) {
  const std::vector<std::string> texts = host.gather_texts(own_text(device), "");
  host.clear_ledger();
  const auto ranks = static_cast<int>(texts.size());
  std::map<std::string, int> owner;  // of a device, by its identity
  int on_cpu = -1, on_device = -1;
  for (int r = 0; r < ranks; ++r) {
    const std::string& text = texts[static_cast<size_t>(r)];
    if (text.starts_with('!')) throw UserError(r == 0 ? text.substr(1) : str(text.substr(1), " (rank ", r, ")"));
    (text == kCpu ? on_cpu : on_device) = r;
    if (text == kCpu) continue;
    const size_t blank = text.find(' ');
    const auto [found, added] = owner.emplace(text.substr(0, blank), r);
    if (!added)
      throw UserError(str("[nccl] comm.name=nccl: ranks ", found->second, " and ", r, " of ", ranks,
                          " have the same GPU (", text.substr(blank + 1), " of rank ", r,
                          "), and NCCL connects one rank for each GPU; start at most as many ranks on a host as it has "
                          "GPUs, with device=cuda, or use comm.name=virtual, whose ranks share a GPU"));
  }
  if (on_cpu >= 0 && on_device >= 0)
    throw UserError(str("[nccl] comm.name=nccl: rank ", on_cpu, " of ", ranks, " computes on the CPU, and rank ",
                        on_device, " on a GPU; give device=cuda, which is an error where no GPU is available"));
}

}  // namespace lmx_nccl
