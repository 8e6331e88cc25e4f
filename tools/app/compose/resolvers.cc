#include "app/compose/interpolate.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "app/compose/override.h"
#include "base/clock.h"
#include "base/text.h"
#include "config/messages.h"
#include "config/source_text.h"
#include "lmx/log.h"

namespace lmx::app {
namespace {

[[noreturn]] void fail(const ResolverCall& call, const std::string& problem) {
  throw UserError(str(config::at(call.mark), call.shown, ": ", problem));
}

// The argument as text. Lists and maps have no text form, so they are an error.
std::string text_of(const ResolverCall& call, size_t i) {
  const Node& node = call.arguments[i];
  if (node.kind == Node::Kind::null) return "null";
  if (node.kind != Node::Kind::scalar)
    fail(call, str("argument ", i + 1, " is ", config::describe_value(node), ", expected a text"));
  return text_of_value(node);
}

// Always a string, so that the value of a variable does not change the type; oc.decode converts it to a number.
Node env(const ResolverCall& call) {
  const std::string name = text_of(call, 0);
  if (const char* value = std::getenv(name.c_str())) {
    if (find_invalid_utf8(value) != kValidUtf8)
      fail(call, str("the environment variable ", name, " is not UTF-8 text"));
    return Node::string(value, call.mark);
  }
  if (call.arguments.size() < 2)
    fail(call, str("the environment variable ", name, " is not set; set it, or give a default: ${oc.env:", name,
                   ",default}"));
  if (call.arguments[1].kind == Node::Kind::null) return call.arguments[1];
  return Node::string(text_of(call, 1), call.mark);
}

Node decode(const ResolverCall& call) {
  const Node& argument = call.arguments[0];
  return argument.kind == Node::Kind::scalar ? parse_value(argument.text, call.mark) : argument;
}

Node select(const ResolverCall& call) {
  const Node* node = call.select(text_of(call, 0));
  if (node && !config::is_missing(*node)) return *node;
  return call.arguments.size() > 1 ? call.arguments[1] : Node();
}

const Node& map_at(const ResolverCall& call) {
  const std::string path = text_of(call, 0);
  const Node* node = call.select(path);
  if (!node) fail(call, str("no key '", path, "'"));
  if (node->kind != Node::Kind::map)
    fail(call, str("'", path, "' is ", config::describe_value(*node), ", expected a map"));
  return *node;
}

Node dict_keys(const ResolverCall& call) {
  Node list = Node::list({}, call.mark);
  for (const std::string& key : map_at(call).keys()) list.items.push_back(Node::string(key, call.mark));
  return list;
}

Node dict_values(const ResolverCall& call) {
  Node list = Node::list({}, call.mark);
  for (const auto& entry : map_at(call).entries) list.items.push_back(entry.second);
  return list;
}

Node now(const ResolverCall& call) {
  const std::string format = text_of(call, 0);
  std::string text = local_time(format.c_str(), call.now);
  if (text.empty()) fail(call, "expected a time format such as %Y-%m-%d");
  return Node::string(std::move(text), call.mark);
}

// ${lmx:job.name}: a property of the run. Recipes from other projects use the name `hydra`.
Node run_value(const ResolverCall& call) {
  const std::string key = text_of(call, 0);
  std::map<std::string, Node> values;
  values["job.name"] = Node::string(call.run->name);
  values["job.num"] = Node::scalar(std::to_string(call.run->number));
  values["job.override_dirname"] = Node::string(call.run->override_dirname);
  values["runtime.cwd"] = Node::string(std::filesystem::current_path().string());
  values["runtime.version"] = Node::string(kVersion);
  for (const auto& [group, option] : call.run->choices) values["runtime.choices." + group] = Node::string(option);
  if (const auto it = values.find(key); it != values.end()) return it->second;
  std::vector<std::string> keys;
  for (const auto& entry : values) keys.push_back(entry.first);
  fail(call, str("a run has no '", key, "'", did_you_mean(key, keys), "; there are ", config::join(keys)));
}

// ${oc.deprecated:new.key}: the value of the key that this one was renamed to, with a warning.
Node deprecated(const ResolverCall& call) {
  const std::string key = text_of(call, 0);
  const Node* node = call.select(key);
  if (!node) fail(call, str("no key '", key, "'"));
  log_warn(str(config::at(call.mark),
               call.arguments.size() > 1 ? text_of(call, 1) : str("this key is now called '", key, "'")));
  return *node;
}

struct Resolver {
  Node (*function)(const ResolverCall&);
  size_t min_arguments, max_arguments;
};

const std::map<std::string, Resolver>& resolvers() {
  static const std::map<std::string, Resolver> table = {
      {"oc.env", {env, 1, 2}},
      {"oc.decode", {decode, 1, 1}},
      {"oc.select", {select, 1, 2}},
      {"oc.dict.keys", {dict_keys, 1, 1}},
      {"oc.dict.values", {dict_values, 1, 1}},
      {"oc.create", {decode, 1, 1}},
      {"oc.deprecated", {deprecated, 1, 2}},
      {"now", {now, 1, 1}},
      {"lmx", {run_value, 1, 1}},
      {"hydra", {run_value, 1, 1}},
  };
  return table;
}

}  // namespace

Node call_resolver(const std::string& name, const ResolverCall& call) {
  const auto it = resolvers().find(name);
  if (it == resolvers().end()) {
    std::vector<std::string> names;
    for (const auto& entry : resolvers())
      if (entry.first != "hydra") names.push_back(entry.first);
    fail(call, str("unknown resolver '", name, "'", did_you_mean(name, names), "; there are ", config::join(names)));
  }
  const size_t n = call.arguments.size();
  const Resolver& r = it->second;
  if (n < r.min_arguments || n > r.max_arguments)
    fail(call, str(name, " takes ", r.min_arguments,
                   r.max_arguments > r.min_arguments ? str(" to ", r.max_arguments) : "", " arguments, got ", n));
  Node result = r.function(call);
  result.mark = call.mark;
  return result;
}

}  // namespace lmx::app
