// No command may write a file that it reads, or one that belongs to a run. The commands and their options are found in
// the help, so that a new option is tested without being listed here: one that only reads has to be named below.
#include <set>

#include "process/lmx_process.h"

namespace lmx_test {
namespace {

// Options and arguments whose value names files or folders that commands read.
const std::set<std::string> kRead{"--baseline", "--config-dir", "--counts",     "--files",  "--hypothesis", "--input",
                                  "--machine",  "--pairs",      "--plugin-dir", "--recipe", "--resume",     "--scores",
                                  "--source",   "--target",     "--test",       "--text",   "--text-file",  "--train",
                                  "--tsv",      "--valid",      "CHECKPOINT",   "DIR",      "FILE",         "RECIPE",
                                  "REF",        "RUN",          "SRC",          "TEXTS",    "TGT"};
// Arguments that name no files.
const std::set<std::string> kWords{"COMMAND", "KIND", "NAME", "OVERRIDES", "SCALE", "SHELL", "WORKLOAD"};
// Values that commands require beside those of the test.
const std::map<std::string, Words> kRequired{
    {"data top", {"--k", "1", "--scores", "none"}}, {"export", {"--to", "pytorch"}}, {"import", {"--output", "none"}}};
const std::map<std::string, std::string> kValues{{"KIND", "model"}, {"WORKLOAD", "lstm"}, {"NAME", "none"}};
// Options whose files have the value and an ending.
const std::set<std::string> kStems{"--charts", "--save"};

struct HelpOption {
  std::string name;  // "--out", "OUT"
  bool argument = false, folder = false;
};

struct HelpPage {
  Words command;
  std::vector<HelpOption> files;  // options whose values are files, and all arguments
  Words valued;                   // every option that takes a value
};

bool names_files(const std::string& value) {
  return value.starts_with("FILE") || value.ends_with("FILE") || value.starts_with("DIR") || value == "PATH" ||
         value == "HTML" || value == "SVG" || value == "STEM";
}

void collect(const Words& above, std::vector<HelpPage>& pages) {
  Words words = above;
  words.push_back("--help");
  std::istringstream lines(run_lmx(words).out);
  HelpPage page{above, {}, {}};
  std::string heading;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(" ") && line.ends_with(":")) heading = line;
    std::istringstream columns(line.starts_with("  ") && !line.starts_with("   ") ? line : "");
    std::string name, value;
    if (!(columns >> name)) continue;
    if (heading == "Commands:") {
      words.back() = name;
      collect(words, pages);
    }
    if (heading == "Arguments:")
      page.files.push_back({name.substr(0, name.find('=')), true, name == "FOLDER" || name == "PAGES"});
    const bool valued = heading == "Options:" && columns >> value && line.starts_with("  " + name + " " + value);
    if (valued && !value.starts_with("[") && value != "Excludes:")
      page.valued.push_back(name.substr(0, name.find(',')));
    if (valued && names_files(value.substr(0, value.find('='))))
      page.files.push_back({name.substr(0, name.find(',')), false, value.starts_with("DIR")});
  }
  pages.push_back(page);
}

