// Nodes of ranks: the ledger by level, parts of a group, and sums in two levels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/moves.h"
#include "comm/sent_bytes.h"
#include "lmx/codec.h"
#include "sync/group.h"

namespace lmx_test {
namespace {

using lmx::CodecConfig;
using lmx::Context;
using lmx::LedgerEntry;
using lmx::RankNodes;
using lmx::Reducer;
using lmx::sync_test::make_group;
using testing::ElementsAre;

TEST(RankNodes, OfHostsAndOfConsecutiveRanks) {
  const RankNodes mixed(std::vector<std::string>{"b", "a", "a", "b"});
  EXPECT_EQ(mixed.count(), 2);
  EXPECT_EQ(mixed.per_node(), 2);
  EXPECT_EQ(mixed.node_of(0), 0);
  EXPECT_THAT(mixed.node(3), ElementsAre(0, 3));
  EXPECT_THAT(mixed.peers(3), ElementsAre(3, 2));
  EXPECT_THAT(mixed.peers(1), ElementsAre(0, 1));
  EXPECT_TRUE(mixed.apart(0, 1));
  EXPECT_FALSE(mixed.apart(0, 3));
  const RankNodes uneven(4, 3), one(4, 0), wide(4, 9);
  EXPECT_EQ(uneven.count(), 2);
  EXPECT_EQ(uneven.per_node(), 0);
  EXPECT_THAT(uneven.node(3), ElementsAre(3));
  EXPECT_EQ(one.count() + wide.count(), 2);
  EXPECT_EQ(one.per_node() + wide.per_node(), 8);
}

// The last line of the ledger must have these bytes to and from other nodes.
void require_crossed(const Communicator& comm, int64_t sent, int64_t received, const std::string& what) {
  const LedgerEntry& line = comm.ledger().back();
  require(line.sent_between_nodes == sent && line.received_between_nodes == received,
          str(what, " of rank ", comm.rank(), ": ", line.sent_between_nodes, " to and ", line.received_between_nodes,
              " from other nodes, expected ", sent, " and ", received));
}

// Rank r has r + 1 rows of 8 bytes, and sends a + 2 b rows to rank b.
void check_ledger_by_level(Communicator& comm) {
  const int me = comm.rank(), ranks = comm.size();
  std::vector<int64_t> rows, to, from;
  int64_t others = 0, gathered = 0, sent = 0, received = 0;
  for (int r = 0; r < ranks; ++r) {
    rows.push_back(r + 1);
    to.push_back(me + 2 * r);
    from.push_back(r + 2 * me);
    if (!comm.nodes().apart(me, r)) continue;
    ++others;
    gathered += 8 * rows.back();
    sent += 8 * to.back();
    received += 8 * from.back();
  }
  comm.all_gather(tensor_of<double>(comm, me, {me + 1}), rows, "test");
  require_crossed(comm, 8 * (me + 1) * others, gathered, "all_gather");
  comm.all_to_all(tensor_of<double>(comm, me, {lmx::RankRows(to).total()}), to, from, "test");
  require_crossed(comm, sent, received, "all_to_all");
  for (int root = 0; root < ranks; ++root) {
    comm.broadcast(tensor_of<double>(comm, me, {5}), root, "test");
    if (me == root) require_crossed(comm, 40 * others, 0, "broadcast");
    if (me != root) require_crossed(comm, 0, comm.nodes().apart(me, root) ? 40 : 0, "broadcast");
  }
  comm.count({.group = "test", .collective = "pull", .sent = 7, .sent_between_nodes = 3});
  require_crossed(comm, 3, 0, "count");
}

TEST(Levels, LedgerOfEveryCollective) {
  for (const auto& [ranks, per_node] : {std::pair(4, 2), {4, 1}, {3, 2}, {4, 3}, {3, 0}, {1, 1}})
    make_group(ranks, per_node)->run(check_ledger_by_level);
}

TEST(Levels, PartsAreGroups) {
  make_group(6, 3)->run([](Communicator& comm) {
    Communicator &node = comm.in_node(), &peers = comm.between_nodes();
    require(node.rank() == comm.rank() % 3 && node.size() == 3, "place in the node");
    require(peers.rank() == comm.rank() / 3 && peers.size() == 2, "place between nodes");
    require(&comm.in_node() == &node, "a part is made once");
    for (Communicator* part : {&node, &peers}) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1003}}) check_all_reduce<double>(*part, n);
      check_all_gather(*part,
                       std::vector<int64_t>{2, 0, 3}.size() == 3 && part == &node ? std::vector<int64_t>{2, 0, 3}
                                                                                  : std::vector<int64_t>{0, 4},
                       false);
      check_all_to_all(*part, {0, 1, 2, 3});
      check_broadcast(*part, 5);
      part->barrier();
      require(part->gather_texts(std::string(1, static_cast<char>('a' + part->rank())), "test")[1] == "b", "texts");
    }
    for (const LedgerEntry& line : comm.ledger())
      require(line.sent_between_nodes == 0 || line.sent_between_nodes == line.sent, "a part is on one level");
  });
}

