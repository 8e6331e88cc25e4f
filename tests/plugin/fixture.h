// What the tests of the plugin layer share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "errors.h"
#include "lmx/plugin.h"
#include "paths.h"

namespace lmx {

// A folder of plugins that tests/plugin/CMakeLists.txt built.
inline std::string built(const std::string& folder) {
  return lmx_test::build_path("/tests/plugins/") + folder;
}

using lmx_test::user_error;

// A directory of its own for each test, removed afterwards.
class PluginTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "lmx_plugin_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::filesystem::path& name, const std::string& text) {
    const std::filesystem::path file = directory_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  static std::string manifest(const std::string& name, const std::string& kind) {
    return str("name = \"", name, "\"\nkind = \"", kind, "\"\nversion = \"1\"\nlicence = \"MIT\"\nsummary = \"s\"\n");
  }

  std::filesystem::path directory_;
};

}  // namespace lmx
