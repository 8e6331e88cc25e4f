// The folders of the sources and of the build. They are no macros, so that the tests' objects do not depend on them:
// ccache serves a second checkout with the objects of the first one.
#pragma once

#include <string>
#include <string_view>

namespace lmx_test {

// `path` in the folder, such as "/recipes/quickstart.yaml"; without one, the folder. The variable LMX_TEST_BUILD names
// another folder of the build: that of an archive of `tools/gpu pack`.
std::string source_path(std::string_view path = {});
std::string build_path(std::string_view path = {});

// A path that cannot exist, because it is below a file. Opening it fails with ENOTDIR.
std::string missing_path();

// The program of this name on PATH; "" if there is none.
std::string on_path(const std::string& name);

}  // namespace lmx_test
