// lmx config: origins, schema, files; the line that an error shows; completion and the manual page.
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "process/lmx_process.h"

namespace lmx_test {
namespace {

const std::string kRecipes = source_path("/recipes/");
const std::string kQuickstart = kRecipes + "quickstart.yaml";

TEST(ConfigCommand, ExplainSaysWhereAValueComesFrom) {
  const Outcome o = run_lmx({"config", kRecipes + "ott_wmt.yaml", "seed=9", "--explain"});
  EXPECT_THAT(o, Succeeds());
  EXPECT_THAT(o.out,
              ContainsRegex(
                  "\noptimizer\\.lr +0\\.001 +[^ ]*ott/base\\.yaml:[0-9]+:[0-9]+ +section 4\\.2 \\(larger batches\\)"));
  EXPECT_THAT(o.out, ContainsRegex("\nseed +9 +override 'seed=9'\n"));  // the paper has another value
  EXPECT_THAT(
      o.out,
      ContainsRegex("\nmodel\\.encoder_layers +6 +[^ ]*model/transformer_big\\.yaml:[0-9]+:[0-9]+ +section 3\\.2 "));
  EXPECT_THAT(o.out,
              ContainsRegex("\nbatch\\.global +128 .*16 nodes of 8 GPUs, one sub-batch each\n"));  // the line's comment
  EXPECT_THAT(o.out, ContainsRegex("\nthreads +0 +default of lmx\n"));
  EXPECT_THAT(o.out, ContainsRegex("default of optimizer adam"));
  EXPECT_THAT(o.out, ContainsRegex("default of sync allreduce"));
}

// The comment of a line belongs to its first key.
TEST(ConfigCommand, ExplainGivesACommentToItsKey) {
  const TempFolder folder;
  folder.write(
      "r.yaml",
      "data: {name: synthetic, vocab_size: 60, train_tokens: 3000}  # a short text\n"
      "model:\n  name: lstm\n  embedding: 12   # as wide as the table\n  cells: 16\n"
      "batcher: {name: tbptt}\nloss: {name: full_softmax}\nclip: 1.0  # the norm\nbatch: {global: 8}  # one row\n"
      "optimizer: {name: adam,  # the usual one\n            lr: 0.1, eps: 1e-8}  # the rate\n");
  const Outcome o = run_lmx({"config", folder.path("r.yaml"), "--explain", "--json"});
  ASSERT_THAT(o, Succeeds());
  std::map<std::string, std::string> comments;
  for (const auto& row : nlohmann::json::parse(o.out))
    if (row.value("note", "") != "") comments[row["key"]] = row["note"];
  const std::map<std::string, std::string> expected{
      {"data.name", "data: a short text"}, {"model.embedding", "as wide as the table"}, {"clip", "the norm"},
      {"batch.global", "one row"},         {"optimizer.name", "the usual one"},         {"optimizer.lr", "the rate"}};
  EXPECT_EQ(comments, expected);
}

TEST(ConfigCommand, ExplainOfAKeyOrAPart) {
  const Outcome one = run_lmx({"config", kQuickstart, "--explain", "model.cells"});
  EXPECT_THAT(one, Succeeds());
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 2) << one.out;
  EXPECT_THAT(one.out, HasSubstr("quickstart.yaml:16:"));
  const Outcome part = run_lmx({"config", kQuickstart, "--explain", "model", "--json"});
  const auto json = nlohmann::json::parse(part.out);
  EXPECT_GT(json.size(), 3u);
  for (const auto& row : json) EXPECT_THAT(row.at("key").get<std::string>(), testing::StartsWith("model."));
  EXPECT_THAT(run_lmx({"config", kQuickstart, "--explain", "model.celsl"}), Refuses("'model.celsl'", "'model.cells'?"));
  EXPECT_THAT(run_lmx({"config", kQuickstart, "--explain", "optimzer"}).err, Names("'optimzer'", "'optimizer'?"));
}

TEST(ConfigCommand, ExplainOfAKeyThatIsACommandsNameToo) {
  for (const std::string key : {"data", "run"}) {
    const Outcome o = run_lmx({"config", kQuickstart, "--explain", key, "--json"});
    ASSERT_THAT(o, Succeeds());
    const auto json = nlohmann::json::parse(o.out);
    EXPECT_GT(json.size(), 1u);
    for (const auto& row : json) EXPECT_THAT(row.at("key").get<std::string>(), testing::StartsWith(key + "."));
  }
  for (const std::string key : {"sweep", "eval", "report"}) {  // keys that a single run of a recipe does not have
    EXPECT_THAT(run_lmx({"config", kQuickstart, "--explain", key}), Refuses("error: ", "'" + key + "'"));
  }
  EXPECT_THAT(run_lmx({"config", kQuickstart, "--explain", "model.cells=9"}),
              Refuses("--explain model.cells=9:", "overrides"));
}

TEST(ConfigCommand, ExplainTellsWhatAValueReplaced) {
  const Outcome o = run_lmx({"config", kQuickstart, "model.cells=9", "--explain", "model.cells"});
  EXPECT_THAT(o, Succeeds());
  EXPECT_THAT(o.out,
              ContainsRegex("\nmodel\\.cells +9 +override 'model\\.cells=9' +128 \\([^ ]*quickstart\\.yaml:16:[0-9]+"
                            "\\), 512 \\([^ ]*model/lstm\\.yaml:4:8\\)\n"));
  const Outcome json = run_lmx({"config", kQuickstart, "model.cells=9", "--explain", "model.cells", "--json"});
  const auto row = nlohmann::json::parse(json.out).at(0);
  ASSERT_EQ(row.at("replaces").size(), 2u);
  EXPECT_EQ(row.at("replaces")[0].at("value"), "128");
  EXPECT_THAT(row.at("replaces")[1].at("origin").get<std::string>(), HasSubstr("model/lstm.yaml:4:8"));
  EXPECT_FALSE(nlohmann::json::parse(run_lmx({"config", kQuickstart, "--explain", "seed", "--json"}).out)
                   .at(0)
                   .contains("replaces"));
}

TEST(ConfigCommand, SchemaListsEveryFieldOfWhatIsNamed) {
  EXPECT_THAT(run_lmx({"config", kQuickstart, "--schema"}),
              Prints(ContainsRegex("\nmodel: lstm \\(others: gpt, mlstm, rhn, transformer\\)\n"),
                     ContainsRegex("\noptimizer: adam \\(others: sgd, adagrad, adamw, muon, "),
                     ContainsRegex("\nsync\\.rest: allreduce \\("),
                     ContainsRegex("\n  cells +int +[0-9]+ +in .1, 1048576. +[a-z]"),
                     ContainsRegex("\n  train\\.steps +int +0 +>= 0 +[a-z]")));
}

// The keys at the top level of a file.
Words top_keys(const fs::path& file) {
  Words keys;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);)
    if (const size_t colon = line.find(':'); colon != std::string::npos && std::isalpha(line[0]))
      keys.push_back(line.substr(0, colon));
  return keys;
}

