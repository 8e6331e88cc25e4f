// The diagnosis that one rank makes from the heartbeats of the others.
#include "diagnosis.h"
#include "test.h"

namespace lmx::processes {
namespace {

using namespace lmx_test;

const std::vector<std::string> kHosts{"h0", "h0", "h1", "h2"};
const Limits kLimits{30, 300};

// Four ranks that wait in their fifth collective.
std::vector<Peer> waiting(double seconds = 1) {
  Peer peer;
  peer.beat.collectives = 5;
  peer.beat.move = Move::all_gather;
  peer.beat.still_s = seconds;
  return std::vector<Peer>(4, peer);
}

Diagnosis diagnosis(Diagnosis::Kind kind, std::vector<int> ranks) {
  return {kind, std::move(ranks)};
}

TEST(Judge, NothingIsWrong) {
  EXPECT_EQ(diagnose(0, waiting(), kLimits), Diagnosis{});
  EXPECT_EQ(diagnose(0, std::vector<Peer>(1), kLimits), Diagnosis{});
  EXPECT_EQ(sentence({}, 0, waiting(), kHosts), "");
}

TEST(Judge, SilenceIsCountedBeyondTheLimit) {
  auto peers = waiting();
  peers[2].silent_s = 30;
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{});
  peers[2].silent_s = 30.2;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::silent, {2}));
  EXPECT_THAT(sentence(diagnose(0, peers, kLimits), 0, peers, kHosts), Names("rank 2 of 4", "host h1", "30 s"));
  peers[3].silent_s = 40;
  EXPECT_THAT(sentence(diagnose(0, peers, kLimits), 0, peers, kHosts), Names("ranks 2, 3 of 4", "host h1, h2", "40 s"));
}

// The launcher notices that a process or a host has ended before any rank's time limit passes.
TEST(Judge, WhoIsSilentWhileTheLauncherEndsTheJob) {
  auto peers = waiting(1000);
  peers[2].silent_s = 0.6;
  EXPECT_EQ(diagnose(0, peers, {0.5, 0, true}), diagnosis(Diagnosis::dropped, {2}));
  EXPECT_THAT(sentence(diagnose(0, peers, {0.5, 0, true}), 0, peers, kHosts),
              Names("rank 2 of 4", "host h1", "launcher"));
  EXPECT_LT(patience(3, peers, diagnosis(Diagnosis::dropped, {2})), 0.7);
}

// Ranks wait for their devices, because another rank has not entered an exchange.
TEST(Judge, WaitsForADevice) {
  auto peers = waiting(301);
  for (Peer& p : peers) p.beat.move = Move::device;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::stuck, {1, 2, 3}));
  peers[2].beat.move = Move::none;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::lags, {2}));
  EXPECT_THAT(sentence(diagnose(0, peers, kLimits), 0, peers, kHosts),
              Names("rank 2 of 4 on host h1 lags", "rank 0 has waited 301 s in device_work"));
  peers[2].beat.still_s = 1;  // it still computes
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{});
  peers[2].beat = waiting(301)[2].beat;  // it waits in the next collective of the host for a rank whose device is stuck
  peers[2].beat.collectives = 6;
  peers[1].beat.still_s = peers[3].beat.still_s = peers[0].beat.still_s = 301;
  EXPECT_EQ(diagnose(2, peers, kLimits), diagnosis(Diagnosis::lags, {0, 1, 3}));
}

// A rank does not examine itself.
TEST(Judge, OwnEntryIsNotLookedAt) {
  auto peers = waiting();
  peers[1].silent_s = 1000;
  peers[1].ended = true;
  EXPECT_EQ(diagnose(1, peers, kLimits), Diagnosis{});
}

TEST(Judge, TheCauseComesBeforeItsConsequences) {
  auto peers = waiting(1000);
  peers[3].beat.collectives = 4;
  EXPECT_EQ(diagnose(0, peers, kLimits).kind, Diagnosis::lags);
  peers[2].silent_s = 31;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::silent, {2}));
  peers[1].ended = true;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::ended, {1}));
  peers[3].beat.failed = 1;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::failed, {3}));
}

TEST(Judge, ThoseThatHaveNotComeLag) {
  auto peers = waiting(301);
  peers[1].beat = {};
  peers[1].beat.collectives = 4;
  peers[1].beat.still_s = 302;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::lags, {1}));
  EXPECT_EQ(diagnose(1, peers, kLimits), Diagnosis{}) << "the computing rank does not know how long the others wait";
  EXPECT_THAT(
      sentence(diagnose(0, peers, kLimits), 0, peers, kHosts),
      Names("rank 1 of 4", "host h0", "lags", "302 s", "collective 4", "rank 0", "301 s", "all_gather (collective 5)"));
  EXPECT_EQ(diagnose(0, peers, {30, 0}), Diagnosis{}) << "lag_s 0: no limit";
}

