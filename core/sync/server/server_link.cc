#include "sync/server/server_link.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "lmx/error.h"
#include "lmx/parallel.h"

namespace lmx::server {
namespace {

enum Tag { kAsk = 1, kTurn = 2, kRequest = 3, kReply = 4 };  // replies of rule r: kReply + r

using Clock = std::chrono::steady_clock;

// Precedes a request's body. The extents follow it.
struct Header {
  int64_t number = 0, rule = 0, kind = 0, bytes = 0;
  double lr = 0;
};

Tensor bytes_of(const Communicator& comm, int64_t n) {
  return Tensor::empty(comm.allocator(), {n}, DType::u8, MemClass::communication);
}

template <class T>
Tensor pack(const Communicator& comm, const T& value) {
  Tensor t = bytes_of(comm, sizeof(T));
  std::memcpy(t.raw(), &value, sizeof(T));
  return t;
}
template <class T>
T unpack(const Tensor& t) {
  T value;
  std::memcpy(&value, t.raw(), sizeof(T));
  return value;
}

// Sleeps between two polls. The longer no request has arrived, the longer each sleep.
class Rest {
 public:
  void awake() { since_ = Clock::now(); }
  void nap() const {
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since_);
    std::this_thread::sleep_for(std::clamp(idle / 8, std::chrono::microseconds(20), std::chrono::microseconds(500)));
  }

 private:
  Clock::time_point since_ = Clock::now();
};

}  // namespace

Link::Link(Communicator& comm) : comm_(comm), nodes_(comm.nodes()) {
  std::vector<std::unique_ptr<Connection>> ends = comm.connections(2);
  if (ends.size() != 2)
    throw UserError(
        "[sync] a parameter server needs ranks of one process, comm.name: virtual, or processes that can "
        "serve each other while they compute, such as comm.name: mpi");
  own_.connection = std::move(ends[0]);
  beside_.connection = std::move(ends[1]);
}

Link::~Link() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

int Link::add(const std::string& group, int parameters, Serve serve) {
  rules_.push_back({group, std::move(serve), 0, {}, {}});
  parameters_ = std::max(parameters_, parameters);
  return static_cast<int>(rules_.size()) - 1;
}

// Removes from the order to repeat all events that the workers have already done, and steps that this run does not
// take.
void Link::start(const std::vector<Stand>& workers, const std::vector<int32_t>& replay, int64_t steps) {
  std::vector<int64_t> events;
  for (const Stand& w : workers) {
    done_.push_back(w.step);
    events.push_back(2 * w.step + (w.pulled ? 1 : 0));
  }
  replays_ = !replay.empty();
  std::vector<int64_t> seen(workers.size());
  for (const int32_t event : replay) {
    const size_t worker = index(event / 2);
    const int64_t number = seen[worker]++;
    if (number >= events[worker] && number < 2 * steps) replay_.push_back(event);
  }
  thread_ = std::thread([this] { loop(); });
}

LedgerEntry& Link::traffic(End& end, const Rule* rule, Event kind) {
  return end.traffic[{rule ? rule->group : "control", rule ? (kind == Event::pull ? "pull" : "push") : "turn"}];
}

void Link::send(End& end, const Tensor& t, int to, int tag, const Rule* rule, Event kind) {
  LedgerEntry& traffic = this->traffic(end, rule, kind);
  traffic.add_sent(t.bytes(), crosses(to));
  // The thread must not wait for other ranks; two waiting threads could block each other.
  if (&end == &beside_) return end.connection->post(t, to, tag);
  const Clock::time_point start = Clock::now();
  end.connection->send(t, to, tag);
  traffic.seconds += seconds_since(start);
}

void Link::receive(End& end, Tensor& t, int from, int tag, const Rule* rule, Event kind) {
  LedgerEntry& traffic = this->traffic(end, rule, kind);
  const Clock::time_point start = Clock::now();
  end.connection->receive(t, from, tag);
  traffic.add_received(t.bytes(), crosses(from));
  if (&end == &own_) traffic.seconds += seconds_since(start);  // only the worker's waits delay its steps
}