TEST(ConfigCommand, SchemaHoldsTheKeysOfEveryShippedRecipe) {
  const Outcome text = run_lmx({"config", kQuickstart, "--schema"});
  EXPECT_THAT(text.out, ContainsRegex("\nsweep\n  FIELD +TYPE .*\n  params +map "));
  size_t sweeps = 0;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome o = run_lmx({"config", entry.path().string(), "--schema", "--json"});
    ASSERT_THAT(o, Succeeds());
    const auto properties = nlohmann::json::parse(o.out).at("properties");
    for (const std::string& key : top_keys(entry.path())) {
      EXPECT_TRUE(properties.contains(key)) << entry.path() << ": " << key;
      sweeps += key == "sweep";
    }
    EXPECT_TRUE(properties.at("sweep").at("properties").contains("params"));
  }
  EXPECT_GT(sweeps, 3u);
}

TEST(ConfigCommand, SchemaAsJsonSchema) {
  const Outcome o = run_lmx({"config", kQuickstart, "--schema", "--json"});
  EXPECT_THAT(o, Succeeds());
  const auto schema = nlohmann::json::parse(o.out);
  EXPECT_EQ(schema.at("additionalProperties"), false);
  const auto& cells = schema.at("properties").at("model").at("properties").at("cells");
  EXPECT_EQ(cells.at("type"), "integer");
  EXPECT_EQ(cells.at("minimum"), 1);
  const auto& precision = schema.at("properties").at("precision");
  EXPECT_EQ(precision.at("enum"), nlohmann::json({"fp32", "bf16", "fp16"}));
  EXPECT_EQ(precision.at("default"), "fp32");
  const auto& betas = schema.at("properties").at("optimizer").at("properties").at("betas");
  EXPECT_EQ(betas.at("type"), "array");
  EXPECT_EQ(betas.at("items").at("type"), "number");
}

