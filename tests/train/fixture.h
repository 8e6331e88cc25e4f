// A separate folder for each test, and small tensors.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>

#include "lmx/plugin.h"
#include "runfiles/checkpoint.h"
#include "test.h"

namespace lmx {

inline void load_plugins() {
  static const bool once = [] {
    Registry::instance().add_default_directories();
    return true;
  }();
  static_cast<void>(once);
}

class FolderTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // The records of `split` in the metrics of the run in folder `dir`.
  std::vector<nlohmann::json> records(const std::string& dir, const std::string& split) const {
    std::vector<nlohmann::json> found;
    std::istringstream lines(lmx_test::read_file(path(dir) + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["split"] == split) found.push_back(json);
    }
    return found;
  }
  static void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
  }

  const lmx_test::TempFolder temporary_;
  const std::filesystem::path folder_ = temporary_.root();
};

inline void write_all(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
}

inline Tensor floats(Shape shape, std::vector<float> values) {
  return Tensor::from<float>(Allocator::cpu(), shape, values);
}

}  // namespace lmx