// The sums of the nodes, each in rank order from +0, added in node order from +0.
template <class T>
Tensor sum_of_nodes(Communicator& comm, int64_t n) {
  Tensor want = Tensor::zeros(comm.allocator(), {n}, lmx::dtype_of<T>);
  for (int r = 0; r < comm.size(); r += static_cast<int>(comm.nodes().node(r).size()))
    for (int64_t i = 0; i < n; ++i) {
      T node = 0;
      for (const int member : comm.nodes().node(r)) node += static_cast<T>(value_of(member, i));
      want.data<T>()[i] += node;
    }
  return want;
}

// Bytes that this rank has sent to other nodes since clear_ledger(), and all that it has sent.
std::pair<int64_t, int64_t> crossed(const Communicator& comm) {
  int64_t between = 0, all = 0;
  for (const LedgerEntry& line : comm.ledger()) between += line.sent_between_nodes, all += line.sent;
  return {between, all};
}

template <class T>
void check_two_levels(Communicator& comm, int64_t n) {
  Context ctx = lmx::comm::rank_context(comm);
  Reducer flat({}, "test"), levels({}, "test", 2);
  const Tensor own = tensor_of<T>(comm, comm.rank(), {n});
  comm.clear_ledger();
  const Tensor plain = flat.reduce(ctx, "x", own);
  const auto [flat_between, flat_all] = crossed(comm);
  comm.clear_ledger();
  const Tensor sum = levels.reduce(ctx, "x", own);
  const auto [between, all] = crossed(comm);
  require(same_bits(sum, sum_of_nodes<T>(comm, n)), str("the order of a sum of ", n));
  for (int64_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(sum.data<T>()[i]), b = static_cast<double>(plain.data<T>()[i]);
    require(std::abs(a - b) <= 4e3 * comm.size() * static_cast<double>(std::numeric_limits<T>::epsilon()), "rounding");
  }
  const int64_t nodes = comm.nodes().count(), ranks = comm.size(), bytes = n * static_cast<int64_t>(sizeof(T));
  if (n % (ranks * ranks) != 0 || ranks == 1) return;
  // 2 (N - 1)/G n between nodes, and 2 (G/N - 1) / (G/N) n inside a node: without levels N-1 becomes G - G/N.
  require(between == 2 * (nodes - 1) * bytes / ranks, str(between, " bytes between nodes"));
  require(all - between == 2 * (ranks / nodes - 1) * bytes * nodes / ranks, str(all - between, " bytes in nodes"));
  require(flat_between == between * comm.nodes().per_node(), str(flat_between, " bytes without levels"));
  require(flat_all == 2 * (ranks - 1) * bytes / ranks, str(flat_all, " bytes without levels"));
}

TEST(Levels, SumsInsideNodesAndThenBetweenThem) {
  for (const auto& [ranks, per_node] : {std::pair(1, 0), {2, 0}, {2, 1}, {3, 1}, {4, 2}, {4, 0}, {6, 3}, {6, 2}})
    make_group(ranks, per_node)->run([](Communicator& comm) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1003}, int64_t{144}}) {
        check_two_levels<float>(comm, n);
        check_two_levels<double>(comm, n);
      }
    });
}