void add_keys(const nlohmann::json& schema, std::set<std::string>& keys) {
  if (!schema.contains("properties")) return;
  for (const auto& [key, value] : schema.at("properties").items()) {
    keys.insert(key);
    add_keys(value, keys);
  }
}

TEST(ConfigCommand, EachKeyIsOnAPage) {
  std::set<std::string> words;
  const std::regex word("\\w+");
  for (const auto& page : fs::directory_iterator(source_path("/docs"))) {
    if (page.path().extension() != ".md") continue;
    const std::string text = read_file(page.path());
    for (auto it = std::sregex_iterator(text.begin(), text.end(), word); it != std::sregex_iterator(); ++it)
      words.insert(it->str());
  }
  std::set<std::string> keys;
  for (const std::string& recipe : {kQuickstart, kRecipes + "word_lm_gutenberg.yaml"})
    add_keys(nlohmann::json::parse(run_lmx({"config", recipe, "--schema", "--json"}).out), keys);
  EXPECT_TRUE(keys.contains("reference_batch"));
  for (const std::string& key : keys) EXPECT_TRUE(words.contains(key)) << "no page names the key " << key;
}

TEST(ConfigCommand, FilesInTheirOrder) {
  const Outcome o = run_lmx({"config", kRecipes + "ott_wmt.yaml", "--files", "scale=desk"});
  EXPECT_THAT(o, Succeeds());
  EXPECT_THAT(
      o.out,
      ContainsRegex(
          "optimizer/adam\\.yaml +optimizer\n(.|\n)*ott/base\\.yaml +\\(the recipe\\)\n(.|\n)*scale/desk\\.yaml"));
}

class InAFolder : public testing::Test, protected TempFolder {
 protected:
  InAFolder() { fs::copy(source_path("/recipes"), folder_ / "recipes", fs::copy_options::recursive); }
  std::string write(const std::string& text) const { return TempFolder::write("recipes/x.yaml", text); }
};

TEST_F(InAFolder, AnErrorShowsItsLine) {
  const std::string path = write("defaults: [quickstart]\nname_ß: {größe: 1, zwei: 2}\n");
  EXPECT_THAT(run_lmx({"config", path}),
              Refuses("x.yaml:2:1:", "name_ß", "\n  2 | name_ß: {größe: 1, zwei: 2}\n    | ^\n"));
}

