// Every operation of a communicator, checked inside a rank. The data that each rank sends is a function of its number,
// so that each rank can compute the expected result. If moves_on() was called, the tensors are in a device's memory.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda.h"
#include "comm/part.h"
#include "comm/rank_device.h"
#include "lmx/comm.h"
#include "lmx/device_comm.h"
#include "lmx/error.h"

namespace lmx_test {

using lmx::Communicator;
using lmx::MemClass;
using lmx::Shape;
using lmx::str;
using lmx::Tensor;

inline void require(bool condition, const std::string& what) {
  if (!condition) throw lmx::InternalError("wrong: " + what);
}

inline lmx::Context& moves_context() {
  static lmx::Context ctx;
  return ctx;
}
// Collective.
inline void moves_on(Communicator& comm, const std::string& device) {
  moves_context().comm = &comm;
  lmx::comm::compute_with_ranks_on(moves_context(), lmx::comm::device_of_rank(device, "moves: ", comm));
}
// Only enqueues the copy, so that an exchange that does not wait for it sends wrong data.
inline Tensor there(const Tensor& t) {
  return moves_context().upload(t);
}
// The values. Waits for the work of ops, so that an exchange for which they do not wait gives wrong data; at every
// second call first for the exchange, so that one which does not wait for them sends wrong data.
inline Tensor here(const Tensor& t) {
  if (t.device() == lmx::Device{}) return t;
  static int calls = 0;
  if (++calls % 2 == 0) lmx::ExchangeStream(t.device()).wait();
  return copy_to(t, lmx::Allocator::cpu());
}

// Element i of rank r: values with arbitrary bits and different magnitudes.
inline double value_of(int rank, int64_t i) {
  const uint64_t mixed =
      (static_cast<uint64_t>(i) * 40503u + static_cast<uint64_t>(rank) * 7919u + 12345u) * 2654435761u;
  return (static_cast<double>(mixed >> 20 & 0xFFFFF) / 524288 - 1) * (mixed & 1 ? 1e-3 : 1e3);
}

template <class T>
Tensor tensor_of(Communicator& comm, int rank, Shape shape, int64_t salt = 0) {
  Tensor t = Tensor::empty(comm.allocator(), shape, lmx::dtype_of<T>, MemClass::communication);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = static_cast<T>(value_of(rank, i + salt));
  return t;
}

inline bool same_bits(const Tensor& got, const Tensor& want) {
  const Tensor a = here(got), b = here(want);
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

// The result must have the bits of a sum in rank order that starts from +0.
template <class T>
void check_all_reduce(Communicator& comm, int64_t n) {
  const Tensor got = comm.all_reduce(there(tensor_of<T>(comm, comm.rank(), {n})), "test");
  Tensor want = Tensor::zeros(comm.allocator(), {n}, lmx::dtype_of<T>);
  T* sums = want.data<T>();
  for (int r = 0; r < comm.size(); ++r)
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<T>(value_of(r, i));
  require(same_bits(got, want), str("all_reduce of ", n, " elements"));
}

// Rank r has `rows[r]` rows of three.
inline void check_all_gather(Communicator& comm, const std::vector<int64_t>& rows, bool announced) {
  const Tensor own = there(tensor_of<float>(comm, comm.rank(), {rows[static_cast<size_t>(comm.rank())], 3}));
  const Tensor all = announced ? comm.all_gather(own, rows, "test") : comm.all_gather(own, "test");
  int64_t begin = 0;
  for (int r = 0; r < comm.size(); ++r) {
    const int64_t n = rows[static_cast<size_t>(r)];
    require(same_bits(all.slice(begin, begin + n), tensor_of<float>(comm, r, {n, 3})), str("all_gather: part ", r));
    begin += n;
  }
  require(all.dim(0) == begin, "all_gather: rows");
}

// Rank a sends sizes[(a + 2 b) % 4] rows of two to rank b.
inline void check_all_to_all(Communicator& comm, const std::vector<int64_t>& sizes) {
  const auto rows_of = [&](int from, int to) { return sizes[static_cast<size_t>((from + 2 * to) % 4)]; };
  std::vector<int64_t> to, from;
  int64_t sent = 0, received = 0;
  for (int r = 0; r < comm.size(); ++r) {
    to.push_back(rows_of(comm.rank(), r));
    from.push_back(rows_of(r, comm.rank()));
    if (r == comm.rank()) continue;
    sent += to.back() * 16;
    received += from.back() * 16;
  }
  const std::vector<int64_t> begins = lmx::RankRows(to).begins();
  const Tensor own = Tensor::empty(comm.allocator(), {begins.back(), 2}, lmx::DType::f64, MemClass::communication);
  for (int r = 0; r < comm.size(); ++r) {
    const auto i = static_cast<size_t>(r);
    own.slice(begins[i], begins[i + 1]).copy_from(tensor_of<double>(comm, comm.rank(), {to[i], 2}, r));
  }
  const std::vector<Tensor> got = comm.all_to_all(there(own), to, from, "test");
  for (int r = 0; r < comm.size(); ++r)
    require(
        same_bits(got[static_cast<size_t>(r)], tensor_of<double>(comm, r, {rows_of(r, comm.rank()), 2}, comm.rank())),
        str("all_to_all: part ", r));
  const lmx::LedgerEntry& line = comm.ledger().back();
  require(line.collective == "all_to_all" && line.sent == sent && line.received == received, "all_to_all: ledger");
}

inline void check_broadcast(Communicator& comm, int64_t rows) {
  for (int root = 0; root < comm.size(); ++root) {
    const Tensor got = comm.broadcast(there(tensor_of<float>(comm, comm.rank(), {rows, 7})), root, "test");
    require(same_bits(got, tensor_of<float>(comm, root, {rows, 7})), str("broadcast of ", rows, " rows from ", root));
  }
}

// If the number of ranks is even, the even ranks and the odd ranks exchange at the same time, as two parts of the
// group; otherwise all ranks are one part. A rank has `rows` rows or a few more, and one rank has none.
inline std::vector<int> members_of_part(const Communicator& comm) {
  std::vector<int> members;
  const int parts = comm.size() % 2 == 0 ? 2 : 1;
  for (int r = comm.rank() % parts; r < comm.size(); r += parts) members.push_back(r);
  return members;
}
inline void check_parts(Communicator& comm, int64_t rows) {
  const std::vector<int> members = members_of_part(comm);
  std::vector<int64_t> of_members;
  for (const int r : members) of_members.push_back(r == 2 ? 0 : rows + r);
  lmx::CommunicatorPart part(comm, members, static_cast<int64_t>(members.size()));
  for (const bool announced : {false, true}) check_all_gather(part, of_members, announced);
  check_all_reduce<float>(part, 3 * rows);
  check_broadcast(part, rows);
  // Data of the other part would have other values.
  const auto tensor_of_member = [&](int r) { return tensor_of<float>(comm, members[static_cast<size_t>(r)], {rows}); };
  const Tensor own = there(tensor_of_member(part.rank())),
               all = part.all_gather(own, lmx::RankRows::same(part.size(), rows), "test");
  for (int r = 0; r < part.size(); ++r) {
    require(same_bits(all.slice(r * rows, (r + 1) * rows), tensor_of_member(r)), str("all_gather: member ", r));
    require(same_bits(part.broadcast(own, r, "test"), tensor_of_member(r)), str("broadcast from member ", r));
  }
}

// A gather in a part needs memory for its result alone.
inline void check_memory_of_parts(Communicator& comm, int64_t n) {
  const std::vector<int> members = members_of_part(comm);
  lmx::CommunicatorPart part(comm, members, static_cast<int64_t>(members.size()));
  const Tensor own = tensor_of<float>(comm, comm.rank(), {n});
  comm.allocator()->reset_peak();
  const int64_t before = comm.allocator()->stats().total;
  const Tensor all = part.all_gather(own, lmx::RankRows::same(part.size(), n), "test");
  const int64_t more = comm.allocator()->stats().total_peak - before;
  require(more <= (part.size() > 1 ? all.bytes() : 0) + 65536, str(more, " bytes to gather ", all.bytes()));
}

// Messages are in order per pair and tag, may be empty, and a rank sees who has sent one.
inline void check_messages(Communicator& comm) {
  if (comm.size() == 1) return;
  const std::unique_ptr<lmx::Connection> own = std::move(comm.connections(1).front());
  const int next = (comm.rank() + 1) % comm.size(), last = (comm.rank() + comm.size() - 1) % comm.size();
  for (int64_t i = 0; i < 3; ++i) {
    own->post(tensor_of<float>(comm, comm.rank(), {4}, i), next, 7);
    own->post(tensor_of<float>(comm, comm.rank(), {0}), next, 8);
  }
  for (int64_t i = 0; i < 3; ++i) {
    Tensor t = Tensor::zeros(comm.allocator(), {4}, lmx::DType::f32),
           none = Tensor::zeros(comm.allocator(), {0}, lmx::DType::f32);
    own->receive(none, last, 8);
    own->receive(t, last, 7);
    require(same_bits(t, tensor_of<float>(comm, last, {4}, i)), str("receive: message ", i));
  }
  if (comm.rank() != 0) {
    own->send(tensor_of<float>(comm, comm.rank(), {6}), 0, 9);
  } else {
    std::vector<bool> seen(static_cast<size_t>(comm.size()), false);
    for (int i = 1; i < comm.size(); ++i) {
      int from = -1;
      while (from < 0) from = own->probe(9);
      Tensor t = Tensor::zeros(comm.allocator(), {6}, lmx::DType::f32);
      own->receive(t, from, 9);
      require(from > 0 && !seen[static_cast<size_t>(from)] && same_bits(t, tensor_of<float>(comm, from, {6})),
              str("a message from rank ", from));
      seen[static_cast<size_t>(from)] = true;
    }
  }
  comm.barrier();
}

inline void check_ledger_of_all_reduce(Communicator& comm) {
  const int64_t n = 1000, g = comm.size(), r = comm.rank();
  comm.clear_ledger();
  check_all_reduce<float>(comm, n);
  const int64_t chunk = lmx::chunk_begin(n, static_cast<int>(r) + 1, static_cast<int>(g)) -
                        lmx::chunk_begin(n, static_cast<int>(r), static_cast<int>(g));
  int64_t sent = 0, received = 0;
  for (const lmx::LedgerEntry& line : comm.ledger()) {
    sent += line.sent;
    received += line.received;
  }
  require(sent == 4 * (n - chunk + (g - 1) * chunk), str("ledger of all_reduce: sent ", sent));
  require(received == 4 * ((g - 1) * chunk + n - chunk), str("ledger of all_reduce: received ", received));
}

// The message library reduces (comm.reduce: native): close to the sum in rank order, equal on all ranks, and counted
// like that sum.
inline void check_native(Communicator& comm) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1003}}) {
    comm.clear_ledger();
    const Tensor single = here(comm.all_reduce(there(tensor_of<float>(comm, comm.rank(), {n})), "test")),
                 twice = here(comm.all_reduce(there(tensor_of<double>(comm, comm.rank(), {n})), "test"));
    const int64_t own =
                      lmx::chunk_begin(n, comm.rank() + 1, comm.size()) - lmx::chunk_begin(n, comm.rank(), comm.size()),
                  elements = n - own + (comm.size() - 1) * own;
    require(comm.ledger().size() == 2, "native: one line of the ledger each");
    for (size_t i = 0; i < 2; ++i) {
      const lmx::LedgerEntry& line = comm.ledger()[i];
      require(comm.size() == 1 || line.collective == "all_reduce", "native: " + line.collective);
      require(line.sent == (i ? 8 : 4) * elements && line.received == line.sent, str("native: sent ", line.sent));
      // Counted as a ring: all bytes go to the next rank and come from the one before.
      const int ranks = comm.size(), next = (comm.rank() + 1) % ranks, last = (comm.rank() + ranks - 1) % ranks;
      require(line.sent_between_nodes == (comm.nodes().apart(comm.rank(), next) ? line.sent : 0),
              str("native: sent ", line.sent_between_nodes, " to other nodes"));
      require(line.received_between_nodes == (comm.nodes().apart(comm.rank(), last) ? line.received : 0),
              str("native: received ", line.received_between_nodes, " from other nodes"));
    }
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int r = 0; r < comm.size(); ++r) sum += static_cast<double>(static_cast<float>(value_of(r, i)));
      require(std::abs(static_cast<double>(single.data<float>()[i]) - sum) < 1e-2, str("native: f32 ", i));
      require(std::abs(twice.data<double>()[i] - sum) < 1e-3, str("native: f64 ", i));
    }
    require(same_bits(comm.broadcast(single, 0, "test"), single), "native: ranks differ");
  }
}

