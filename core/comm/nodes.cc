// The nodes of ranks, and the parts of a group that they define.
#include <map>

#include "comm/part.h"
#include "lmx/error.h"

namespace lmx {

RankNodes::RankNodes(int ranks, int64_t per_node) {
  for (int r = 0; r < ranks; ++r) node_of_.push_back(per_node > 0 ? static_cast<int>(r / per_node) : 0);
  finish();
}

RankNodes::RankNodes(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  for (const std::string& host : hosts)
    node_of_.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  finish();
}

void RankNodes::finish() {
  for (int r = 0; r < static_cast<int>(node_of_.size()); ++r) {
    const auto node = static_cast<size_t>(node_of_[static_cast<size_t>(r)]);
    if (node == members_.size()) members_.emplace_back();
    members_[node].push_back(r);
  }
  per_node_ = static_cast<int>(members_.front().size());
  for (const std::vector<int>& node : members_)
    if (static_cast<int>(node.size()) != per_node_) per_node_ = 0;
}

std::vector<int> RankNodes::peers(int rank) const {
  LMX_CHECK(per_node_ > 0, "nodes with different numbers of ranks");
  size_t place = 0;
  while (node(rank)[place] != rank) ++place;
  std::vector<int> peers;
  for (const std::vector<int>& node : members_) peers.push_back(node[place]);
  return peers;
}

const RankNodes& Communicator::nodes() const {
  if (!nodes_) nodes_ = std::make_shared<const RankNodes>(size(), 0);
  return *nodes_;
}

Communicator& Communicator::in_node() {
  if (!in_node_) {
    LMX_CHECK(nodes().per_node() > 0, "nodes with different numbers of ranks");
    const std::vector<int>& members = nodes().node(rank());
    in_node_ = std::make_unique<CommunicatorPart>(*this, members, static_cast<int64_t>(members.size()));
  }
  return *in_node_;
}

Communicator& Communicator::between_nodes() {
  if (!between_nodes_) between_nodes_ = std::make_unique<CommunicatorPart>(*this, nodes().peers(rank()), 1);
  return *between_nodes_;
}

CommunicatorPart::CommunicatorPart(Communicator& whole, std::vector<int> members, int64_t per_node)
    : Communicator(whole.allocator_, whole.threads()), whole_(whole), members_(std::move(members)) {
  device_memory_ = whole.device_memory_;
  ledger_ = whole.ledger_;
  carrier_ = &whole;
  set_nodes(std::make_shared<const RankNodes>(size(), per_node));
  while (members_[static_cast<size_t>(rank_)] != whole.rank()) ++rank_;
}

std::vector<int64_t> CommunicatorPart::of_whole(const RankRows& rows) const {
  std::vector<int64_t> all(static_cast<size_t>(whole_.size()));
  for (int r = 0; r < size(); ++r) all[static_cast<size_t>(members_[static_cast<size_t>(r)])] = rows[r];
  return all;
}

// Members ascend, so the rows for them are in the order in which the whole group expects them.
std::vector<Tensor> CommunicatorPart::do_all_to_all(const Tensor& own, const RankRows& to, const RankRows& from) {
  std::vector<Tensor> all = whole_.do_all_to_all(own, of_whole(to), of_whole(from)), got;
  for (const int member : members_) got.push_back(std::move(all[static_cast<size_t>(member)]));
  return got;
}

Tensor CommunicatorPart::do_all_gather(const Tensor& own, const RankRows& rows) {
  return whole_.do_gather_among(members_, own, rows);
}

Tensor Communicator::do_gather_among(std::span<const int> members, const Tensor& own, const RankRows& rows) {
  const auto n = static_cast<int64_t>(members.size()), mine = own.dim(0);
  const auto with_rows = [&](int64_t count) {
    Shape shape = own.shape();
    shape[0] = count;
    return Tensor::empty(allocator(own.device()), shape, own.dtype(), MemClass::communication);
  };
  std::vector<int64_t> to(static_cast<size_t>(size())), from = to;
  for (int i = 0; i < n; ++i) {
    const auto member = static_cast<size_t>(members[static_cast<size_t>(i)]);
    to[member] = mine;
    from[member] = rows[i];
  }
  std::vector<Tensor> parts;
  {
    Tensor copies = with_rows(n * mine);
    for (int64_t i = 0; i < n; ++i) copies.slice(i * mine, (i + 1) * mine).copy_from(own);
    parts = do_all_to_all(copies, to, from);
  }
  parts[static_cast<size_t>(rank())] = own;  // this part is a view of the copies, whose memory ends here
  Tensor all = with_rows(rows.total());
  int64_t at = 0;
  for (const int member : members) {
    const Tensor& part = parts[static_cast<size_t>(member)];
    all.slice(at, at + part.dim(0)).copy_from(part);
    at += part.dim(0);
  }
  return all;
}

Tensor CommunicatorPart::do_broadcast(const Tensor& t, int root) {
  const Tensor flat = t.reshape({-1});
  std::vector<int64_t> rows(members_.size());
  rows[static_cast<size_t>(root)] = flat.numel();
  return do_all_gather(rank_ == root ? flat : flat.slice(0, 0), rows).reshape(t.shape());
}

void CommunicatorPart::do_barrier() {
  const Tensor one = Tensor::zeros(allocator(), {1}, DType::u8, MemClass::communication);
  do_all_gather(one, RankRows::same(size(), 1));
}

}  // namespace lmx