TEST_F(InAFolder, AReferenceToAFieldThatIsNotWrittenIsItsDefault) {
  const std::string path = write(
      "defaults: [quickstart]\ntrain: {steps: '${optimizer.eps}', log_every: '${checkpoint.keep_last}'}\nthreads: "
      "${seed}\n");
  EXPECT_THAT(run_lmx({"config", path, "train.steps=${batch.micro}", "--explain", "train"}),
              Prints(ContainsRegex("\ntrain\\.log_every +2 +[^ ]*x\\.yaml:2:")));
  const Outcome bad = run_lmx({"config", path});  // a value of the wrong type, as if the recipe contained it
  EXPECT_THAT(bad, Refuses("x.yaml:2:16: train.steps:", "'1e-08'"));
  const Outcome none = run_lmx({"config", path, "train.steps=${optimizer.epsi}"});
  EXPECT_THAT(none.err, Names("${optimizer.epsi}:", "'optimizer.epsi'"));
}

// Additional rules come after inherited ones; the recipe that the message suggests works.
TEST_F(InAFolder, InheritedRulesOfSync) {
  const std::string rules =
      "{tables: {params: 'embedding|softmax', strategy: unique}, rest: {params: '.*', strategy: allreduce}}";
  const std::string path = write("defaults:\n  - quickstart\nsync: " + rules + "\n");
  EXPECT_THAT(run_lmx({"run", path, "--dry-run"}),
              Refuses("x.yaml:3:25: sync.tables.params:", "'embedding|softmax'", "sync.rest (",
                      "recipes/sync/allreduce.yaml:1:7", "`- override sync: null`"));
  const Outcome typed = run_lmx({"run", kQuickstart, "sync=" + rules, "--dry-run"});
  EXPECT_THAT(typed.err, Names("[sync]", "'sync=" + rules + "'", "sync.tables.params:", "'embedding|softmax'"));
  const auto runs = [](const Words& words) { EXPECT_THAT(run_lmx(words), Succeeds()); };
  runs({"run", kQuickstart, "~sync", "sync=" + rules, "--dry-run"});
  runs({"run", path, "sync=unique", "--dry-run"});
  runs({"run", write("defaults:\n  - quickstart\n  - override sync: null\nsync: " + rules + "\n"), "--dry-run"});
}

TEST_F(InAFolder, ATiedTableHasTheRuleOfTheModels) {
  const Words tied{"run",
                   kQuickstart,
                   "sync=unique_seeded",
                   "loss=sampled_softmax",
                   "loss.tie=embedding.weight",
                   "loss.bias=false",
                   "model.embedding=128",
                   "--dry-run"};
  EXPECT_THAT(run_lmx(tied), Refuses("sync.tables_output.params:", "'^softmax'", "embedding.weight (tied)",
                                     "sync.tables_input", "~sync.tables_output"));
  Words right = tied;
  right.insert(right.end() - 1,
               {"~sync.tables_output", "sync.tables_input.strategy=seeded", "sync.tables_input.seeds=all"});
  EXPECT_THAT(run_lmx(right), Succeeds());
}

TEST_F(InAFolder, AnEmptyPartIsNamed) {
  for (const char* part : {"data", "batcher", "model", "optimizer"}) {
    const std::string path = write(lmx::str("defaults: [quickstart, _self_]\n", part, ":\n"));
    EXPECT_THAT(run_lmx({"config", path}), Refuses(lmx::str("x.yaml:2:1: ", part, ": is empty"))) << part;
  }
  EXPECT_THAT(run_lmx({"config", write("seed: 1\nmodle: {}\n")}), Refuses("'model'?"));
}

// If an override makes an inherited pair of values illegal, the message names the override, not the file of the other
// value.
TEST_F(InAFolder, AnIllegalPairNamesItsOverrides) {
  EXPECT_THAT(run_lmx({"config", kQuickstart, "sync.rest.strategy=allgather", "sync.rest.codec.kind=one_bit"}),
              Refuses(Names("override 'sync.rest.codec.kind=one_bit'", "override 'sync.rest.strategy=allgather'",
                            "sync.rest.codec.kind: allgather"),
                      Not(HasSubstr("allreduce.yaml"))));
}

TEST_F(InAFolder, AnOverrideShowsItsColumn) {
  EXPECT_THAT(run_lmx({"config", kQuickstart, "run.dir=größe=2"}),
              Refuses("column 14:", "'='", "\n    | run.dir=größe=2\n    |              ^\n"));
}