// The bytes of a rank to other nodes and to all, from the bytes to one other rank.
template <class Bytes>
std::pair<int64_t, int64_t> to_nodes(const Communicator& comm, Bytes&& bytes) {
  int64_t between = 0, all = 0;
  for (int to = 0; to < comm.size(); ++to) {
    if (to == comm.rank()) continue;
    const int64_t one = bytes(to);
    all += one;
    if (comm.nodes().apart(comm.rank(), to)) between += one;
  }
  return {between, all};
}

// one_bit stores two means for each column of a part, so that ranks send different numbers of bytes.
TEST(Levels, BytesOfOneBitBetweenNodes) {
  using Shape2 = std::pair<int64_t, int64_t>;
  for (const auto& [ranks, per_node] : {std::pair(4, 2), {4, 1}, {4, 0}, {3, 2}, {6, 3}})
    make_group(ranks, per_node)->run([](Communicator& comm) {
      Context ctx = lmx::comm::rank_context(comm);
      Reducer reducer({.kind = "one_bit"}, "test");
      const int me = comm.rank(), size = comm.size();
      for (const auto& [rows, width] : {Shape2{16, 4}, {50, 7}, {5, 1}, {1003, 1}, {9, 2}}) {
        const std::string name = str(rows, " x ", width);
        const Tensor own = tensor_of<float>(comm, me, {rows, width});
        comm.clear_ledger();
        reducer.reduce(ctx, name, own);
        require(crossed(comm) ==
                    to_nodes(comm, [&](int to) { return sent_bytes(reducer.codec(), me, to, size, rows, width); }),
                "one_bit: a block of " + name);
        // A column is 16 bits and two means. A rank sends a column to each owner, and each owner sends its sum back.
        if (size == 4 && width == 4)
          require(crossed(comm).first == 2 * 10 * static_cast<int64_t>(4 - comm.nodes().node(me).size()), "10 bytes");
        std::vector<int32_t> index;
        std::vector<int64_t> owned(static_cast<size_t>(size), 0);
        for (int64_t r = 0; r < rows; ++r) {
          index.push_back(static_cast<int32_t>(r));
          ++owned[static_cast<size_t>(r % size)];
        }
        comm.clear_ledger();
        reducer.reduce_rows(ctx, "rows of " + name, {index, own, true}, index, nullptr);
        require(
            crossed(comm) ==
                to_nodes(comm, [&](int to) { return sent_row_bytes(reducer.codec(), me, to, owned, owned, width); }),
            "one_bit: rows of a table of " + name);
      }
    });
}

// Inside a node everything is f32: values that fp16 cannot represent are lost only between nodes.
TEST(Levels, ACodecEncodesWhatCrossesNodes) {
  const auto first_of = [](int per_node, const CodecConfig& codec) {
    double first = 0;
    make_group(4, per_node)->run([&](Communicator& comm) {
      Context ctx = lmx::comm::rank_context(comm);
      Reducer reducer(codec, "test", 2);
      Tensor own = Tensor::zeros(comm.allocator(), {5}, lmx::DType::f32);
      own.data<float>()[0] = comm.rank() % 2 ? -70000.0f : 70001.0f;  // cancel inside a node of two
      comm.clear_ledger();
      const Tensor sum = reducer.reduce(ctx, "x", own);
      for (const LedgerEntry& line : comm.ledger())
        if (per_node == 2 && line.sent > 0 && line.sent_between_nodes > 0)
          require(line.sent % 2 == 0 && line.sent <= 4, "fp16 between nodes");
      const lmx::CodecHealth seen = reducer.take_health()["x"];
      require((seen.values > 0) == (comm.nodes().count() > 1), "what was encoded");
      if (comm.rank() == 0) first = static_cast<double>(sum.data<float>()[0]);
    });
    return first;
  };
  const CodecConfig fp16{.kind = "fp16", .scale = 1};
  EXPECT_EQ(first_of(2, fp16), 2);
  EXPECT_EQ(first_of(0, fp16), 2);
  EXPECT_FALSE(std::isfinite(first_of(1, fp16)));
}

}  // namespace
}  // namespace lmx_test
