// safetensors files: written files are read back, and every malformed file is rejected with one message.
#include <cstring>

#include "runfiles/checkpoint.h"
#include "same_tensors.h"
#include "train/fixture.h"

namespace lmx {
namespace {

using namespace lmx_test;

class Safetensors : public FolderTest {
 protected:
  // A file with this header and this many zero bytes of data.
  std::string file(const std::string& header, size_t data, int64_t length = -1) {
    const uint64_t n = length < 0 ? header.size() : static_cast<uint64_t>(length);
    std::string text(sizeof n, '\0');
    std::memcpy(text.data(), &n, sizeof n);
    write_all(path("t"), text + header + std::string(data, '\0'));
    return path("t");
  }
  std::string refused(const std::string& header, size_t data, int64_t length = -1) {
    const std::string name = file(header, data, length);
    return user_error([&] { load_safetensors(name, Allocator::cpu()); });
  }
};

TEST_F(Safetensors, EveryTypeAndShapeComesBack) {
  StateDict in;
  in["f32"] = floats({2, 3}, {1, -2, 3.5f, 0, 1e-30f, 7});
  in["i64"] = Tensor::from<int64_t>(Allocator::cpu(), {1}, std::vector<int64_t>{-5});
  in["u8"] = Tensor::from<uint8_t>(Allocator::cpu(), {3}, std::vector<uint8_t>{1, 2, 255});
  in["bf16"] = Tensor::from<bfloat16>(Allocator::cpu(), {2}, std::vector<bfloat16>{bfloat16(1.5f), bfloat16(-3)});
  in["f64 \"quoted\" é"] = Tensor::from<double>(Allocator::cpu(), {1, 1, 2}, std::vector<double>{0.1, 1e300});
  in["none"] = Tensor::empty(Allocator::cpu(), {0, 4}, DType::f32);
  save_safetensors(path("t"), in, {{"key", "value"}});
  lmx_test::expect_same(in, load_safetensors(path("t"), Allocator::cpu()));
}

TEST_F(Safetensors, BytesAreTheFormats) {
  save_safetensors(path("t"), {{"a", floats({1}, {1})}});
  const std::string text = lmx_test::read_file(path("t"));
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(text.substr(8, header.size()), header);
  EXPECT_EQ(text.substr(8 + length), std::string("\0\0\x80\x3f", 4));
}

// Metadata of the caller is kept. Files without the format entry can be read as well.
TEST_F(Safetensors, MetadataNamesTheFormat) {
  save_safetensors(path("t"), {{"a", floats({1}, {1})}}, {{"average_of", "x"}});
  EXPECT_EQ(safetensors_metadata(path("t")),
            (std::map<std::string, std::string>{{"average_of", "x"}, {"format", "pt"}}));
  const std::string old = file(R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})", 4);
  EXPECT_TRUE(safetensors_metadata(old).empty());
  EXPECT_EQ(load_safetensors(old, Allocator::cpu()).size(), 1u);
}

TEST_F(Safetensors, NoTensorsAtAll) {
  save_safetensors(path("t"), {});
  EXPECT_TRUE(load_safetensors(path("t"), Allocator::cpu()).empty());
}

TEST_F(Safetensors, MissingAndTruncated) {
  EXPECT_THAT(user_error([&] { load_safetensors(path("nowhere"), Allocator::cpu()); }), Names("nowhere"));
  write_all(path("t"), "");
  EXPECT_THAT(user_error([&] { load_safetensors(path("t"), Allocator::cpu()); }), Names("0 bytes"));
  write_all(path("t"), "1234567");
  EXPECT_THAT(user_error([&] { load_safetensors(path("t"), Allocator::cpu()); }), Names("7 bytes"));
  save_safetensors(path("t"), {{"a", floats({4}, {1, 2, 3, 4})}, {"b", floats({2}, {5, 6})}});
  const std::string whole = lmx_test::read_file(path("t"));
  for (size_t n = 0; n < whole.size(); ++n) {
    write_all(path("t"), whole.substr(0, n));
    EXPECT_NE(user_error([&] { load_safetensors(path("t"), Allocator::cpu()); }), "no error") << n << " bytes";
  }
  write_all(path("t"), whole + "x");
  EXPECT_THAT(user_error([&] { load_safetensors(path("t"), Allocator::cpu()); }), Names("1 bytes"));
}

TEST_F(Safetensors, HostileHeaders) {
  EXPECT_THAT(refused("{}", 0, INT64_MAX), Names("header", std::to_string(INT64_MAX)));
  EXPECT_THAT(refused("{}", 0, 200'000'000), Names("header", "200000000"));
  EXPECT_THAT(refused("{}", 0, 3), Names("header", "3 bytes"));
  EXPECT_THAT(refused("not json", 0), Names("no JSON"));
  EXPECT_THAT(refused("[1]", 0), Names("no JSON object"));
  EXPECT_THAT(refused("\xff\xfe", 0), Names("no JSON"));
  EXPECT_THAT(refused(std::string(50'000, '['), 0), Names("nested too deeply"));
  EXPECT_THAT(refused(R"({"a":1})", 0), Names("dtype"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4), Names("dtype"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1), Names("type F8"));
  EXPECT_THAT(refused(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1), Names("type 7"));
}

TEST_F(Safetensors, HostileShapesAndOffsets) {
  const auto tensor = [](const char* shape, const char* offsets) {
    return str(R"({"a":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
  };
  EXPECT_THAT(refused(tensor("[-1]", "[0,4]"), 4), Names("shape", "[-1]"));
  EXPECT_THAT(refused(tensor("[1.5]", "[0,4]"), 4), Names("shape", "[1.5]"));
  EXPECT_THAT(refused(tensor("[1,1,1,1,1,1,1]", "[0,4]"), 4), Names("shape", "[1,1,1,1,1,1,1]"));
  EXPECT_THAT(refused(tensor("[18446744073709551615]", "[0,4]"), 4), Names("shape", "18446744073709551615"));
  EXPECT_THAT(refused(tensor("[4611686018427387904,4]", "[0,4]"), 4), Names("larger than memory"));
  EXPECT_THAT(refused(tensor("[4294967296,4294967296]", "[0,4]"), 4), Names("larger than memory"));
  EXPECT_THAT(refused(tensor("[2305843009213693952]", "[0,4]"), 4), Names("(2305843009213693952)", "4 bytes"));
  EXPECT_THAT(refused(tensor("[1]", "[4,0]"), 4), Names("bytes 4 to 0"));
  EXPECT_THAT(refused(tensor("[1]", "[0,8]"), 4), Names("bytes 0 to 8"));
  EXPECT_THAT(refused(tensor("[1]", "[-4,0]"), 4), Names("offsets"));
  EXPECT_THAT(refused(tensor("[1]", "[0]"), 4), Names("offsets"));
  EXPECT_THAT(refused(tensor("[1]", "[0,3]"), 3), Names("(1)", "3 bytes"));
  EXPECT_THAT(refused(tensor("[2]", "[0,4]"), 4), Names("(2)", "4 bytes"));
}

TEST_F(Safetensors, OverlapHoleAndDuplicateNames) {
  const auto pair = [](const char* first, const char* name, const char* second) {
    return str(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)", first, R"(},")", name,
               R"(":{"dtype":"F32","shape":[1],"data_offsets":)", second, "}}");
  };
  EXPECT_EQ(refused(pair("[0,4]", "b", "[4,8]"), 8), "no error");
  EXPECT_THAT(refused(pair("[0,4]", "b", "[0,4]"), 4), Names("overlap"));
  EXPECT_THAT(refused(pair("[0,4]", "b", "[2,6]"), 6), Names("overlap"));
  EXPECT_THAT(refused(pair("[0,4]", "b", "[8,12]"), 12), Names("hole"));
  EXPECT_THAT(refused(pair("[4,8]", "b", "[8,12]"), 12), Names("hole"));
  EXPECT_THAT(refused(pair("[0,4]", "a", "[4,8]"), 8), Names("'a' twice"));
}

}  // namespace
}  // namespace lmx