// Rank 1 waits for a message from rank 3, which computes. Both are behind.
TEST(Judge, WhoComputesIsToBlameBeforeWhoWaits) {
  auto peers = waiting(400);
  peers[1].beat.collectives = peers[3].beat.collectives = 4;
  peers[1].beat.move = Move::receive;
  peers[3].beat.move = Move::none;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::lags, {3}));
}

// Collectives 4 and 5 may both take long: rank 0 has finished 4, and waits in 5 for ranks that still receive bytes.
TEST(Judge, WhoStillMovesBytesDoesNotLag) {
  auto peers = waiting(400);
  for (const size_t r : {1u, 2u, 3u}) peers[r].beat.collectives = 4;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::lags, {1, 2, 3}));
  peers[2].beat.still_s = 5;
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{});
  peers[2].beat.move = Move::none;  // it has just finished 4
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{});
  peers[2].beat.still_s = 301;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::lags, {2}));
}

// Workers of a server: rank 0 waits for its turn, ranks 1 and 2 wait for messages, and rank 3 computes without end.
TEST(Judge, AWorkerThatComputesForEver) {
  auto peers = waiting(301);
  for (Peer& p : peers) p.beat.move = Move::receive;
  peers[0].beat.move = Move::turn;
  peers[3].beat.move = Move::none;
  for (const int observer : {0, 1, 2}) EXPECT_EQ(diagnose(observer, peers, kLimits), diagnosis(Diagnosis::lags, {3}));
  EXPECT_EQ(diagnose(3, peers, kLimits), Diagnosis{});
  EXPECT_THAT(sentence(diagnose(0, peers, kLimits), 0, peers, kHosts),
              Names("rank 3 of 4", "host h2", "lags", "rank 0", "301 s", "turn"));
  peers[3].beat.still_s = 10;
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{}) << "it is slow, but its steps end";
}

TEST(Judge, DifferentMovesAtTheSameCount) {
  auto peers = waiting();
  peers[2].beat.move = Move::barrier;
  EXPECT_EQ(diagnose(0, peers, kLimits), diagnosis(Diagnosis::differs, {2}));
  EXPECT_THAT(sentence(diagnose(0, peers, kLimits), 0, peers, kHosts),
              Names("rank 0 is in all_gather", "rank 2 is in barrier (collective 5)"));
  peers[2].beat.collectives = 6;
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{}) << "it has finished that collective";
  peers[2].beat.collectives = 5;
  peers[2].beat.move = Move::send;
  EXPECT_EQ(diagnose(0, peers, kLimits), Diagnosis{}) << "it has finished that collective, too";
}

TEST(Judge, EveryRankWaits) {
  auto peers = waiting(301);
  EXPECT_EQ(diagnose(1, peers, kLimits), diagnosis(Diagnosis::stuck, {0, 2, 3}));
  EXPECT_THAT(sentence(diagnose(1, peers, kLimits), 1, peers, kHosts),
              Names("every rank", "rank 3 waits in all_gather (collective 5)"));
  peers[3].beat.still_s = 10;  // it has moved lately
  EXPECT_EQ(diagnose(1, peers, kLimits), Diagnosis{});
}

TEST(Judge, ToTheEndARankMayComeLate) {
  auto peers = waiting(4000);
  for (Peer& p : peers) p.beat.move = Move::finish;
  peers[0].beat.move = Move::none;
  peers[0].beat.collectives = 4;
  EXPECT_EQ(diagnose(1, peers, kLimits), Diagnosis{});
}

// If several ranks make the same diagnosis, each waits longer than the one before it.
TEST(Judge, OneSpeaksFirst) {
  auto peers = waiting();
  peers[0].silent_s = 31;
  const Diagnosis v = diagnose(1, peers, kLimits);
  EXPECT_EQ(patience(1, peers, v), 0);
  EXPECT_EQ(patience(2, peers, v), 1);
  EXPECT_EQ(patience(3, peers, v), 2);
  peers[2].ended = true;
  const Diagnosis ended = diagnose(0, peers, kLimits);
  EXPECT_LT(patience(0, peers, ended), patience(1, peers, ended));
  EXPECT_LT(patience(3, peers, ended), 1) << "mpirun ends the job after one second";
}

TEST(Judge, WhoHearsNobodyIsCutOffItself) {
  auto peers = waiting();
  for (const size_t r : {0u, 1u, 2u}) peers[r].silent_s = 31;
  const Diagnosis v = diagnose(3, peers, kLimits);
  EXPECT_THAT(sentence(v, 3, peers, kHosts), Names("nobody", "rank 3", "host h2"));
  EXPECT_GE(patience(3, peers, v), 3);
}

}  // namespace
}  // namespace lmx::processes
