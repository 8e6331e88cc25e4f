#include "train/loop/counted_step.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/counting/device.h"
#include "backend/serial.h"
#include "data/drawn_text.h"
#include "lmx/error.h"
#include "train/loop/replica_loop.h"
#include "train/loop/update.h"
#include "train/loop/validator.h"

namespace lmx {
namespace {

constexpr int64_t kSteps = 2;

// The ids of other ranks. A rank's rows of a table are the words of its batch and, for the table of a loss that samples
// candidates, those. Words of the batch are drawn for each rank; ranks whose candidates have the same key share them.
class DrawnPeers final : public comm::PeerIds {
 public:
  explicit DrawnPeers(const WordLaw& law) : law_(law) {}

  // `batch`: the targets of the counted rank. `keys`: of the candidates, by rank.
  void begin_step(int64_t step, std::vector<int32_t> batch, std::vector<uint64_t> keys, uint64_t own_key,
                  int64_t vocabulary) {
    if (!words_) words_.emplace(law_, vocabulary, static_cast<int64_t>(batch.size() * keys.size()));
    std::sort(batch.begin(), batch.end());
    batch.erase(std::unique(batch.begin(), batch.end()), batch.end());
    batch_ = std::move(batch);
    keys_ = std::move(keys);
    own_key_ = own_key;
    step_ = RandomKey(static_cast<uint64_t>(step)).fold("counted step");
    vocabulary_ = vocabulary;
    sets_.clear();
  }

  void draw(int rank, std::span<const int32_t> own, std::span<int32_t> ids) override {
    const RandomKey key = step_.fold(static_cast<uint64_t>(rank));
    const bool distinct = std::adjacent_find(own.begin(), own.end(), std::greater_equal<>()) == own.end();
    if (!distinct) {
      const std::vector<int32_t> words = words_of(key, static_cast<int64_t>(ids.size()));
      std::copy(words.begin(), words.end(), ids.begin());
      return;
    }
    spend(vocabulary_ / kClearedAtOnce);
    std::vector<uint8_t> seen(static_cast<size_t>(vocabulary_));
    size_t n = 0;
    const auto add = [&](int32_t id) {
      if (n < ids.size() && !std::exchange(seen[static_cast<size_t>(id)], 1)) ids[n++] = id;
    };
    for (const int32_t id : candidates_of(rank, own)) add(id);
    for (uint64_t part = 0; n < ids.size() && part < kMostDraws; ++part)
      for (const int32_t id : words_of(key.fold(part), static_cast<int64_t>(ids.size() - n) + kFewDraws)) add(id);
    for (int32_t id = 0; n < ids.size(); ++id) add(id);
    std::sort(ids.begin(), ids.end());
  }

 private:
  static constexpr uint64_t kMostDraws = 50;  // of each missing id; then the most frequent words fill the rest
  static constexpr int64_t kFewDraws = 16;
  static constexpr int64_t kMostSpent = int64_t{1} << 27;  // words, which takes some seconds
  static constexpr int64_t kClearedAtOnce = 512;           // bytes in the time of a word

  void spend(int64_t words) {
    if ((spent_ += words) > kMostSpent)
      throw TooLargeStep(
          "[memory] a step of this recipe is too large to be counted: its ranks exchange too many rows of "
          "tables; reduce batch.global, the number of ranks or the samples of the loss");
  }
  std::vector<int32_t> words_of(const RandomKey& key, int64_t count) {
    spend(count);
    return words_->draw(key.value(), count);
  }

  // The rows of a table with candidates that are not the rank's own words; nothing for other tables.
  const std::vector<int32_t>& candidates_of(int rank, std::span<const int32_t> own) {
    static const std::vector<int32_t> none;
    if (own.size() <= batch_.size() || !std::includes(own.begin(), own.end(), batch_.begin(), batch_.end()))
      return none;
    const uint64_t key = keys_[static_cast<size_t>(rank)];
    std::vector<int32_t>& set = sets_[{own.size(), key}];
    if (!set.empty()) return set;
    std::set_difference(own.begin(), own.end(), batch_.begin(), batch_.end(), std::back_inserter(set));
    if (key != own_key_) set = drawn_words(key, static_cast<int64_t>(set.size()), vocabulary_);
    return set;
  }

  WordLaw law_;
  std::optional<DrawnWords> words_;
  std::vector<int32_t> batch_;
  std::vector<uint64_t> keys_;
  uint64_t own_key_ = 0;
  RandomKey step_;
  int64_t vocabulary_ = 1, spent_ = 0;
  std::map<std::pair<size_t, uint64_t>, std::vector<int32_t>> sets_;  // by number of rows and key
};

// One rank's steps.
class CountedRun {
 public:
  CountedRun(const Recipe& recipe, Communicator& comm, const SessionStart& start)
      : session_(recipe, comm, start),
        run_(session_, "", Position(), 0),
        kind_(session_.separate_steps() ? StepOf::worker : StepOf::group),
        steps_(run_, kind_),
        updater_(run_, kind_) {}