TEST_F(InAFolder, EveryOpenValueShowsItsLine) {
  const std::string path = write("defaults: [quickstart]\nseed: ???\nbatch:\n  micro: ???\n");
  EXPECT_THAT(run_lmx({"config", path}), Refuses("2 required values", "\n  2 | seed: ???\n    |       ^\n",
                                                 "\n  4 |   micro: ???\n    |          ^\n"));
}

// Config groups in the folder of a plugin.toml are on every recipe's search path.
TEST_F(InAFolder, APluginBringsRecipes) {
  fs::create_directories(folder_ / "p/batcher/mine/recipes/optimizer");
  std::ofstream(folder_ / "p/batcher/mine/plugin.toml")
      << "name = \"mine\"\nkind = \"batcher\"\nversion = \"1\"\nlicence = \"MIT\"\nsummary = \"s\"\n";
  std::ofstream(folder_ / "p/batcher/mine/recipes/optimizer/fast.yaml") << "name: sgd\nnesterov: true\n";
  const Words command{"config", kQuickstart, "optimizer=fast", "--composed"};
  EXPECT_EQ(run_lmx(command).code, 2);
  EXPECT_THAT(run_lmx(command, {{"LMX_PLUGIN_PATH", folder_ / "p"}}), Prints("nesterov: true"));
}

Words completed(Words words) {
  words.insert(words.begin(), "__complete");
  std::istringstream out(run_lmx(words).out);
  Words lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  return lines;
}

TEST(Completion, CommandsFlagsAndFiles) {
  EXPECT_THAT(completed({"conf"}), testing::ElementsAre("config"));
  EXPECT_THAT(completed({""}), testing::IsSupersetOf({"run", "plugins", "config", "completion"}));
  EXPECT_THAT(completed({"plugins", "ch"}), testing::ElementsAre("check"));
  EXPECT_THAT(completed({"run", "--dr"}), testing::ElementsAre("--dry-run"));
  EXPECT_THAT(completed({"run", ""}), testing::IsSupersetOf({":files", "recipes/quickstart.yaml"}));
  EXPECT_THAT(completed({"run", "recipes/quickstart.yaml", "model.ce"}), testing::ElementsAre("model.cells="));
  EXPECT_THAT(completed({"run", "--config-dir", ""}), testing::ElementsAre(":files"));
  EXPECT_THAT(completed({"plugins", "info", "trans"}), testing::ElementsAre("transformer"));
  EXPECT_THAT(completed({"plugins", "check", "--chi"}), testing::IsEmpty());  // hidden
}

TEST(Completion, GroupsOptionsKeysAndValues) {
  EXPECT_THAT(completed({"run", kQuickstart, "optimi"}), testing::IsSupersetOf({"optimizer=", "optimizer.lr="}));
  EXPECT_THAT(completed({"run", kQuickstart, "optimizer=ad"}),
              testing::ElementsAre("optimizer=adafactor", "optimizer=adagrad", "optimizer=adam", "optimizer=adamw"));
  EXPECT_THAT(completed({"sweep", kQuickstart, "optimizer=sgd,adag"}), testing::ElementsAre("optimizer=sgd,adagrad"));
  EXPECT_THAT(completed({"run", kQuickstart, "model.ce"}), testing::ElementsAre("model.cells="));
  EXPECT_THAT(completed({"run", kQuickstart, "model.cells="}), testing::ElementsAre("model.cells=128"));
  EXPECT_THAT(completed({"run", kQuickstart, "+opt"}), testing::Contains("+optimizer="));
  EXPECT_THAT(completed({"run", missing_path(), "mo"}), testing::IsEmpty());
}

