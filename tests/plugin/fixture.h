// What the tests of the plugin layer share.
#pragma once

#include "lmx/plugin.h"
#include "test.h"

namespace lmx {

// A folder of plugins that tests/plugin/CMakeLists.txt built.
inline std::string built(const std::string& folder) {
  return lmx_test::build_path("/tests/plugins/") + folder;
}

using namespace lmx_test;

class PluginTest : public testing::Test, protected lmx_test::TempFolder {
 protected:
  static std::string manifest(const std::string& name, const std::string& kind) {
    return str("name = \"", name, "\"\nkind = \"", kind, "\"\nversion = \"1\"\nlicence = \"MIT\"\nsummary = \"s\"\n");
  }
};

}  // namespace lmx
