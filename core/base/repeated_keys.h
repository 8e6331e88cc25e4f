// Keys that an object of a JSON text has twice. Readers of JSON silently take one of the two values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lmx {

class RepeatedKeys {
 public:
  // For the callback of nlohmann's parser. Returns true if `value` is a key that its object already has.
  template <class Json>
  bool found(int depth, typename Json::parse_event_t event, const Json& value) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(std::max(keys_.size(), level + 2));
      keys_[level + 1].clear();
    }
    return event == Json::parse_event_t::key && !keys_[level].insert(value.template get<std::string>()).second;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the object that is open at each depth
};

}  // namespace lmx