TEST(Completion, EveryKeyThatARecipeMayHold) {
  EXPECT_THAT(completed({"run", kQuickstart, "train."}),
              testing::IsSupersetOf({"train.steps=", "train.epochs=", "train.ema=", "train.eval_every="}));
  EXPECT_THAT(completed({"run", kQuickstart, "sync.rest."}),
              testing::IsSupersetOf({"sync.rest.params=", "sync.rest.strategy=", "sync.rest.codec.kind="}));
  EXPECT_THAT(completed({"run", kQuickstart, "loss_scale.p"}), testing::ElementsAre("loss_scale.preset="));
  // Only existing keys can be removed.
  EXPECT_THAT(completed({"run", kQuickstart, "~train."}),
              testing::ElementsAre("~train.epochs", "~train.eval_every", "~train.log_every"));
}

TEST(Completion, AllowedValues) {
  EXPECT_THAT(completed({"run", kQuickstart, "precision="}),
              testing::ElementsAre("precision=bf16", "precision=fp16", "precision=fp32"));
  EXPECT_THAT(completed({"run", kQuickstart, "deterministic="}),
              testing::ElementsAre("deterministic=false", "deterministic=true"));
  EXPECT_THAT(completed({"run", kQuickstart, "train.eval_batch="}), testing::ElementsAre("train.eval_batch=32"));
  EXPECT_THAT(completed({"run", kQuickstart, "run.dir="}), testing::IsEmpty());
  EXPECT_THAT(completed({"run", kQuickstart, "model.name="}),
              testing::ElementsAre("model.name=gpt", "model.name=lstm", "model.name=mlstm", "model.name=rhn",
                                   "model.name=transformer"));
  EXPECT_THAT(completed({"run", kQuickstart, "sync.rest.strategy=all"}),
              testing::ElementsAre("sync.rest.strategy=allgather", "sync.rest.strategy=allgather_dense",
                                   "sync.rest.strategy=allreduce"));
}

TEST(Completion, TheOverridesBeforeCount) {
  const auto lstm = completed({"run", kQuickstart, "model."});
  EXPECT_THAT(lstm, testing::IsSupersetOf({"model.cells=", "model.projection="}));
  const auto mlstm = completed({"run", kQuickstart, "--dry-run", "no.such=1", "model=mlstm", "model."});
  EXPECT_THAT(mlstm, AllOf(testing::Contains("model.cells="), Not(testing::Contains("model.projection="))));
  EXPECT_THAT(completed({"run", kQuickstart, "optimizer=sgd", "optimizer.lr=0.5", "optimizer.lr="}),
              testing::ElementsAre("optimizer.lr=0.5"));
}

