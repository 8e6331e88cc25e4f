// `lmx plan` as a command, for tests.
#pragma once

#include "process/run_fixture.h"

namespace lmx_test {

class PlanCommand : public RunTest {
 protected:
  // `sync=` chooses a file only where a defaults list has the group.
  PlanCommand() { write("tiny.yaml", std::string("defaults: [sync: allreduce, comm: self, _self_]\n") + kTinyRecipe); }

  Outcome plan(const std::string& recipe, const Words& more) const { return lmx(joined({"plan", recipe}, more)); }
  static std::string shipped(const std::string& name) { return source_path("/recipes/") + name; }
  Json rows(const std::string& recipe, Words more) const {
    more.push_back("--json");
    const Outcome o = plan(recipe, more);
    EXPECT_THAT(o, Succeeds());
    return o.code == 0 ? Json::parse(o.out) : Json::array();
  }
  void expect_refused(const Words& more, const Words& facts) const {
    EXPECT_THAT(plan(path("tiny.yaml"), more), Refuses(NamesMatcher(facts)));
  }
};

}  // namespace lmx_test