  StepMemory run(DrawnPeers* peers) {
    const Serial serial(session_.ctx.device.counts);
    StepMemory result;
    std::vector<UnitTime> fragments;
    for (int64_t& step = run_.at.step; step < kSteps; ++step) {
      session_.comm.clear_ledger();
      if (peers) set_peers(*peers, step);
      if (session_.asynchronous())
        work(step);
      else if (session_.separate_steps())
        make_replica_step(step);
      else
        make_step(step, result.units);
      if (session_.replicas) fragments = session_.replicas->synchronise(session_.ctx);
    }
    result.units.insert(result.units.end(), fragments.begin(), fragments.end());
    result.ledgers.push_back(session_.comm.ledger());
    result.rows = std::move(rows_);
    for (const ServerStrategy* server : session_.sync->servers()) {
      result.server.requested += server->bytes().requested;
      result.server.replied += server->bytes().replied;
      result.server.pushed += server->bytes().pushed;
    }
    result.training = session_.memory();
    session_.ctx.allocator->reset_peak();
    const int64_t most = session_.recipe.train.eval_tokens,
                  batch = session_.recipe.train.eval_batch * std::max<int64_t>(1, session_.batcher.sequence_length());
    score_validation(session_, most > 0 ? std::min(most, batch) : batch);
    result.evaluation = session_.memory();
    return result;
  }

 private:
  void make_step(int64_t step, std::vector<UnitTime>& units) {
    StartedStep started = start_step(session_, steps_, updater_, step);
    const auto [all, clipped] = results_of(session_, steps_, started);
    updater_.finish(started.update, clipped, all, step);
    set_rows(started.update.rows);
    add_units(units);
  }

  // The step of a rank that has its own values of all parameters.
  void make_replica_step(int64_t step) {
    StepLoss loss;
    run_.at.window = {};
    update_replica(session_, steps_, updater_, step, loss);
    set_rows(run_.at.window.rows);
  }

  // The units of this step. A strategy reads and writes its state in each step as much as it allocates in the first
  // one.
  void add_units(std::vector<UnitTime>& units) const {
    std::vector<UnitTime> now = session_.sync->timeline();
    for (size_t i = 0; i < units.size(); ++i) now[i].bytes.moved = std::max(now[i].bytes.moved, units[i].bytes.moved);
    units = std::move(now);
  }

  // `sparse`: the rows of parameters with row-sparse gradients; an update changes all rows of others.
  void set_rows(const std::map<std::string, int64_t>& sparse) {
    for (const ParameterSpec& spec : session_.network.specs) {
      const auto found = sparse.find(spec.name);
      rows_[spec.name] = found == sparse.end() ? spec.shape[0] : found->second;
    }
  }

  // A step of a worker, without the order of events between workers (train/loop/worker_loop.h).
  void work(int64_t step) {
    Session& s = session_;
    const std::vector<Batch> share = steps_.draw(step);
    const StepPlan plan = steps_.begin(share, step);
    for (ServerStrategy* server : s.sync->servers()) server->pull(s.ctx);
    const auto [loss, measure] = worker_gradients(s, steps_, share, plan);
    const ClipResult clipped = measure.result();
    set_rows(sparse_rows(s.params));
    for (ServerStrategy* server : s.sync->servers()) server->push(s.ctx, updater_.learning_rate(step), clipped);
    updater_.advance();
    s.params.clear_gradients();
    s.sync->after_step(s.ctx);
    for (ServerStrategy* server : s.sync->servers()) server->count_served(s.ctx);
  }

  void set_peers(DrawnPeers& peers, int64_t step) {
    std::vector<int32_t> words;
    for (const Batch& batch : steps_.draw(step)) {
      const auto targets = batch.targets.values<int32_t>();
      words.insert(words.end(), targets.begin(), targets.end());
    }
    std::vector<uint64_t> keys;
    for (int r = 0; r < session_.comm.size(); ++r)
      keys.push_back(session_.sync->candidate_key(r, step, RandomKey(1)).value());
    const uint64_t own = keys[static_cast<size_t>(session_.comm.rank())];
    peers.begin_step(step, std::move(words), std::move(keys), own, session_.data.vocabulary.size());
  }

  Session session_;
  RunState run_;
  StepOf kind_;
  StepRunner steps_;
  Updater updater_;
  std::map<std::string, int64_t> rows_;
};

}  // namespace

StepMemory run_steps(const Recipe& recipe, CommGroup& group, const SessionStart& start) {
  StepMemory most;
  std::mutex mutex;
  most.ledgers.resize(static_cast<size_t>(group.size()));
  group.run([&](Communicator& comm) {
    StepMemory own = CountedRun(recipe, comm, start).run(nullptr);
    const std::lock_guard lock(mutex);
    most.ledgers[static_cast<size_t>(comm.rank())] = std::move(own.ledgers.front());
    if (own.training.total_peak > most.training.total_peak) most.training = own.training;
    if (own.evaluation.total_peak > most.evaluation.total_peak) most.evaluation = own.evaluation;
  });
  return most;
}

StepMemory count_steps(const Recipe& recipe, const comm::CountedRank& rank, const SessionStart& start,
                       const WordLaw& law) {
  const auto peers = std::make_shared<DrawnPeers>(law);
  Recording recording(counting_device(start.device->index));
  StepMemory counted;
  comm::make_counting_group(rank, peers)->run([&](Communicator& comm) {
    counted = CountedRun(recipe, comm, start).run(comm.size() > 1 ? peers.get() : nullptr);
  });
  counted.largest = recording.record().largest();
  counted.last = recording.record().last();
  counted.update = recording.record().update();
  return counted;
}

}  // namespace lmx
