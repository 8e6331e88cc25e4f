// The state of a sweep from the lines of its journal. The journal is untrusted input: every value is checked before
// use.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/records/records.h"
#include "app/sweep/journal.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using Json = nlohmann::ordered_json;
using lmx::str;
using lmx::UserError;

size_t point_of(const Plan& plan, const std::string& id) {
  const size_t point = plan.index_of(id);
  if (point == plan.points.size()) throw UserError(str("there is no point ", id));
  return point;
}

// Converting 1e300 with nlohmann's get<int64_t>() is undefined behaviour.
int64_t integer_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_integer()) throw UserError(str("'", key, "' is no whole number"));
  return value.get<int64_t>();
}

std::optional<double> value_of(const Json& json) {
  const Json& value = json.at("value");
  return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

void apply_end(const Plan& plan, std::vector<State>& states, const Json& json) {
  State& s = states[point_of(plan, json.at("point"))];
  const Outcome outcome = outcome_named(json.at("outcome"));
  if (outcome == Outcome::none) throw UserError(str("unknown outcome ", json.at("outcome").dump()));
  s.outcome = outcome;
  s.step = integer_at(json, "step");
  s.value = value_of(json);
  s.seconds += json.at("seconds").get<double>();
  s.reason = json.value("reason", "");
  if (s.outcome != Outcome::paused) ++s.attempts;
}

Batch read_batch(const Json& json) {
  Batch batch{integer_at(json, "batch"), json.at("name"), "", {}};
  for (const Json& task : json.at("tasks")) batch.tasks.push_back({task.at("point"), integer_at(task, "until")});
  return batch;
}

}  // namespace

void Standing::apply(const Plan& plan, const std::string& line, const std::string& where) {
  try {
    const Json json = Json::parse(line);
    const auto event = json.at("event").get<std::string>();
    if (event == "start") {
      State& s = states[point_of(plan, json.at("point"))];
      s.begun = true;
      s.outcome = Outcome::none;
    } else if (event == "end") {
      apply_end(plan, states, json);
    } else if (event == "value") {
      states[point_of(plan, json.at("point"))].value = value_of(json);
    } else if (event == "rung") {
      ++rungs;
      for (const Json& id : json.at("stopped")) states[point_of(plan, id)].outcome = Outcome::stopped;
    } else if (event == "submitting") {
      batches.push_back(read_batch(json));
    } else if (event == "submitted") {
      for (Batch& batch : batches)
        if (batch.number == json.at("batch")) batch.job = json.at("job");
    } else {
      throw UserError(str("unknown event ", event));
    }
  } catch (const Json::exception& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  } catch (const UserError& e) {
    throw UserError(str("[sweep] ", where, " is damaged: ", e.what()));
  }
}

Standing read_standing(const Plan& plan, const std::string& directory) {
  const std::string path = directory + "/journal.jsonl";
  Standing standing{std::vector<State>(plan.points.size()), {}, 0};
  const std::string text = jobs::read_text(path);
  size_t begin = 0, number = 1;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    standing.apply(plan, text.substr(begin, end - begin), str(path, ":", number++));
  return standing;
}

// Names of outcomes in files.

namespace {

constexpr std::array<std::pair<Outcome, const char*>, 8> kNames{{{Outcome::none, ""},
                                                                 {Outcome::done, "done"},
                                                                 {Outcome::diverged, "diverged"},
                                                                 {Outcome::out_of_memory, "out_of_memory"},
                                                                 {Outcome::failed, "failed"},
                                                                 {Outcome::preempted, "preempted"},
                                                                 {Outcome::stopped, "stopped"},
                                                                 {Outcome::paused, "paused"}}};

}  // namespace

const char* name_of(Outcome outcome) {
  for (const auto& [known, name] : kNames)
    if (known == outcome) return name;
  return "";
}

Outcome outcome_named(const std::string& name) {
  for (const auto& [outcome, known] : kNames)
    if (name == known) return outcome;
  return Outcome::none;
}

}  // namespace lmx_cli::sweeps
