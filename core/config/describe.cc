// Typed configs as a tree with every default, and as a table of fields.
#include "config/messages.h"

#include <cmath>

namespace lmx {

using config::double_text;
using config::join_path;

namespace config {
namespace {

std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) return std::to_string(static_cast<int64_t>(bound));
  return double_text(bound);
}

}  // namespace

std::string range_text(const Range& range) {
  const bool low = !std::isinf(range.min), high = !std::isinf(range.max);
  if (low && high)
    return str("in ", range.open_min ? "(" : "[", bound_text(range.min), ", ", bound_text(range.max), "]");
  if (low) return str(range.open_min ? "> " : ">= ", bound_text(range.min));
  if (high) return str("<= ", bound_text(range.max));
  return "";
}

}  // namespace config

namespace {

Node node_of(int64_t value) {
  return Node::scalar(std::to_string(value));
}
Node node_of(double value) {
  return Node::scalar(double_text(value));
}
Node node_of(bool value) {
  return Node::scalar(value ? "true" : "false");
}
Node node_of(const std::string& value) {
  return Node::string(value);
}

template <class T>
Node node_of(const std::vector<T>& values) {
  Node list = Node::list({});
  for (const T& value : values) list.items.push_back(node_of(value));
  return list;
}

std::string one_line(const Node& node) {
  if (node.kind == Node::Kind::map || node.kind == Node::Kind::null) return to_json(node);
  std::string text = to_yaml(node);
  text.pop_back();
  return text;
}

}  // namespace

struct ConfigWriter::Impl : Fields {
  void put(const char* name, Node value) { levels.back().second.set(name, std::move(value)); }

  void field(const char* name, int64_t& value, const char*, Range) override { put(name, node_of(value)); }
  void field(const char* name, double& value, const char*, Range) override { put(name, node_of(value)); }
  void field(const char* name, bool& value, const char*) override { put(name, node_of(value)); }
  void field(const char* name, std::string& value, const char*) override { put(name, node_of(value)); }
  void required(const char* name, std::string& value, const char*) override { put(name, node_of(value)); }
  void required(const char* name, int64_t& value, const char*, Range) override { put(name, node_of(value)); }
  void choice(const char* name, std::string& value, const std::vector<std::string>&, const char*) override {
    put(name, node_of(value));
  }
  void field(const char* name, std::vector<int64_t>& value, const char*, Range) override { put(name, node_of(value)); }
  void field(const char* name, std::vector<double>& value, const char*, Range) override { put(name, node_of(value)); }
  void field(const char* name, std::vector<std::string>& value, const char*) override { put(name, node_of(value)); }
  void subtree(const char* name, Node& value, const char*) override { put(name, value); }
  void rest(Node& value, const Complete&) override {
    for (const auto& [key, given] : value.entries) put(key.c_str(), given);
  }
  void enter(const char* name, const char*) override { levels.emplace_back(name, Node::map()); }
  void leave() override {
    auto [name, map] = std::move(levels.back());
    levels.pop_back();
    put(name.c_str(), std::move(map));
  }

  std::vector<std::pair<std::string, Node>> levels{{"", Node::map()}};
};

ConfigWriter::ConfigWriter() : impl_(std::make_unique<Impl>()) {}
ConfigWriter::~ConfigWriter() = default;
Fields& ConfigWriter::fields() {
  return *impl_;
}
Node ConfigWriter::take() {
  return std::exchange(impl_->levels.front().second, Node::map());
}

struct ConfigDescriber::Impl : Fields {
  void put(const char* name, const char* type, const Node& value, std::string range, const char* help) {
    rows.push_back({join_path(path, name), type, one_line(value), std::move(range), help});
  }
  void put_required(const char* name, const char* type, std::string range, const char* help) {
    rows.push_back({join_path(path, name), type, "???", std::move(range), help});
  }

  void field(const char* name, int64_t& value, const char* help, Range range) override {
    put(name, "int", node_of(value), config::range_text(range), help);
  }
  void field(const char* name, double& value, const char* help, Range range) override {
    put(name, "float", node_of(value), config::range_text(range), help);
  }
  void field(const char* name, bool& value, const char* help) override { put(name, "bool", node_of(value), "", help); }
  void field(const char* name, std::string& value, const char* help) override {
    put(name, "text", node_of(value), "", help);
  }
  void required(const char* name, std::string&, const char* help) override { put_required(name, "text", "", help); }
  void required(const char* name, int64_t&, const char* help, Range range) override {
    put_required(name, "int", config::range_text(range), help);
  }
  void choice(const char* name, std::string& value, const std::vector<std::string>& allowed,
              const char* help) override {
    put(name, "choice", node_of(value), "one of " + config::join(allowed), help);
  }
  void field(const char* name, std::vector<int64_t>& value, const char* help, Range range) override {
    put(name, "list of int", node_of(value), config::range_text(range), help);
  }
  void field(const char* name, std::vector<double>& value, const char* help, Range range) override {
    put(name, "list of float", node_of(value), config::range_text(range), help);
  }
  void field(const char* name, std::vector<std::string>& value, const char* help) override {
    put(name, "list of text", node_of(value), "", help);
  }
  void subtree(const char* name, Node& value, const char* help) override { put(name, "map", value, "", help); }
  void rest(Node&, const Complete&) override {}
  void enter(const char* name, const char*) override { path = join_path(path, name); }
  void leave() override {
    const size_t dot = path.rfind('.');
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }

  std::string path;
  std::vector<FieldInfo> rows;
};

ConfigDescriber::ConfigDescriber() : impl_(std::make_unique<Impl>()) {}
ConfigDescriber::~ConfigDescriber() = default;
Fields& ConfigDescriber::fields() {
  return *impl_;
}
std::vector<FieldInfo> ConfigDescriber::take() {
  return std::move(impl_->rows);
}

}  // namespace lmx
