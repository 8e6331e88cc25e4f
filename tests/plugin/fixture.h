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
#include "temp_folder.h"

namespace lmx {

// A folder of plugins that tests/plugin/CMakeLists.txt built.
inline std::string built(const std::string& folder) {
  return lmx_test::build_path("/tests/plugins/") + folder;
}

using lmx_test::user_error;

class PluginTest : public testing::Test, protected lmx_test::TempFolder {
 protected:
  static std::string manifest(const std::string& name, const std::string& kind) {
    return str("name = \"", name, "\"\nkind = \"", kind, "\"\nversion = \"1\"\nlicence = \"MIT\"\nsummary = \"s\"\n");
  }
};

}  // namespace lmx
