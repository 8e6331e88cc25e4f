#include "app/points/journal.h"

#include <sqlite3.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::RunError;
using lmx::str;

constexpr const char* kTables = R"sql(
CREATE TABLE events (number INTEGER PRIMARY KEY, time TEXT, event TEXT, point TEXT, json TEXT NOT NULL);
CREATE TABLE points (id TEXT PRIMARY KEY, place TEXT NOT NULL, outcome TEXT NOT NULL, metric TEXT NOT NULL, value REAL,
                     step INTEGER NOT NULL, seconds REAL NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL);
)sql";

// Data that a power failure damages is rebuilt from journal.jsonl, so nothing here is synced to disk.
constexpr const char* kQuick = "PRAGMA synchronous=OFF";

// A connection. Every SQLite error becomes a RunError.
class Connection {
 public:
  explicit Connection(const std::string& path) {
    const int code = sqlite3_open(path.c_str(), &handle_);
    if (code != SQLITE_OK) {
      const std::string reason = handle_ ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
      sqlite3_close(handle_);
      throw RunError(reason);
    }
    sqlite3_busy_timeout(handle_, 2000);
  }
  ~Connection() { sqlite3_close(handle_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void check(int code) const {
    if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) throw RunError(sqlite3_errmsg(handle_));
  }
  void run(const char* sql) const { check(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr)); }
  sqlite3* handle() const { return handle_; }

 private:
  sqlite3* handle_ = nullptr;
};

class Statement {
 public:
  Statement(const Connection& connection, const char* sql) : connection_(connection) {
    connection.check(sqlite3_prepare_v2(connection.handle(), sql, -1, &handle_, nullptr));
  }
  ~Statement() { sqlite3_finalize(handle_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    return bound(sqlite3_bind_text(handle_, next_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
  }
  Statement& bind(int64_t value) { return bound(sqlite3_bind_int64(handle_, next_, value)); }
  Statement& bind(const std::optional<double>& value) {
    return bound(value ? sqlite3_bind_double(handle_, next_, *value) : sqlite3_bind_null(handle_, next_));
  }
  bool step() {
    const int code = sqlite3_step(handle_);
    connection_.check(code);
    return code == SQLITE_ROW;
  }
  int64_t integer() const { return sqlite3_column_int64(handle_, 0); }
  std::string text() const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(handle_, 0));
    return text ? text : "";
  }

 private:
  Statement& bound(int code) {
    connection_.check(code);
    ++next_;
    return *this;
  }
  const Connection& connection_;
  sqlite3_stmt* handle_ = nullptr;
  int next_ = 1;
};

// True if the file is intact and contains the same events as the journal.
bool agrees(const Connection& connection, const std::vector<std::string>& events, size_t points) {
  try {
    Statement check(connection, "PRAGMA quick_check(1)");
    if (!check.step() || check.text() != "ok") return false;
    Statement count(connection, "SELECT count(*) FROM points");
    if (!count.step() || count.integer() != static_cast<int64_t>(points)) return false;
    Statement all(connection, "SELECT json FROM events ORDER BY number");
    size_t number = 0;
    for (; all.step(); ++number)
      if (number >= events.size() || all.text() != events[number]) return false;
    return number == events.size();
  } catch (const RunError&) {
    return false;
  }
}

}  // namespace

struct Database::Impl {
  const Plan& plan;
  std::string path;
  std::unique_ptr<Connection> connection;  // null after it failed once

  void open(const std::vector<std::string>& events, const std::vector<State>& states);
  void add_event(const std::string& event) const;
  void put_point(size_t index, const State& state) const;
  void give_up(const std::exception& e);
};

void Database::Impl::give_up(const std::exception& e) {
  connection.reset();
  lmx::log_warn(
      str("[sweep] ", path, " cannot be written: ", e.what(), "; the sweep continues with journal.jsonl alone"));
}

void Database::Impl::open(const std::vector<std::string>& events, const std::vector<State>& states) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (there) {
    try {
      connection = std::make_unique<Connection>(path);
      connection->run(kQuick);
      if (agrees(*connection, events, plan.points.size())) return;
    } catch (const RunError&) {  // rebuilt below
    }
    connection.reset();
  }
  for (const char* part : {"", "-journal", "-wal", "-shm"}) std::filesystem::remove(path + part, error);
  connection = std::make_unique<Connection>(path);
  connection->run(kQuick);
  connection->run("BEGIN");
  connection->run(kTables);
  for (const std::string& event : events) add_event(event);
  for (size_t i = 0; i < states.size(); ++i) put_point(i, states[i]);
  connection->run("COMMIT");
}

void Database::Impl::add_event(const std::string& event) const {
  const auto json = nlohmann::json::parse(event);
  Statement insert(*connection, "INSERT INTO events (time, event, point, json) VALUES (?, ?, ?, ?)");
  insert.bind(json.value("time", "")).bind(json.value("event", "")).bind(json.value("point", "")).bind(event).step();
}

void Database::Impl::put_point(size_t index, const State& s) const {
  const Point& point = plan.points[index];
  nlohmann::ordered_json place = nlohmann::ordered_json::object();
  for (size_t a = 0; a < plan.axes.size(); ++a) place[plan.axes[a].name] = point.place[a];
  const std::string outcome = s.outcome == Outcome::none ? (s.begun ? "begun" : "waiting") : name_of(s.outcome);
  Statement put(*connection, "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  put.bind(point.id).bind(place.dump()).bind(outcome).bind(plan.request.metric.text()).bind(s.value).bind(s.step);
  put.bind(std::optional<double>(s.seconds)).bind(s.attempts).bind(s.reason).step();
}

Database::Database(const Plan& plan, const std::string& path, const std::vector<std::string>& events,
                   const std::vector<State>& states)
    : impl_(std::make_unique<Impl>(Impl{plan, path, nullptr})) {
  try {
    impl_->open(events, states);
  } catch (const RunError& e) {
    impl_->give_up(e);
  }
}

Database::~Database() = default;

void Database::add(const std::string& event, const std::vector<size_t>& points, const std::vector<State>& states) {
  if (!impl_->connection) return;
  try {
    impl_->connection->run("BEGIN");
    impl_->add_event(event);
    for (const size_t point : points) impl_->put_point(point, states[point]);
    impl_->connection->run("COMMIT");
  } catch (const RunError& e) {
    impl_->give_up(e);
  }
}

}  // namespace lmx_cli::sweeps