const std::vector<HelpPage>& help_pages() {
  static const std::vector<HelpPage> pages = [] {
    std::vector<HelpPage> all;
    collect({}, all);
    return all;
  }();
  return pages;
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The command with these values, and with a word for each further argument.
Words line(const HelpPage& page, const std::map<std::string, std::string>& values) {
  Words words = page.command;
  for (const HelpOption& option : page.files) {
    const auto value = values.find(option.name), fixed = kValues.find(option.name);
    if (!option.argument && value != values.end()) words.push_back(option.name);
    if (value != values.end())
      words.insert(words.end(), option.name == "--pairs" ? 2 : 1, value->second);
    else if (option.argument && option.name != "OVERRIDES")
      words.push_back(fixed != kValues.end() ? fixed->second : "none");
  }
  if (const auto required = kRequired.find(text_of(page.command)); required != kRequired.end())
    for (size_t i = 0; i < required->second.size(); i += 2)
      if (!values.contains(required->second[i]))
        words.insert(words.end(), required->second.begin() + static_cast<long>(i),
                     required->second.begin() + static_cast<long>(i) + 2);
  return words;
}

class CommandOutputs : public testing::Test {
 protected:
  CommandOutputs() {
    write("file", "text\n");
    fs::create_hard_link(path("file"), path("hard"));
    fs::create_symlink("file", path("soft"));
    fs::create_directories(path("run/checkpoints/step-3"));
    for (const char* name : {"config.yaml", "status.json", "checkpoints/step-3/state.json"})
      write(std::string("run/") + name, "{}\n");
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  void expect_refused(const Words& words, const NamesMatcher& facts) const {
    const Outcome o = run_lmx(words);
    EXPECT_EQ(o.code, 2) << text_of(words);
    EXPECT_EQ(o.out, "") << text_of(words);
    EXPECT_THAT(o.err, facts) << text_of(words);
    EXPECT_EQ(read_file(path("file")), "text\n") << text_of(words);
  }
  TempFolder folder_;
};

TEST_F(CommandOutputs, EveryOutputIsCompared) {
  int outputs = 0, pairs = 0;
  for (const HelpPage& page : help_pages()) {
    for (const HelpOption& output : page.files) {
      if (kRead.contains(output.name) || kWords.contains(output.name)) continue;
      ++outputs;
      expect_refused(line(page, {{output.name, path("run/checkpoints/mine.html")}}),
                     Names(output.name, "run/checkpoints/mine.html", "belongs to the checkpoints of the run"));
      if (kStems.contains(output.name)) continue;
      for (const HelpOption& input : page.files) {
        if (!kRead.contains(input.name)) continue;
        ++pairs;
        expect_refused(line(page, {{output.name, path("file")}, {input.name, path("hard")}}),
                       Names(output.name + ": cannot write", "also an input, by " + input.name));
      }
    }
  }
  EXPECT_GE(outputs, 20);
  EXPECT_GE(pairs, 30);
}

// Pairs of text are compressed as .gz, and nothing else is.
TEST_F(CommandOutputs, NamesOfCompressedFilesAreRefused) {
  int outputs = 0;
  for (const HelpPage& page : help_pages()) {
    if (page.command == Words{"run"}) continue;  // reads the recipe first
    for (const HelpOption& output : page.files) {
      if (kRead.contains(output.name) || kWords.contains(output.name) || kStems.contains(output.name) || output.folder)
        continue;
      ++outputs;
      const Words endings = output.name.starts_with("--out-") ? Words{".zst"} : Words{".gz", ".zst"};
      for (const std::string& ending : endings)
        expect_refused(line(page, {{output.name, path("new" + ending)}}),
                       Names(output.name, "new" + ending, "not compressed"));
    }
  }
  EXPECT_GE(outputs, 12);
}

// An empty value is that of a shell variable that is not set. It never means that the option is absent, or 0.
TEST_F(CommandOutputs, EveryOptionRefusesAnEmptyValue) {
  const std::set<std::string> may_be_empty{"--prompt"};
  int options = 0;
  for (const HelpPage& page : help_pages()) {
    for (const std::string& option : page.valued) {
      if (may_be_empty.contains(option)) continue;
      ++options;
      Words words = line(page, {});
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(page.command.size()), {option, ""});
      expect_refused(words, Names(option + ": the value is empty"));
    }
  }
  EXPECT_GE(options, 150);
}

TEST_F(CommandOutputs, NumbersAreFiniteAndHave64Bits) {
  const Words filter{"data", "filter", "--source", "a", "--target", "b", "--out-source", "c", "--out-target", "d"};
  for (const char* text : {"nan", "inf", "-inf", "1e999"})
    EXPECT_THAT(run_lmx(joined(filter, {"--max-ratio", text})), Refuses("--max-ratio: ", text)) << text;
  for (const char* text : {"9223372036854775808", "-99999999999999999999"})
    EXPECT_THAT(run_lmx({"generate", "none", "--seed", text}), Refuses("--seed: ", text)) << text;
}

TEST_F(CommandOutputs, AnInputHasManyNames) {
  for (const char* other : {"file", "hard", "soft", "./file", "run/../file"})
    for (const auto& [output, input] : {std::pair{path("file"), path(other)}, {path(other), path("file")}})
      expect_refused({"translate", "none", "--output", output, "--input", input}, Names("also an input, by --input"));
  const std::string lmx = build_path("/bin/lmx"), file = path("file");
  for (const std::string& words : {" translate none --output " + file, " score none - --output " + file,
                                   " translate none --input /dev/stdin --output " + file})
    EXPECT_EQ(run_process({"/bin/sh", "-c", lmx + words + " < " + file}).code, 2) << words;
  EXPECT_EQ(run_process({"/bin/sh", "-c", lmx + " translate none --input " + file + " >> " + file}).code, 2);
  EXPECT_EQ(read_file(file), "text\n");
  // Devices, and files that do not exist, are no inputs.
  EXPECT_THAT(run_lmx({"translate", "none", "--input", "/dev/null", "--output", "/dev/null"}).err,
              testing::Not(testing::HasSubstr("cannot write")));
}

TEST_F(CommandOutputs, TextsAreFoundByPatternsFoldersAndRecipes) {
  write("a.txt", "text\n");
  write("plan.csv", "text\n");
  const std::string a = path("a.txt");
  expect_refused({"data", "filter", "--tsv", path("*.txt"), "--out-tsv", a}, Names("--out-tsv", "by --tsv"));
  expect_refused({"data", "filter", "--source", folder_.root().string(), "--target", a, "--out-source", a,
                  "--out-target", path("b")},
                 Names("--out-source", "by --source"));
  expect_refused({"data", "stats", "--files", folder_.root().string(), "--plot", a}, Names("--plot", "by data.files"));
  write("recipe.yaml", "data: {name: text, files: [" + path("a.*") + "]}\n");
  expect_refused({"data", "stats", path("recipe.yaml"), "--records", a}, Names("--records", "by data.files"));
  EXPECT_EQ(read_file(a), "text\n");
}

// A run's config names its texts, and a sweep has runs. One command suffices: EveryOutputIsCompared shows that each
// compares its outputs with its inputs.
TEST_F(CommandOutputs, TextsOfRunsStay) {
  for (const char* name : {"texts/a.txt", "texts/b.csv", "texts/c.csv", "tokenizer.model"}) write(name, "text\n");
  write("run/config.yaml", "data: {name: text, files: [" + path("texts") +
                               "], tokenizer_file: " + path("tokenizer.model") + ", parts: {more: {field: x, files: [" +
                               path("texts/*.csv") + "]}}}\n");
  fs::create_directories(path("sweep/points"));
  fs::create_hard_link(path("texts/a.txt"), path("texts/hard"));
  write("sweep/sweep.json", "{}\n");
  fs::copy(path("run"), path("sweep/points/1"), fs::copy_options::recursive);
  for (const char* run : {"run", "run/checkpoints/step-3", "sweep", "sweep/points/1"})
    for (const char* name : {"texts/a.txt", "texts/hard", "texts/b.csv", "tokenizer.model"})
      expect_refused({"report", path(run), "--html", path(name)},
                     Names("--html", path(name), "also an input, by data.", " of " + path(run)));
  EXPECT_THAT(run_lmx({"report", path("run"), "--html", path("texts/page.html")}).err,
              testing::Not(testing::HasSubstr("cannot write")));
}

// No command may write a file of a corpus below LMX_DATA_DIR, or of a prepared text.
TEST_F(CommandOutputs, FilesOfCorporaAndOfTheCacheStay) {
  const std::map<std::string, std::string> environment{{"LMX_DATA_DIR", path("data")}};
  for (const char* name : {"data/multi30k/val.de", "data/multi30k/train.en", "data/multi30k/my.html",
                           "cache/text-0/meta.json", "cache/text-0/vocab.tsv", "cache/text-0/train.bin"})
    write(name, "text\n");
  for (const Words& command : {Words{"report", "none", "--html"},
                               {"data", "stats", "--corpus", "multi30k", "--plot"},
                               {"plan", path("recipe.yaml"), "--out"},
                               {"translate", "none", "--output"}}) {
    for (const char* name :
         {"data/multi30k/val.de", "data/multi30k/train.en", "cache/text-0/train.bin", "cache/text-0/new.bin"}) {
      Words words = command;
      words.push_back(path(name));
      EXPECT_THAT(run_lmx(words, environment),
                  Refuses(command.back(), path(name), "belongs to",
                          std::string(name).starts_with("data") ? "the corpus multi30k" : "the prepared text"))
          << text_of(words);
    }
    Words words = command;
    words.push_back(path("data/multi30k/my.html"));
    EXPECT_THAT(run_lmx(words, environment).err, testing::Not(testing::HasSubstr("cannot write")));
  }
}

TEST_F(CommandOutputs, TwoOutputsAreTwoFiles) {
  for (const char* other : {"new", "./new", "run/../new"})
    expect_refused(
        {"data", "filter", "--source", "a", "--target", "b", "--out-source", path("new"), "--out-target", path(other)},
        Names("--out-target", "also written by --out-source"));
  expect_refused({"data", "stats", "--files", "a", "--plot", path("file"), "--records", path("hard")},
                 Names("--records", "also written by --plot"));
  write("s-test.safetensors", "text\n");
  expect_refused({"probe", "none", "--train", path("s-test.safetensors"), "--save", path("s")},
                 Names("--save", "s-test.safetensors", "by --train"));
}

TEST_F(CommandOutputs, FilesOfRunsAndSweepsStay) {
  fs::create_directories(path("sweep"));
  fs::create_directories(path("copy"));
  fs::create_symlink(path("run/metrics.jsonl"), path("link"));  // leads to a file that does not exist yet
  for (const char* name : {"sweep/sweep.json", "copy/state.json", "copy/model.safetensors"}) write(name, "{}\n");
  for (const char* name : {"run/config.yaml", "run/metrics.jsonl", "run/status.json", "run/provenance.json", "link",
                           "run/events.out.tfevents.1", "run/checkpoints/step-3/page.html", "sweep/sweep.json",
                           "sweep/journal.jsonl", "copy/model.safetensors"})
    expect_refused({"report", "none", "--html", path(name)}, Names("--html", path(name), "belongs to"));
  for (const char* name : {"run/report.html", "sweep/report.html", "copy/page.html", "file"})
    EXPECT_THAT(run_lmx({"report", "none", "--html", path(name)}).err,
                testing::Not(testing::HasSubstr("cannot write")));
}

}  // namespace
}  // namespace lmx_test