TEST(Completion, WhatOptionsAndArgumentsMayBe) {
  EXPECT_THAT(completed({"sweep", kQuickstart, "--launcher", ""}), testing::ElementsAre("local", "slurm"));
  EXPECT_THAT(completed({"sweep", kQuickstart, "--launcher=s"}), testing::ElementsAre("--launcher=slurm"));
  EXPECT_THAT(completed({"plugins", "info", "--kind", "s"}), testing::ElementsAre("schedule", "sync"));
  EXPECT_THAT(completed({"plugins", "new", ""}),
              testing::ElementsAre("batcher", "codec", "loss", "metric", "model", "optimizer", "schedule", "sync"));
  EXPECT_THAT(completed({"completion", ""}), testing::ElementsAre("bash", "zsh"));
  EXPECT_THAT(completed({"experiment", "run", "patwary2018/figure7"}),
              testing::ElementsAre("patwary2018/figure7_seeds"));
  EXPECT_THAT(completed({"experiment", "show", "figure7_seeds", "--scale", ""}), testing::Contains("desk"));
  EXPECT_THAT(completed({"plan", kQuickstart, "--machine", "h100"}), testing::Contains("h100_node"));
  EXPECT_THAT(completed({"data", "fetch", "multi"}), testing::ElementsAre("multi30k"));
  EXPECT_THAT(completed({"data", "stats", "--corpus", "multi"}), testing::ElementsAre("multi30k"));
  EXPECT_THAT(completed({"eval", ""}), testing::ElementsAre(":files"));
  EXPECT_THAT(completed({"eval", "x", "--split", ""}), testing::ElementsAre("test", "train", "valid"));
  EXPECT_THAT(completed({"generate", "x", "--checkpoint", ""}), testing::ElementsAre(":files", "best", "last"));
  EXPECT_THAT(completed({"eval", "x", "--device="}), testing::IsSupersetOf({"--device=auto", "--device=cpu"}));
  EXPECT_THAT(completed({"bleu", "--metric", ""}), testing::ElementsAre("bleu", "chrf", "chrf++", "multi-bleu", "ter"));
  EXPECT_THAT(completed({"bleu", "--metric=bleu,chrf"}),
              testing::ElementsAre("--metric=bleu,chrf", "--metric=bleu,chrf++"));
  EXPECT_THAT(completed({"bleu", "--tokenize", ""}), testing::ElementsAre("13a", "char", "intl", "none", "zh"));
  EXPECT_THAT(completed({"bleu", "--smooth", ""}), testing::ElementsAre("add-k", "exp", "floor", "none"));
  EXPECT_THAT(completed({"bench", "char_"}), testing::ElementsAre("char_mlstm", "char_rhn"));
  EXPECT_THAT(completed({"bench", "--precision", "f"}), testing::ElementsAre("fp16", "fp32"));
  EXPECT_THAT(completed({"experiment", "run", "table3_memory", "--scale", ""}), testing::ElementsAre("desk", "paper"));
  EXPECT_THAT(completed({"plugins", "list", ""}), testing::IsEmpty());
}

TEST(Completion, ScriptsAreOfTheirShells) {
  const Outcome bash = run_lmx({"completion", "bash"});
  EXPECT_EQ(bash.code, 0);
  // In a separate shell: the words of a line, as the Tab key would request them.
  const std::string script = bash.out + "COMP_LINE='lmx run " + kQuickstart +
                             " optimizer=ada'; COMP_POINT=${#COMP_LINE}; _lmx; "
                             "printf '%s\\n' \"${COMPREPLY[@]}\"";
  const Outcome o = run_process({"/bin/bash", "-c", script}, {{"PATH", build_path("/bin:") + std::getenv("PATH")}});
  EXPECT_EQ(o.out, "adafactor\nadagrad\nadam\nadamw\n") << o.err;
  const std::string names = bash.out +
                            "COMP_LINE='lmx eval x --split te'; COMP_POINT=${#COMP_LINE}; _lmx; "
                            "printf '%s\\n' \"${COMPREPLY[@]}\"";
  EXPECT_EQ(run_process({"/bin/bash", "-c", names}, {{"PATH", build_path("/bin:") + std::getenv("PATH")}}).out,
            "test\n");
  // The user's own files, beside the shipped recipes.
  const TempFolder folder;
  folder.write("recurrent.yaml", "");
  const std::string own = "cd " + folder.path("") + " && " + bash.out +
                          "COMP_LINE='lmx run rec'; COMP_POINT=${#COMP_LINE}; _lmx; printf '%s\\n' \"${COMPREPLY[@]}\"";
  EXPECT_THAT(run_process({"/bin/bash", "-c", own}, {{"PATH", build_path("/bin:") + std::getenv("PATH")}}).out,
              Names("recipes/quickstart.yaml\n", "recurrent.yaml\n"));
  EXPECT_THAT(run_lmx({"completion", "zsh"}).out, testing::StartsWith("#compdef lmx\n"));
  EXPECT_EQ(run_lmx({"completion", "fish"}).code, 2);
}

