// lmx plugins check and new: the output for good and bad plugins.
#include <cstdlib>

#include "lmx/error.h"
#include "process/emulated.h"
#include "process/lmx_process.h"

namespace lmx_test {
namespace {

using lmx::str;

std::string built(const std::string& kind, const std::string& name) {
  return build_path("/lib/lmx/plugins/") + kind + "/" + name + "/" + name + ".so";
}
Outcome check(Words arguments, std::map<std::string, std::string> environment = {}) {
  arguments.insert(arguments.begin(), {"plugins", "check"});
  environment["OMP_NUM_THREADS"] = "1";
  return run_lmx(arguments, crashes_unhandled(std::move(environment)));
}
// A plugin of tests/plugin that has a field `fault`.
std::string faulty(const std::string& name) {
  return str(build_path("/tests/plugins/own_kinds/test_"), name, "/test_", name, ".so");
}
Outcome check(const std::string& name, const std::string& config, const Words& more = {}) {
  return check(joined({faulty(name), "--config", config}, more));
}

struct Good {
  const char *kind, *name;
  Words more;
};
class LmxsOwnPlugins : public testing::TestWithParam<Good> {};
TEST_P(LmxsOwnPlugins, PassTheirKindsChecks) {
  Words arguments{built(GetParam().kind, GetParam().name)};
  arguments.insert(arguments.end(), GetParam().more.begin(), GetParam().more.end());
  EXPECT_THAT(check(arguments), Prints(HasSubstr(" passed, 0 failed\n"), Not(HasSubstr("\x01"))));
}
INSTANTIATE_TEST_SUITE_P(
    All, LmxsOwnPlugins,
    testing::Values(
        Good{"model", "lstm", {"--config", "{embedding: 5, cells: 6}"}},
        Good{"model", "lstm", {"--config", "{embedding: 5, cells: 6, projection: 4, layers: 2, dropout: 0.2}"}},
        Good{"model", "mlstm", {"--config", "{embedding: 5, cells: 6, layers: 2, dropout: 0.2}"}},
        Good{"model",
             "mlstm",
             {"--config", "{embedding: 5, cells: 6, weight_norm: '.*', checkpoint: true, segment: 3}"}},
        Good{"model", "rhn", {"--config", "{embedding: 5, cells: 6, depth: 3, layers: 2, dropout: 0.2}"}},
        Good{"model", "rhn", {"--config", "{embedding: 5, cells: 6, depth: 1, coupled: no, weight_norm: '.*_s.*'}"}},
        Good{"model",
             "transformer",
             {"--config", "{d: 8, ffn: 12, heads: 2, encoder_layers: 1, decoder_layers: 2, share: all}"}},
        Good{"model", "transformer", {"--config", "{d: 8, ffn: 12, heads: 2, encoder_layers: 0, decoder_layers: 2}"}},
        Good{"model", "gpt", {"--config", "{layers: 2, d: 8, heads: 4, kv_heads: 2, ffn: 12, dropout: 0.2}"}},
        Good{"model",
             "gpt",
             {"--config",
              "{layers: 2, d: 8, heads: 2, head_size: 6, positions: learned, norm: layer, activation: gelu_tanh, "
              "bias: yes, qk_norm: yes, tie: no, checkpoint: yes}"}},
        Good{"sync", "allreduce", {}}, Good{"sync", "unique", {}}, Good{"sync", "allgather", {}},
        Good{"sync", "top_k", {"--approximate", "--config", "{keep: 0.25}"}},
        Good{"sync", "random_k", {"--approximate", "--config", "{keep: 0.25}"}},
        Good{"sync", "qsgd", {"--approximate", "--config", "{min_size: 0}"}}, Good{"sync", "sign_majority", {}},
        Good{"sync", "dgc", {"--approximate", "--config", "{keep: 0.25, momentum: 0}"}}, Good{"sync", "demo", {}},
        Good{"sync", "one_bit_adam", {"--config", "{freeze: 2}"}}, Good{"codec", "sign", {}},
        Good{"sync", "sparse_loco", {"--config", "{every: 3}"}}, Good{"codec", "quantised", {}},
        Good{"codec", "quantised", {"--config", "{bits: 2, levels: statistical, block: 0, feedback: 0.9}"}},
        Good{"sync", "power_sgd", {"--approximate"}}, Good{"sync", "allgather_dense", {}}, Good{"sync", "seeded", {}},
        Good{"sync", "one_bit", {"--approximate"}}, Good{"sync", "sampled_rows", {}},
        Good{"sync", "sampled_rows", {"--config", "{p: 0, q: 5, hidden_q: 30, draw: step}"}},
        Good{"sync", "param_server", {}}, Good{"batcher", "tbptt", {}}, Good{"batcher", "random_windows", {}},
        Good{"batcher", "packed_windows", {"--config", "{sequence_length: 7}"}}, Good{"batcher", "same_shape", {}},
        Good{"batcher", "token_budget", {}}, Good{"comm", "virtual", {}}),
    [](const auto& one) { return std::string(one.param.name) + "_" + std::to_string(one.index); });

// Models and strategies on the emulated device.
class OnADevice : public testing::TestWithParam<Good> {};
TEST_P(OnADevice, PluginsAreChecked) {
  if (!fs::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
  Words arguments{built(GetParam().kind, GetParam().name), "--device", "cuda"};
  arguments.insert(arguments.end(), GetParam().more.begin(), GetParam().more.end());
  const Outcome o = check(arguments, {{"LMX_CUDA_LIBRARY", emulated_cuda()}, {"LMX_EMULATED_ORDER", "scrambled"}});
  EXPECT_THAT(o, Prints("cuda:0, Emulated CUDA device", " passed, 0 failed\n"));
  if (GetParam().kind == std::string("model"))
    EXPECT_THAT(o.out, Names("ok    on device", "ok    its gradients"));
  else if (GetParam().kind == std::string("codec"))
    EXPECT_THAT(o.out, Names("ok    on device     decodes what the CPU decodes"));
  else
    EXPECT_THAT(o.out.substr(o.out.find("cuda:0")), Names("ok    ledger", "ok    sum", "ok    rescale"));
}
INSTANTIATE_TEST_SUITE_P(
    All, OnADevice,
    testing::Values(
        Good{"model", "lstm", {"--config", "{embedding: 5, cells: 6, projection: 4, layers: 2, dropout: 0.2}"}},
        Good{"model", "mlstm", {"--config", "{embedding: 5, cells: 6, layers: 2, dropout: 0.2}"}},
        Good{"model", "rhn", {"--config", "{embedding: 5, cells: 6, depth: 3, layers: 2, dropout: 0.2}"}},
        Good{"model",
             "gpt",
             {"--config", "{layers: 2, d: 8, heads: 4, kv_heads: 2, ffn: 12, dropout: 0.2, qk_norm: yes}"}},
        Good{"model",
             "transformer",
             {"--config", "{d: 8, ffn: 12, heads: 2, encoder_layers: 1, decoder_layers: 2, share: all}"}},
        Good{"sync", "unique", {"--config", "{codec: {kind: fp16}}"}}, Good{"codec", "sign", {}},
        Good{"codec", "quantised", {"--config", "{bits: 4, levels: statistical}"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(PluginsCheck, ADeviceIsForModelsAndStrategies) {
  if (!fs::exists(emulated_cuda())) GTEST_SKIP() << "this build has no emulated device";
  const Outcome o = check({built("batcher", "tbptt"), "--device", "cuda"}, {{"LMX_CUDA_LIBRARY", emulated_cuda()}});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err,
            "error: [plugins] --device cuda is for plugins of the kinds model, sync, optimizer and codec, and tbptt is "
            "of the "
            "kind batcher\n");
}

TEST(PluginsCheck, ADeviceThatIsMissingIsSaid) {
  EXPECT_THAT(check({built("model", "lstm"), "--device", "cuda:1000"}),
              Refuses("error: [plugins] --device: cuda:1000 is not available: "));
}

TEST(PluginsCheck, AStrategyThatRoundsNeedsApproximate) {
  const Outcome o = check({built("sync", "one_bit")});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, HasSubstr("FAIL  sum "));
  EXPECT_THAT(o.out, HasSubstr("--approximate"));
}

TEST(PluginsCheck, ACrashIsALine) {
  const Outcome o = check("batcher", "{fault: 1}");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, HasSubstr("ok    construction"));
  EXPECT_THAT(o.out, Names("FAIL  shapes:", "Segmentation fault"));
}

TEST(PluginsCheck, AnEndWithoutAWordIsNoPass) {
  const Outcome o = check("batcher", "{fault: 4}");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, Names("FAIL  shapes:", "ended"));
}

TEST(PluginsCheck, BrokenPromisesAreNamed) {
  const Outcome impure = check("batcher", "{fault: 2}");
  EXPECT_EQ(impure.code, 1);
  EXPECT_THAT(impure.out, Names("FAIL  determinism   step 21", "batch()"));
  const Outcome sliced = check("batcher", "{fault: 3}");
  EXPECT_EQ(sliced.code, 1);
  EXPECT_THAT(sliced.out, Names("FAIL  slices        step 0: sequence 1"));
}

TEST(PluginsCheck, ABatcherOfTextWithoutALengthIsNamed) {
  EXPECT_THAT(check("batcher", "{fault: 15}").out,
              Names("FAIL  shapes        step 0: batch() gives no `source`; a sequence_length() of 0 means pairs"));
}

TEST(PluginsCheck, BatchesWithoutTheirFormAreNamedOnce) {
  for (const auto& [fault, text] : {std::pair{11, "batch() gives sequence 5 of slots 0 to 5 the slot 6, expected 5"},
                                    {12, "batch() gives 6 slots and 5 flags `fresh` for 6 sequences"},
                                    {13, "batch() gives inputs (24) and targets (24); both must be (6, T)"},
                                    {14, "batch() gives inputs (6, 4) and targets (5, 4)"}}) {
    const Outcome o = check("batcher", str("{fault: ", fault, "}"));
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.out, Names(str("FAIL  shapes        step 0: ", text), "FAIL  targets       as shapes\n")) << fault;
  }
}

TEST(PluginsCheck, WhatCannotBeLoadedIsExitCodeTwo) {
  EXPECT_THAT(check({build_path("/tests/plugins/wrong_abi/test_wrong_abi/test_wrong_abi.so")}), Refuses("ABI 41"));
  EXPECT_THAT(check({build_path("/tests/plugins/wrong_build/test_good/test_good.so")}), Refuses("rebuild"));
  EXPECT_THAT(check({missing_path()}), Refuses(missing_path()));
  const Outcome field = check({built("batcher", "tbptt"), "--config", "{sequence_lenght: 3}"});
  EXPECT_EQ(field.code, 1);
  EXPECT_THAT(field.out, Names("'sequence_length'?"));
}

TEST(PluginsCheck, ValuesAreReadAsInAnOverride) {
  const std::string rhn = built("model", "rhn");
  const auto error = [&](const std::string& config) {
    const Outcome o = check({rhn, "--config", config});
    EXPECT_EQ(o.code, 2) << o.out;
    return o.err;
  };
  EXPECT_EQ(error("cells: 8"), "error: --config 'cells: 8': expected a map, such as '{cells: 8}'\n");
  EXPECT_EQ(error("{cells: 8"), "error: --config '{cells: 8': column 1: '{' is never closed by '}'\n");
  EXPECT_EQ(error("{cells: \xff}"), "error: --config '{cells: <xFF>}': column 9: not UTF-8 text\n");
  const Outcome value = check({rhn, "--config", "{coupled: maybe}"});
  EXPECT_EQ(value.code, 1);
  EXPECT_THAT(value.out, Names("--config '{coupled: maybe}': model.coupled:", "'maybe'"));
}

TEST(PluginsCheck, TheGivenFileWinsOverOneOfItsNameOnTheSearchPath) {
  const TempFolder other;
  fs::copy(fs::path(faulty("batcher")).parent_path(), other.root());
  other.write("test_batcher.so", "no library");
  const Outcome o = check({faulty("batcher"), "--config", "{fault: 3}"}, {{"LMX_PLUGIN_PATH", other.root()}});
  EXPECT_EQ(o.code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, Names(faulty("batcher"), "FAIL  slices"));
}

TEST(PluginsCheck, ASourceFileIsNoLibrary) {
  EXPECT_THAT(check({source_path("/plugins/batchers/tbptt/tbptt.cc")}), Refuses("tbptt.cc", "/tbptt/tbptt.so"));
}

// A recipe's own group replaces all keys of the earlier group. Replacing the name only does not, and the message
// explains it.
TEST(PluginsCheck, AKeyThatAnotherGroupLeftIsExplained) {
  EXPECT_THAT(run_lmx({"config", source_path("/recipes/quickstart.yaml"), "model.name=rhn"}),
              Refuses("model/lstm.yaml:5", "model.projection", "model=rhn", "~model.projection"));
  EXPECT_THAT(run_lmx({"config", source_path("/recipes/quickstart.yaml"), "model=rhn"}), Succeeds());
}

class PluginsNew : public testing::Test, protected TempFolder {};

// tests/consumer tests that it builds and passes its tests.
TEST_F(PluginsNew, WritesFiveFilesAndWhatToDoNext) {
  const std::string to = folder_ / "plug_in2";
  const Outcome o = run_lmx({"plugins", "new", "model", "plug_in2", "--dir", to});
  EXPECT_THAT(o, Succeeds());
  for (const char* name :
       {"plugin.toml", "CMakeLists.txt", "plug_in2.cc", "plug_in2_test.cc", "recipes/model/plug_in2.yaml"}) {
    const std::string text = read_file(fs::path(to) / name);
    EXPECT_NE(text, "") << name;
    EXPECT_THAT(text, Not(HasSubstr("@name@"))) << name;
    EXPECT_THAT(text, Not(HasSubstr("@Name@"))) << name;
  }
  EXPECT_THAT(read_file(fs::path(to) / "plug_in2.cc"),
              HasSubstr("LMX_PLUGIN(model, plug_in2, PlugIn2Config, PlugIn2)"));
  EXPECT_THAT(o.out, HasSubstr("plugins check"));
}

TEST_F(PluginsNew, WritesASyncPluginOnEachBase) {
  for (const auto& [base, type] : {std::pair{"plain", "SyncStrategy"},
                                   {"sum", "SumStrategy"},
                                   {"feedback", "FeedbackStrategy"},
                                   {"replica", "ReplicaStrategy"},
                                   {"outer", "OuterStrategy"}}) {
    const fs::path to = folder_ / base;
    EXPECT_THAT(run_lmx({"plugins", "new", "sync", "mine", "--base", base, "--dir", to}), Succeeds());
    EXPECT_THAT(read_file(to / "mine.cc"), HasSubstr(str("class Mine : public lmx::", type, " {")));
    EXPECT_EQ(read_file(to / "CMakeLists.txt").find("CHECK --approximate") != std::string::npos,
              base == std::string_view("feedback"));
  }
  EXPECT_THAT(run_lmx({"plugins", "new", "loss", "mine", "--base", "sum", "--dir", folder_ / "x"}),
              Refuses("--base sum", "sync", "not loss"));
  EXPECT_THAT(run_lmx({"plugins", "new", "sync", "mine", "--base", "feedbak", "--dir", folder_ / "x"}).err,
              Names("feedbak", "feedback"));
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

TEST_F(PluginsNew, DoesNotOverwrite) {
  std::ofstream(folder_ / "mine") << "x";
  EXPECT_THAT(run_lmx({"plugins", "new", "sync", "mine", "--dir", folder_}), Refuses("exists; choose a folder"));
  EXPECT_EQ(read_file(folder_ / "mine"), "x");
}

// A limit on the size of files (in blocks of 512 bytes) has the effect of a full disk: a file is cut off.
TEST_F(PluginsNew, LeavesNoPartOfAPlugin) {
  const std::string words = str("ulimit -f 1; exec '", build_path("/bin/lmx"), "' plugins new sync mine --dir '",
                                (folder_ / "above/mine").string(), "'");
  EXPECT_THAT(run_process({"/bin/sh", "-c", words}), Fails("File too large"));
  EXPECT_TRUE(fs::is_empty(folder_ / "above"));
}

TEST_F(PluginsNew, RefusesANameThatIsTakenUnlessForced) {
  Words command{"plugins", "new", "model", "lstm", "--dir", folder_ / "mine"};
  EXPECT_THAT(run_lmx(command), Refuses("[plugins]", "model 'lstm'", "/model/lstm/lstm.so", "--force"));
  EXPECT_FALSE(fs::exists(folder_ / "mine"));
  command.emplace_back("--force");
  EXPECT_THAT(run_lmx(command), Succeeds());
  EXPECT_TRUE(fs::exists(folder_ / "mine/lstm.cc"));
  // The name of a plugin of another kind may be used: recipes name a plugin by its kind.
  EXPECT_THAT(run_lmx({"plugins", "new", "sync", "lstm", "--dir", folder_ / "sync"}), Succeeds());
}

TEST_F(PluginsNew, RefusesANameThatIsBuiltInEvenIfForced) {
  for (const auto& [kind, name] :
       {std::pair{"loss", "sampled_softmax"}, {"optimizer", "sgd"}, {"schedule", "linear"}}) {
    EXPECT_THAT(run_lmx({"plugins", "new", kind, name, "--force", "--dir", folder_ / "x"}),
                Refuses(str("the ", kind, " '", name, "' is built into lmx")));
    EXPECT_FALSE(fs::exists(folder_ / "x"));
  }
}

TEST_F(PluginsNew, RefusesNamesThatAreNoIdentifiers) {
  for (const char* name : {"My-Plugin", "2fast", "a b", "größe"}) {
    const Outcome o = run_lmx({"plugins", "new", "batcher", name, "--dir", folder_ / "x"});
    EXPECT_EQ(o.code, 2) << name;
    EXPECT_THAT(o.err, Names("plugin name")) << name;
  }
  EXPECT_THAT(run_lmx({"plugins", "new", "model", "test", "--dir", folder_ / "x"}), Refuses("'test'", "CMake's"));
  for (const char* name : {"class", "int", "null"})
    EXPECT_THAT(run_lmx({"plugins", "new", "model", name, "--dir", folder_ / "x"}), Refuses(name, "word of C++"));
}

// The check that a fault must fail, and no other. A strategy that rounds fails the check `sum` too if it is not checked
// as an approximate one, which takes longer. Without discard() also an overflow stays.
struct Fault {
  const char* plugin;
  int fault;
  const char *check, *text = "";
  int failures = 1;
  Words more = {};
};
class Faults : public testing::TestWithParam<Fault> {};
TEST_P(Faults, FailTheirCheckAlone) {
  const auto& [plugin, fault, failed, text, failures, more] = GetParam();
  const Outcome o = check(plugin, str("{fault: ", fault, "}"), more);
  EXPECT_EQ(o.code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr(str(" passed, ", failures, " failed\n")));
  EXPECT_THAT(o.out, HasSubstr(str("FAIL  ", failed, " ")));
  EXPECT_THAT(o.out, HasSubstr(text));
}
INSTANTIATE_TEST_SUITE_P(
    All, Faults,
    testing::Values(
        Fault{"loss", 1, "sum", "must return a sum over the targets"}, Fault{"loss", 2, "gradients", "features["},
        Fault{"loss", 3, "evaluation", "for target 0"}, Fault{"loss", 4, "likelihood", "nats"},
        Fault{"loss", 6, "tie", "embedding.weight"},
        Fault{"loss", 7, "parameters", "two parameters are called softmax.weight"},
        Fault{"loss", 10, "candidates", "draws_candidates() is false"},
        Fault{"loss", 11, "candidates", "draws_candidates() is true"}, Fault{"loss", 13, "dry run", "no words"},
        Fault{"loss", 14, "gradients", "softmax.weight is dense"},
        Fault{"loss", 15, "evaluation", "metrics need all of them"}, Fault{"optimizer", 1, "rate", "another `lr`"},
        Fault{"optimizer", 2, "rate", "lmx::trait::kLearningRate"}, Fault{"optimizer", 3, "scale", "grad_scale 0.25"},
        Fault{"optimizer", 4, "state", "resumed after update 3"},
        Fault{"optimizer", 5, "other rows", "row 0 is changed"}, Fault{"optimizer", 6, "dense rows", "another table"},
        Fault{"optimizer", 7, "memory", "bytes, and update() has allocated"},
        Fault{"optimizer", 8, "update", "changed()"}, Fault{"optimizer", 9, "gradient", "which ranks share"},
        Fault{"optimizer", 10, "wrong state", "table.no_such_slot"}, Fault{"optimizer", 11, "precision", "f32 and f64"},
        Fault{"optimizer", 14, "direction", "moves table along its gradient"},
        Fault{"optimizer", 15, "zeros", "after an update with gradients of 0"},
        Fault{"optimizer", 16, "scale", "gives another state "},
        Fault{"schedule", 1, "state", "all that validated() changes"}, Fault{"schedule", 2, "rates", "of update 1001"},
        Fault{"schedule", 3, "purity", "depends on the updates"}, Fault{"schedule", 4, "wrong state", "3 numbers"},
        Fault{"codec", 1, "bytes", "bytes(0) is 4"}, Fault{"codec", 2, "bytes", "bytes(6) is 1000"},
        Fault{"codec", 3, "encoding", "must write every byte"}, Fault{"codec", 8, "not finite", "is decoded as 0"},
        Fault{"codec", 10, "feedback", "is 1.5"}, Fault{"metric", 1, "sums", "sums() is 0"},
        Fault{"metric", 2, "words", "words() is -1"}, Fault{"metric", 3, "addition", "sums[0]"},
        Fault{"metric", 4, "bounds", "behind"}, Fault{"metric", 5, "values", "'Mean'"},
        Fault{"metric", 6, "values", "is nan"}, Fault{"metric", 7, "values", "other names"},
        Fault{"metric", 8, "values", "twice"}, Fault{"metric", 9, "few words", "a metric without its map"},
        Fault{"sync", 1, "construction", "lmx::trait::kReplicas"},
        Fault{"sync", 2, "state", "a run that loads a saved state"},
        Fault{"top_k", 1, "mean", "", 1, {"--approximate"}}, Fault{"top_k", 2, "mean", "", 1, {"--approximate"}},
        Fault{"top_k", 3, "mean", "", 1, {"--approximate"}}, Fault{"top_k", 4, "discard", "", 3},
        Fault{"top_k", 5, "rescale", "", 2}, Fault{"model", 3, "noise"}, Fault{"model", 7, "documents"},
        Fault{"model", 8, "gradients"}, Fault{"batcher", 5, "seed"}, Fault{"batcher", 6, "state"},
        Fault{"batcher", 8, "steps"}, Fault{"batcher", 9, "state"}, Fault{"batcher", 10, "short text"}),
    [](const auto& one) { return str(one.param.plugin, '_', one.param.fault); });

TEST(PluginsCheckKinds, PluginsWithoutFaultsPass) {
  for (const char* config : {"{}", "{sharpness: 3}"}) {
    EXPECT_THAT(check("loss", config),
                Prints("training records the negative log-likelihood, not the loss", " passed, 0 failed"));
  }
  EXPECT_THAT(check("optimizer", "{inertia: 0.5}"),
              Prints("ok    rate", "states 0.5", "9 tensors saved and loaded", "588 bytes of state"));
  EXPECT_THAT(check("schedule", "{share: 0.5}"),
              Prints("from 0.1 to 0.3 with a base of 0.3", "2 numbers; a resumed run"));
  EXPECT_THAT(check("codec", "{shrink: 2}"),
              Prints("16 bits for each of many values", "ok    round trip", "stay finite"));
  EXPECT_THAT(check("metric", "{}"),
              Prints("ok    words", "the 2 most probable words", "mean, largest", " passed, 0 failed"));
  EXPECT_THAT(check("sync", "{}"), Succeeds());
  EXPECT_THAT(check("top_k", "{}", {"--approximate"}), Prints("ok    ", " passed, 0 failed\n"));
  for (const char* plugin : {"batcher", "model"})
    EXPECT_THAT(check(plugin, "{}"), Prints("ok    ", " passed, 0 failed\n"));
}

TEST(PluginsCheckKinds, AGradientMayBeApproximateOnPurpose) {
  EXPECT_THAT(check("loss", "{fault: 2}", {"--approximate"}),
              Prints("ok    gradients     --approximate: not that of the loss, features[0]"));
}

// These faults make several results wrong.
TEST(PluginsCheckKinds, NoiseIsNamed) {
  EXPECT_THAT(check("loss", "{fault: 12}").out, HasSubstr("FAIL  determinism"));
  EXPECT_THAT(check("optimizer", "{fault: 13}").out, HasSubstr("FAIL  determinism"));
  EXPECT_THAT(check("codec", "{fault: 4}").out, HasSubstr("FAIL  round trip    the error of 1 values"));
  EXPECT_THAT(check("codec", "{fault: 5}").out, HasSubstr("FAIL  round trip"));
  EXPECT_THAT(check("codec", "{fault: 6}").out, HasSubstr("FAIL  zeros         1 zeros are decoded as 1e-06"));
  EXPECT_THAT(check("codec", "{fault: 7}").out, HasSubstr("FAIL  finite"));
}

TEST(PluginsCheckKinds, ExceptionsAreFailures) {
  EXPECT_THAT(check("loss", "{fault: 8}").out, HasSubstr("FAIL  value         a loss without its map"));
  EXPECT_THAT(check("loss", "{fault: 9}").out, HasSubstr("FAIL  gradients     a gradient without its map"));
  EXPECT_THAT(check("optimizer", "{fault: 12}").out,
              Names("FAIL  rate          an optimizer without its map\n", "FAIL  update        as rate\n"));
  EXPECT_THAT(
      check("optimizer", "{fault: 17}").out,
      Names("FAIL  rate          [optimizer] the kernel test_optimizer takes 3 slots, and its optimizer has 2\n",
            "FAIL  update        as rate\n"));
  EXPECT_THAT(check("schedule", "{fault: 5}").out, HasSubstr("FAIL  rates         a schedule without its map"));
  EXPECT_THAT(check("codec", "{fault: 9}").out, HasSubstr("FAIL  encoding      a codec without its map"));
}

}  // namespace

}  // namespace lmx_test
