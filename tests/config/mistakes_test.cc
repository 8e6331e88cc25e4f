// Mistakes that are told together.
#include "config/mistakes.h"

#include <gmock/gmock.h>

#include "test_files.h"

namespace lmx {
namespace {

using test::user_error;
using testing::ElementsAre;

TEST(TogetherTest, OneMistakeStaysWhatItIs) {
  Mistakes mistakes;
  mistakes.throw_any();
  EXPECT_TRUE(mistakes.keep([] {}));
  EXPECT_FALSE(mistakes.keep([] { throw UserError("a"); }));
  EXPECT_EQ(user_error([&] { mistakes.throw_any(); }), "a");
  EXPECT_EQ(user_error([&] { fail_together({"b"}, "unknown keys"); }), "b");
  Mistakes keys;
  EXPECT_FALSE(keys.keep([] { fail_together({"c", "d"}, "unknown keys"); }));
  EXPECT_EQ(user_error([&] { keys.throw_any(); }), "2 unknown keys:\n  c\n  d");
}

TEST(TogetherTest, SeveralAreOneList) {
  Mistakes mistakes;
  mistakes.keep([] { fail_together({"a", "b"}, "unknown keys"); });
  mistakes.keep([] { throw UserError("c"); });
  EXPECT_EQ(user_error([&] { mistakes.throw_any(); }), "3 mistakes:\n  a\n  b\n  c");
  try {
    mistakes.throw_any();
  } catch (const UserError& e) {
    EXPECT_THAT(messages_of(e), ElementsAre("a", "b", "c"));
  }
  EXPECT_THAT(messages_of(UserError("d")), ElementsAre("d"));
}

// Only a user's mistakes wait for others.
TEST(TogetherTest, OtherErrorsAreThrownAtOnce) {
  Mistakes mistakes;
  EXPECT_THROW(mistakes.keep([] { throw RunError("a"); }), RunError);
}

}  // namespace
}  // namespace lmx
