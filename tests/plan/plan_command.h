// `lmx plan` as a command, for tests.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {

using Json = nlohmann::json;

class PlanCommand : public RunTest {
 protected:
  // `sync=` chooses a file only where a defaults list has the group.
  PlanCommand() { write("tiny.yaml", std::string("defaults: [sync: allreduce, comm: self, _self_]\n") + kTinyRecipe); }

  Outcome plan(const std::string& recipe, std::vector<std::string> more) const {
    more.insert(more.begin(), {build_path("/bin/lmx"), "plan", recipe});
    return run_process(more, environment());
  }
  static std::string shipped(const std::string& name) { return source_path("/recipes/") + name; }
  Json rows(const std::string& recipe, std::vector<std::string> more) const {
    more.push_back("--json");
    const Outcome o = plan(recipe, more);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json::array();
  }
  void expect_refused(const std::vector<std::string>& more, const std::vector<std::string>& facts) const {
    const Outcome o = plan(path("tiny.yaml"), more);
    EXPECT_EQ(o.code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, NamesMatcher(facts));
  }
};

}  // namespace lmx_test