// Messages of every kind that a group sends in its own way: empty and short ones, those of 64 KiB and a little more,
// and of several pieces; also different ones in one operation, and several operations one after the other.
inline void check_long_moves(Communicator& comm) {
  const std::vector<int64_t> sizes{0, 5461, 5462, 1'500'000};  // a row of three is 12 bytes
  for (size_t first = 0; first < sizes.size(); ++first) {
    std::vector<int64_t> rows;
    for (size_t r = 0; r < static_cast<size_t>(comm.size()); ++r) rows.push_back(sizes[(first + r) % sizes.size()]);
    for (const bool announced : {false, true}) check_all_gather(comm, rows, announced);
  }
  for (const int64_t longest : {int64_t{4097}, int64_t{1'100'000}}) check_all_to_all(comm, {0, 4096, 3, longest});
  for (const int64_t rows : {int64_t{2340}, int64_t{2341}, int64_t{700'000}}) check_broadcast(comm, rows);
  for (const int64_t n : {int64_t{65'541}, int64_t{4'500'001}}) check_all_reduce<float>(comm, n);
  check_parts(comm, 700'000);
  check_memory_of_parts(comm, 700'000);
  check_all_reduce<double>(comm, 32'771);
}

inline void check_moves(Communicator& comm) {
  std::vector<int64_t> uneven, none;
  for (int r = 0; r < comm.size(); ++r) {
    uneven.push_back(r % 3 == 1 ? 0 : 5 - r);
    none.push_back(0);
  }
  for (int round = 0; round < 20; ++round) {
    for (const bool announced : {false, true}) check_all_gather(comm, uneven, announced);
    check_all_gather(comm, std::vector<int64_t>(static_cast<size_t>(comm.size()), 4), true);
    check_all_gather(comm, none, true);
    check_all_to_all(comm, {0, 1, 2, 3});
    check_broadcast(comm, 5);
    check_parts(comm, 5);
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1003}}) {
      check_all_reduce<float>(comm, n);
      check_all_reduce<double>(comm, n);
    }
    check_messages(comm);
  }
  check_ledger_of_all_reduce(comm);
  const std::vector<std::string> texts = comm.gather_texts(std::string(static_cast<size_t>(comm.rank()), 'x'), "test");
  for (int r = 0; r < comm.size(); ++r)
    require(texts[static_cast<size_t>(r)] == std::string(static_cast<size_t>(r), 'x'), "gather_texts");
  require(comm.overlaps() && !comm.shares_memory() && comm.threads() == 1, "what the group says of itself");
}

}  // namespace lmx_test
