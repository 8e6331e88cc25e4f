#include "nccl_communicator.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lmx/device_comm.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "nccl_link.h"

namespace lmx_nccl {

using lmx::Device;
using lmx::MemClass;
using lmx::RankRows;
using lmx::Shape;
using lmx::Tensor;

namespace {

Shape with_rows(const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return shape;
}

bool all_equal(const RankRows& rows) {
  for (int r = 1; r < rows.ranks(); ++r)
    if (rows[r] != rows[0]) return false;
  return true;
}

}  // namespace

NcclCommunicator::NcclCommunicator(lmx::Communicator& host, bool native, double start_s)
    : Communicator(host.allocator(), host.threads()), host_(host), native_(native), start_s_(start_s) {
  set_nodes(std::make_shared<const lmx::RankNodes>(host.nodes()));
}

void NcclCommunicator::join(Device device) {
  if (link_) {
    LMX_CHECK(device == device_, "rank ", rank(), " has joined with ", name_of(device_), " and now has ",
              name_of(device));
    host_.use_device(allocator(device), allocator());  // those of the present session
    return;
  }
  require_exchange(host_, device);
  device_ = device;
  if (device.kind == Device::Kind::cpu) return;
  host_.use_device(allocator(device), allocator());
  const Library& nccl = library();
  link_ = std::make_unique<NcclLink>(nccl, device, host_, start_s_);
  host_.clear_ledger();
  if (rank() == 0) lmx::log_debug(lmx::str("[nccl] NCCL ", version_text(nccl.version), " connects ", size(), " GPUs"));
}

void NcclCommunicator::finish() {
  if (link_) link_->finish();
  link_.reset();
}

NcclLink* NcclCommunicator::link_for(const Tensor& t) const {
  if (link_) link_->require_working();
  if (t.device().kind == Device::Kind::cpu) return nullptr;
  LMX_CHECK(link_ && t.device() == device_, "rank ", rank(), " exchanges a tensor on ", name_of(t.device()),
            " before it has joined with that device");
  return link_.get();
}

Tensor NcclCommunicator::do_all_gather(const Tensor& own, const RankRows& rows) {
  NcclLink* const link = link_for(own);
  if (!link) return by_host(host_.all_gather(own, rows, ""));
  if (!all_equal(rows)) {
    std::vector<int> everyone(static_cast<size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    return do_gather_among(everyone, own, rows);
  }
  Tensor all = Tensor::empty(allocator(device_), with_rows(own, rows.total()), own.dtype(), MemClass::communication);
  link->run("all_gather", [&] { link->all_gather(own, all); });
  return all;
}

// Parts exchange tensors of the host rarely: they take the default.
Tensor NcclCommunicator::do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) {
  NcclLink* const link = link_for(own);
  if (!link) return Communicator::do_gather_among(members, own, rows);
  const std::vector<int64_t> begins = rows.begins();
  Tensor all = Tensor::empty(allocator(device_), with_rows(own, begins.back()), own.dtype(), MemClass::communication);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < members.size(); ++i) {
    parts.push_back(all.slice(begins[i], begins[i + 1]));
    if (members[i] == rank()) parts.back().copy_from(own);
  }
  link->run("all_gather", [&] {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank()) continue;
      link->send(own, members[i]);
      link->receive(parts[i], members[i]);
    }
  });
  return all;
}

std::vector<Tensor> NcclCommunicator::do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) {
  NcclLink* const link = link_for(own);
  if (!link) return by_host(host_.all_to_all(own, to, from, ""));
  const std::vector<int64_t> begins = to.begins();
  const auto part = [&](int r) {
    return own.slice(begins[static_cast<size_t>(r)], begins[static_cast<size_t>(r) + 1]);
  };
  std::vector<Tensor> got;
  for (int r = 0; r < size(); ++r)
    got.push_back(
        r == rank() ? part(r)
                    : Tensor::empty(allocator(device_), with_rows(own, from[r]), own.dtype(), MemClass::communication));
  link->run("all_to_all", [&] {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      link->send(part(r), r);
      link->receive(got[static_cast<size_t>(r)], r);
    }
  });
  return got;
}

Tensor NcclCommunicator::do_broadcast(const Tensor& t, int root) {
  NcclLink* const link = link_for(t);
  if (!link) return by_host(host_.broadcast(t, root, ""));
  Tensor got = rank() == root ? t : Tensor::empty(allocator(device_), t.shape(), t.dtype(), MemClass::communication);
  link->run("broadcast", [&] { link->broadcast(t, got, root); });
  return got;
}

void NcclCommunicator::do_barrier() {
  if (link_) link_->require_working();
  host_.barrier();
}

Tensor NcclCommunicator::do_all_reduce(const Tensor& t) {
  if (!native_) return {};
  NcclLink* const link = link_for(t);
  if (!link) return by_host(host_.all_reduce(t, ""));
  Tensor sum = Tensor::empty(allocator(device_), t.shape(), t.dtype(), MemClass::communication);
  link->run("all_reduce", [&] { link->all_reduce(t, sum); });
  return sum;
}

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