void Link::wait(std::unique_lock<std::mutex>& lock, LedgerEntry& traffic, const std::function<bool()>& condition) {
  const Clock::time_point start = Clock::now();
  const std::shared_ptr<void> waiting = comm_.waiting();
  changed_.wait(lock, [&] { return error_ || condition(); });
  traffic.seconds += seconds_since(start);
  if (error_) std::rethrow_exception(error_);
}

// ----------------------------------------------------------------------------------------------------- worker's side

bool Link::ask(Event event, int64_t meeting, bool stop) {
  const Ask question{static_cast<int64_t>(event), meeting, stop ? 1 : 0};
  int64_t turn = 0;
  if (comm_.rank() == 0) {
    std::unique_lock lock(mutex_);
    asking_.emplace_back(0, question);
    decide();
    wait(lock, traffic(own_, nullptr, event), [&] { return !turns_.empty(); });
    turn = turns_.front();
    turns_.pop_front();
  } else {
    Tensor text = bytes_of(comm_, sizeof turn);
    send(own_, pack(comm_, question), 0, kAsk, nullptr, event);
    receive(own_, text, 0, kTurn, nullptr, event);
    turn = unpack<int64_t>(text);
  }
  turn_ = turn;
  if (turn >= 0) return true;
  std::unique_lock lock(mutex_);
  wait(lock, traffic(own_, nullptr, event),
       [&] { return std::all_of(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.next >= -1 - turn; }); });
  return false;
}

void Link::send(int rule, int shard, Request request) {
  LMX_CHECK(turn_ >= 0, "it is not the turn of worker ", comm_.rank());
  if (shard == comm_.rank()) {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    enqueue(rule, turn_, shard, std::move(request));
    return serve();
  }
  const Header header{turn_, rule, static_cast<int64_t>(request.kind),
                      request.body.defined() ? request.body.bytes() : 0, request.lr};
  Tensor front = bytes_of(comm_, static_cast<int64_t>(sizeof header) + parameters_);
  std::memset(front.raw(), 0, static_cast<size_t>(front.bytes()));
  std::memcpy(front.raw(), &header, sizeof header);
  if (!request.extents.empty())
    std::memcpy(static_cast<std::byte*>(front.raw()) + sizeof header, request.extents.data(), request.extents.size());
  send(own_, front, shard, kRequest, nullptr, request.kind);
  if (header.bytes > 0) send(own_, request.body, shard, kRequest, &rules_[static_cast<size_t>(rule)], request.kind);
}

Tensor Link::receive(int rule, int shard, int64_t bytes) {
  Rule& r = rules_[static_cast<size_t>(rule)];
  if (shard != comm_.rank()) {
    Tensor text = bytes_of(comm_, bytes);
    receive(own_, text, shard, kReply + rule, &r, Event::pull);
    return text;
  }
  std::unique_lock lock(mutex_);
  wait(lock, traffic(own_, &r, Event::pull), [&] { return !r.replies.empty(); });
  Tensor text = std::move(r.replies.front());
  r.replies.pop_front();
  LMX_CHECK(text.bytes() == bytes, "a shard replied ", text.bytes(), " bytes, expected ", bytes);
  return text;
}

void Link::leave_out() {
  for (int rule = 0; rule < static_cast<int>(rules_.size()); ++rule)
    for (int shard = 0; shard < comm_.size(); ++shard) send(rule, shard, {.kind = Event::none});
}

std::vector<int32_t> Link::take_order() {
  const std::lock_guard lock(mutex_);
  return std::exchange(order_, {});
}

void Link::count(Communicator& comm) {
  const std::lock_guard lock(mutex_);
  for (End* end : {&own_, &beside_}) {
    for (auto& [key, line] : end->traffic) {
      line.group = key.first;
      line.collective = key.second;
      comm.count(std::move(line));
    }
    end->traffic.clear();
  }
}

// ------------------------------------------------------------------------------------------------------- thread's side

