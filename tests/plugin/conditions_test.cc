// Conditions on several fields of a component: reading its config checks each of them, and the error names the place.
#include "fixture.h"

namespace lmx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::TestWithParam;

struct Condition {
  PluginKind kind;
  const char *name, *wrong, *right;  // two configs; the second one differs from the first in the cause alone
  const char* why;                   // part of the error
};

void PrintTo(const Condition& c, std::ostream* out) {
  *out << c.name << ": " << c.wrong;
}

class Conditions : public TestWithParam<Condition> {
 protected:
  static std::string error_of(const char* config) {
    Registry::instance().add_directory(lmx_test::build_path("/lib/lmx/plugins"));
    const PluginInfo& plugin = Registry::instance().find(GetParam().kind, GetParam().name);
    return user_error([&] { plugin.descriptor->full_config(parse_yaml(config, "r.yaml"), "part"); });
  }
};

TEST_P(Conditions, AreCheckedWhenTheConfigIsRead) {
  EXPECT_THAT(error_of(GetParam().wrong), AllOf(StartsWith("r.yaml:1:"), HasSubstr(GetParam().why)));
  EXPECT_EQ(error_of(GetParam().right), "no error");
}

constexpr PluginKind model = PluginKind::model, sync = PluginKind::sync, codec = PluginKind::codec,
                     comm = PluginKind::comm;
constexpr Condition kConditions[] = {
    {model, "lstm", "{cells: 8, projection: 9}", "{cells: 9, projection: 9}", "narrower"},
    {model, "lstm", "{weight_norm: '('}", "{weight_norm: 'x'}", "weight_norm"},
    {model, "transformer", "{d: 128, heads: 7}", "{d: 126, heads: 7}", "multiple of heads"},
    {model, "transformer", "{d: 9, heads: 9}", "{d: 18, heads: 9}", "must be even"},
    {model, "gpt", "{d: 128, heads: 7}", "{d: 128, heads: 7, head_size: 16}", "head_size sets another size"},
    {model, "gpt", "{d: 8, heads: 4, kv_heads: 3}", "{d: 8, heads: 4, kv_heads: 2}", "does not divide heads"},
    {model, "gpt", "{d: 9, heads: 3}", "{d: 12, heads: 3}", "even size"},
    {model, "gpt", "{rope_scaling: {low: 4, high: 4}}", "{rope_scaling: {low: 4, high: 5}}", "larger than low"},
    {sync, "allreduce", "{levels: 2, codec: {kind: one_bit}}", "{levels: 2, codec: {kind: fp16}}", "give levels: 1"},
    {sync, "allgather", "{codec: {kind: one_bit}}", "{codec: {kind: fp16}}", "no place to keep"},
    {sync, "allgather_dense", "{codec: {kind: one_bit}}", "{codec: {kind: fp16}}", "no second side"},
    {sync, "one_bit", "{codec: {kind: fp16}}", "{codec: {kind: one_bit}}", "one bit an entry"},
    {sync, "one_bit_adam", "{betas: [0.9]}", "{betas: [0.9, 0.99]}", "two numbers"},
    {sync, "one_bit_adam", "{codec: {kind: fp16}}", "{codec: {kind: sign}}", "never corrected"},
    {sync, "sampled_rows", "{transport: param_server, bucket_mb: 7}", "{transport: allreduce, bucket_mb: 7}",
     "one message to each shard"},
    {sync, "sampled_rows", "{transport: allreduce, delay: {kind: fixed}}",
     "{transport: param_server, delay: {kind: fixed}}", "ranks go in step"},
    {sync, "param_server", "{delay: {kind: trace}}", "{delay: {kind: trace, file: x}}", "needs a file"},
    {sync, "sparse_loco", "{top: 65, chunk: 64}", "{top: 64, chunk: 64}", "more than the chunk"},
    {sync, "sparse_loco", "{codec: {kind: one_bit}}", "{codec: {kind: fp16}}", "contains its error already"},
    {sync, "diloco", "{every: 2, fragments: 3}", "{every: 3, fragments: 3}", "at most one part"},
    {sync, "diloco", "{every: 2, delay: 2}", "{every: 2, delay: 1}", "before the next exchange"},
    {sync, "top_k", "{chunk: 63}", "{chunk: 64}", "less than 64"},
    {codec, "quantised", "{bits: 3}", "{bits: 2}", "expected 2, 4 or 8"},
    {codec, "quantised", "{bits: 8, levels: e3m0}", "{bits: 4, levels: e3m0}", "e3m0 has 4 bits"},
    {comm, "mpi", "{timeout_s: 2, heartbeat_s: 1}", "{timeout_s: 3, heartbeat_s: 1}", "3 heartbeats"},
    {comm, "gloo", "{timeout_s: 2, heartbeat_s: 1}", "{timeout_s: 3, heartbeat_s: 1}", "3 heartbeats"},
};
INSTANTIATE_TEST_SUITE_P(All, Conditions, ::testing::ValuesIn(kConditions),
                         [](const auto& one) { return str(one.param.name, '_', one.index); });

}  // namespace
}  // namespace lmx
