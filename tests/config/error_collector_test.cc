// Errors of independent checks are reported together.
#include "config/error_collector.h"

#include <gmock/gmock.h>

#include "errors.h"
#include "temp_folder.h"

namespace lmx {
namespace {

using lmx_test::user_error;
using testing::ElementsAre;

TEST(TogetherTest, OneMistakeStaysWhatItIs) {
  ErrorCollector errors;
  errors.throw_any();
  EXPECT_TRUE(errors.keep([] {}));
  EXPECT_FALSE(errors.keep([] { throw UserError("a"); }));
  EXPECT_EQ(user_error([&] { errors.throw_any(); }), "a");
  EXPECT_EQ(user_error([&] { fail_together({"b"}, "unknown keys"); }), "b");
  ErrorCollector keys;
  EXPECT_FALSE(keys.keep([] { fail_together({"c", "d"}, "unknown keys"); }));
  EXPECT_EQ(user_error([&] { keys.throw_any(); }), "2 unknown keys:\n  c\n  d");
}

TEST(TogetherTest, SeveralAreOneList) {
  ErrorCollector errors;
  errors.keep([] { fail_together({"a", "b"}, "unknown keys"); });
  errors.keep([] { throw UserError("c"); });
  EXPECT_EQ(user_error([&] { errors.throw_any(); }), "3 mistakes:\n  a\n  b\n  c");
  try {
    errors.throw_any();
  } catch (const UserError& e) {
    EXPECT_THAT(messages_of(e), ElementsAre("a", "b", "c"));
  }
  EXPECT_THAT(messages_of(UserError("d")), ElementsAre("d"));
}

// Only a user's mistakes wait for others.
TEST(TogetherTest, OtherErrorsAreThrownAtOnce) {
  ErrorCollector errors;
  EXPECT_THROW(errors.keep([] { throw RunError("a"); }), RunError);
}

}  // namespace
}  // namespace lmx