void Link::loop() {
  set_num_threads(1);  // the cores belong to the worker
  Rest rest;
  try {
    while (!ending_) {
      bool busy = false;
      {
        const std::lock_guard lock(mutex_);
        busy = listen();
      }
      if (busy) rest.awake();
      rest.nap();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  changed_.notify_all();
}

// Receives all pending messages and processes them. Returns false if there were none.
bool Link::listen() {
  bool busy = false;
  for (int from; comm_.rank() == 0 && (from = beside_.connection->probe(kAsk)) >= 0; busy = true) {
    Tensor text = bytes_of(comm_, sizeof(Ask));
    receive(beside_, text, from, kAsk, nullptr, Event::none);
    asking_.emplace_back(from, unpack<Ask>(text));
  }
  for (int from; (from = beside_.connection->probe(kRequest)) >= 0; busy = true) take_request(from);
  if (busy) {
    decide();
    serve();
  }
  return busy;
}

void Link::take_request(int from) {
  Tensor front = bytes_of(comm_, static_cast<int64_t>(sizeof(Header)) + parameters_);
  receive(beside_, front, from, kRequest, nullptr, Event::none);
  const auto header = unpack<Header>(front);
  const auto* extents = static_cast<const uint8_t*>(front.raw()) + sizeof header;
  Request request{
      static_cast<Event>(header.kind), header.lr, {extents, extents + parameters_}, bytes_of(comm_, header.bytes)};
  if (header.bytes > 0)
    receive(beside_, request.body, from, kRequest, &rules_[static_cast<size_t>(header.rule)], request.kind);
  enqueue(static_cast<int>(header.rule), header.number, from, std::move(request));
}

void Link::enqueue(int rule, int64_t number, int worker, Request request) {
  rules_[static_cast<size_t>(rule)].waiting.emplace(number, std::pair(worker, std::move(request)));
}

void Link::serve() {
  bool any = false;
  for (size_t i = 0; i < rules_.size(); ++i) {
    Rule& rule = rules_[i];
    for (auto first = rule.waiting.begin(); first != rule.waiting.end() && first->first == rule.next; ++rule.next) {
      const auto [worker, request] = std::move(first->second);
      first = rule.waiting.erase(first);
      Tensor text = request.kind == Event::none ? Tensor() : rule.serve(worker, request);
      any = true;
      if (request.kind != Event::pull) continue;
      if (worker == comm_.rank()) {
        rule.replies.push_back(std::move(text));
      } else {
        send(beside_, text, worker, kReply + static_cast<int>(i), &rule, Event::pull);
      }
    }
  }
  if (any) changed_.notify_all();
}

// ------------------------------------------------------------------------------------------------ the order, on rank 0

// Answers all questions that can be answered now, in the order in which they arrived.
void Link::decide() {
  for (bool again = !asking_.empty(); again;) {
    again = false;
    for (auto it = asking_.begin(); it != asking_.end();) {
      const auto [worker, ask] = *it;
      if (ask.stop) stop_ = true;
      const bool meet = stop_ || *std::min_element(done_.begin(), done_.end()) >= ask.meeting;
      if (!meet && !may_go(worker, ask)) {
        ++it;
        continue;
      }
      it = asking_.erase(it);
      again = true;  // questions before this one may now be answerable
      if (!meet) {
        const bool push = static_cast<Event>(ask.event) == Event::push;
        if (push) ++done_[index(worker)];
        if (replays_) replay_.pop_front();
        order_.push_back(2 * worker + (push ? 1 : 0));
      }
      answer(worker, meet ? -1 - given_ : given_++);
    }
  }
}

bool Link::may_go(int worker, const Ask& ask) const {
  const auto event = static_cast<Event>(ask.event);
  if (event == Event::none) return false;
  if (!replays_) return true;
  return !replay_.empty() && replay_.front() == 2 * worker + (event == Event::push ? 1 : 0);
}

void Link::answer(int worker, int64_t turn) {
  if (worker == comm_.rank()) {
    turns_.push_back(turn);
    changed_.notify_all();
  } else {
    send(beside_, pack(comm_, turn), worker, kTurn, nullptr, Event::none);
  }
}

}  // namespace lmx::server
