// A sweep of a tiny recipe as a process, and functions that read its results.
#pragma once

#include <sched.h>

#include <algorithm>

#include "process/run_fixture.h"

namespace lmx_test {

class SweepTest : public RunTest {
 protected:
  Words words(const Words& more) const { return joined({build_path("/bin/lmx"), "sweep"}, more); }
  // lmx sweep tiny.yaml --out <folder>/<out> ...
  Words sweep_words(const std::string& out, const Words& more) const {
    return joined(words({path("tiny.yaml"), "--out", path(out)}), more);
  }
  Outcome sweep(const std::string& out, const Words& more = {}) const {
    return run_process(sweep_words(out, more), environment());
  }
  Outcome resume(const std::string& out, const Words& more = {}) const {
    return run_process(words(joined({"--resume", path(out)}, more)), environment());
  }

  // Two cores that this process may use, as taskset is given them; "" if there are none or no taskset.
  static std::string two_cores() {
    cpu_set_t own;
    CPU_ZERO(&own);
    if (on_path("taskset").empty() || sched_getaffinity(0, sizeof own, &own) != 0) return "";
    int first = -1;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &own)) continue;
      if (first >= 0) return std::to_string(first) + "," + std::to_string(core);
      first = core;
    }
    return "";
  }

  Outcome refused(const Words& more, const Words& parts) const {
    const Outcome o = sweep("refused", more);
    EXPECT_THAT(o, Refuses(NamesMatcher(parts)));
    EXPECT_FALSE(std::filesystem::exists(path("refused")));
    return o;
  }

  Json plan(const std::string& out) const { return Json::parse(read_file(folder_ / out / "sweep.json")); }
  Words ids(const std::string& out) const {
    Words all;
    const Json whole = plan(out);
    for (const Json& point : whole["points"]) all.push_back(point["id"]);
    return all;
  }
  std::vector<Json> events(const std::string& out) const {
    std::vector<Json> all;
    std::istringstream lines(read_file(folder_ / out / "journal.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) all.push_back(Json::parse(line, nullptr, false));
    return all;
  }
  // The last event of each point that has ended.
  std::map<std::string, Json> ends(const std::string& out) const {
    std::map<std::string, Json> all;
    for (const Json& event : events(out))
      if (event.is_object() && event["event"] == "end") all[event["point"]] = event;
    return all;
  }
  size_t count_ends(const std::string& out, const std::string& outcome) const {
    size_t count = 0;
    for (const auto& [id, event] : ends(out)) count += event["outcome"] == outcome;
    return count;
  }
  std::string status(const std::string& out, const std::string& id) const {
    const Json json = Json::parse(read_file(folder_ / out / "points" / id / "status.json"), nullptr, false);
    return json.is_object() ? json["state"].get<std::string>() : "";
  }
  // The perplexity of a point's last validation, as text; "" if there is none.
  std::string value_at_end(const std::string& out, const std::string& id) const {
    const std::vector<Json> valid = records(out + "/points/" + id, "valid");
    return valid.empty() ? "" : valid.back()["ppl"].dump();
  }
};

}  // namespace lmx_test
