// What oneDNN throws comes out as lmx's own errors, with the shapes.
#include "backend/onednn.h"

#include <gtest/gtest.h>

namespace lmx {
namespace {

template <class Call>
std::string run_error(Call&& call) {
  try {
    call();
  } catch (const RunError& e) {
    return e.what();
  }
  return "no RunError";
}

TEST(OneDnn, ErrorsAreRunErrorsThatNameTheOperation) {
  const auto what = [] { return std::string("multiply (2, 3) by (3, 4) f32"); };
  EXPECT_EQ(
      run_error([&] { with_onednn(what, [] { throw dnnl::error(dnnl_out_of_memory, "no room for a primitive"); }); }),
      "[gemm] oneDNN cannot multiply (2, 3) by (3, 4) f32 here: no room for a primitive");
  EXPECT_EQ(with_onednn(what, [] { return 7; }), 7);
  EXPECT_THROW(with_onednn(what, [] { throw UserError("another's"); }), UserError);
}

// A product that oneDNN refuses for real.
TEST(OneDnn, RefusedProductsNameTheirShapes) {
  const DnnlMatmul::Key key{-7, 5, 3, false, false, true, false, dnnl::memory::data_type::f32, 1};
  EXPECT_EQ(run_error([&] { dnnl_matmul(key); }).substr(0, 56),
            "[gemm] oneDNN cannot multiply (-7, 3) by (3, 5) f32 here");
}

}  // namespace
}  // namespace lmx