// A path that contains a blank, as users and the Tab key write it.
TEST_F(InAFolder, BashCompletesBehindQuotedPaths) {
  std::filesystem::create_directory_symlink(folder_ / "recipes", folder_ / "my recipes");
  const std::string script = run_lmx({"completion", "bash"}).out;
  const std::string home = folder_.string();
  const auto completed = [&](const std::string& words) {
    return run_process(
               {"/bin/bash", "-c",
                script + "COMP_LINE=$LINE; COMP_POINT=${#COMP_LINE}; _lmx; printf '%s ' \"${COMPREPLY[@]}\""},
               {{"PATH", build_path("/bin:") + std::getenv("PATH")}, {"HOME", home}, {"LINE", "lmx  run " + words}})
        .out;
  };
  for (const std::string& path :
       {"'" + home + "/my recipes/quickstart.yaml'", "\"" + home + "/my recipes/\"quickstart.yaml",
        home + "/my\\ recipes/quickstart.yaml", std::string("~/my\\ recipes/quickstart.yaml")})
    EXPECT_EQ(completed(path + " optimizer=ada"), "adafactor adagrad adam adamw ") << path;
  // Readline treats the text after an open quote as one word.
  const std::string recipe = home + "/recipes/quickstart.yaml ";
  EXPECT_EQ(completed(recipe + "\"optimizer=adag"), "optimizer=adagrad ");
  EXPECT_EQ(completed(recipe + "optimizer='adag"), "adagrad ");
}

// The lines of an interactive zsh after the Tab key; '|' marks the cursor.
TEST_F(InAFolder, ZshCompletes) {
  if (run_process({"bash", "-c", "command -v zsh"}, {}).code != 0) GTEST_SKIP() << "there is no zsh";
  const std::string recipe = (folder_ / "recipes/quickstart.yaml").string();
  const Outcome o = run_process(
      {"timeout", "300", "zsh", "-f", source_path("/tests/cli/zsh_completed.zsh"), folder_.string(), "lmx plugins inf",
       "lmx run --dry-r", "lmx run " + recipe.substr(0, recipe.size() - 8), "lmx run " + recipe + " optimizer=adag",
       "lmx run '" + recipe + "' model.cel", "lmx bleu x --tokenize in", "lmx eval x --checkpoint be"},
      {{"PATH", build_path("/bin:") + std::getenv("PATH")}});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(o.out, "lmx plugins info |\nlmx run --dry-run |\nlmx run " + recipe + " |\nlmx run " + recipe +
                       " optimizer=adagrad |\nlmx run '" + recipe + "' model.cells=|\nlmx bleu x --tokenize intl |\n" +
                       "lmx eval x --checkpoint best |\n");
}

TEST(ManualPage, HasEveryCommandsHelp) {
  const std::string page = read_file(build_path("/share/lmx.1"));
  EXPECT_THAT(page, AllOf(Names(".SS \"lmx plugins check\"", "\\-\\-dry\\-run"), testing::StartsWith(".TH LMX 1"),
                          Not(HasSubstr("__complete"))));
}

TEST(ConfigCommand, OneThingAtATime) {
  EXPECT_THAT(run_lmx({"config", source_path("/recipes/quickstart.yaml"), "--schema", "--explain"}),
              Refuses("--explain, --schema, --files"));
  // A path that cannot be accessed is an error of the user.
  EXPECT_THAT(run_lmx({"config", "/" + std::string(5000, 'x') + "/r.yaml"}), Refuses("File name too long"));
}

// A recipe's keys stay if another option of the group is chosen.
TEST(ConfigCommand, AKeyOfAnotherOptimizerIsLeftOut) {
  const std::string recipe = kRecipes + "gpt_tinyshakespeare.yaml";
  const Outcome o = run_lmx({"config", recipe, "optimizer=lars"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("unknown key optimizer.betas", "; ~optimizer.betas leaves it out\n"));
  EXPECT_EQ(run_lmx({"config", recipe, "optimizer=lars", "~optimizer.betas"}).code, 0);
  EXPECT_THAT(run_lmx({"config", recipe, "optimizer.betaz=1"}).err, Not(HasSubstr("leaves it out")));
}

}  // namespace
}  // namespace lmx_test
