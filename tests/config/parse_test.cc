// YAML text into nodes: places, and one clear message for each thing that yaml-cpp would take silently.
#include <algorithm>

#include "lmx/config.h"
#include "test.h"

namespace lmx {
namespace {

using namespace lmx_test;

std::string parse_error(const std::string& text) {
  return user_error([&] { parse_yaml(text, "x.yaml"); });
}

TEST(ParseYaml, NodesKnowTheirPlaces) {
  const Node root = parse_yaml("seed: 1\nmodel:\n  name: 'lstm'\n  sizes: [8, 16]\n", "x.yaml");
  EXPECT_EQ(to_string(root.find("seed")->mark), "x.yaml:1:7");
  EXPECT_EQ(to_string(root.at_path("model.name")->mark), "x.yaml:3:9");
  EXPECT_TRUE(root.at_path("model.name")->quoted);
  EXPECT_EQ(to_string(root.at_path("model.sizes.1")->mark), "x.yaml:4:14");
  EXPECT_EQ(root.keys(), (std::vector<std::string>{"seed", "model"}));
  EXPECT_EQ(root.at_path("model.sizes.2"), nullptr);
  EXPECT_EQ(root.at_path("model.absent.x"), nullptr);
}

TEST(ParseYaml, ColumnsCountCharactersNotBytes) {
  const Node root = parse_yaml("größe: {länge: 3}\n", "x.yaml");
  EXPECT_EQ(root.at_path("größe.länge")->mark.column, 16);
}

TEST(ParseYaml, EmptyValuesAreNullAtTheirKey) {
  const Node root = parse_yaml("a:\nb: ~\nc: null\nd: 'null'\n", "x.yaml");
  EXPECT_EQ(root.find("a")->kind, Node::Kind::null);
  EXPECT_EQ(root.find("a")->mark.line, 1);
  EXPECT_EQ(root.find("b")->kind, Node::Kind::null);
  EXPECT_EQ(root.find("c")->kind, Node::Kind::null);
  EXPECT_EQ(root.find("d")->kind, Node::Kind::scalar);
}

// yaml-cpp writes the first two as single bytes.
TEST(ParseYaml, EscapesAreUtf8) {
  EXPECT_EQ(parse_yaml("a: \"\\N\\_\\L\\x85é\\N\"\n", "x.yaml").find("a")->text, "\u0085\u00a0\u2028\u0085é\u0085");
}

TEST(ParseYaml, EmptyTextIsNull) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "\xEF\xBB\xBF"})
    EXPECT_EQ(parse_yaml(text, "x.yaml").kind, Node::Kind::null) << text;
}

TEST(ParseYaml, WindowsLineEndsAndByteOrderMark) {
  const Node root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  c: two\r\n",
      "x.yaml");
  EXPECT_EQ(to_json(root), R"({"a": 1, "b": {"c": "two"}})");
}

TEST(ParseYaml, AliasesAreCopied) {
  const Node root = parse_yaml("a: &x {lr: 0.1}\nb: *x\n", "x.yaml");
  EXPECT_EQ(root.at_path("b.lr")->text, "0.1");
  EXPECT_EQ(to_string(root.find("b")->mark), "x.yaml:2:4");
}

TEST(ParseYaml, MergeKeysGiveWhatTheMapDoesNotHave) {
  const Node root = parse_yaml(
      "a: &a {x: 1, y: 2}\nb: &b\n  y: 3\n  <<: *a\nc: {<<: [*b, {x: 9, z: 4}], z: 5}\nd: {'<<': 1}\n", "x.yaml");
  EXPECT_EQ(to_json(*root.find("b")), R"({"x": 1, "y": 3})");
  EXPECT_EQ(to_json(*root.find("c")), R"({"x": 1, "y": 3, "z": 5})");
  EXPECT_EQ(to_json(*root.find("d")), R"({"<<": 1})");  // a text
  EXPECT_EQ(to_string(root.at_path("c.x")->mark), "x.yaml:1:11");
}

TEST(ParseYaml, ValuesKnowTheirKeys) {
  const Node root = parse_yaml("a:\n  b: [1]\n  ß: {größe: 3}\nc: &c {d: 1}\ne: *c\n", "x.yaml");
  EXPECT_EQ(to_string(root.find("a")->key_mark), "x.yaml:1:1");
  EXPECT_EQ(to_string(root.at_path("a.b")->key_mark), "x.yaml:2:3");
  EXPECT_EQ(to_string(root.at_path("a.b.0")->key_mark), "");
  EXPECT_EQ(to_string(root.at_path("a.ß.größe")->key_mark), "x.yaml:3:7");
  EXPECT_EQ(to_string(root.find("e")->key_mark), "x.yaml:5:1");
  EXPECT_EQ(to_string(root.at_path("e.d")->key_mark), "x.yaml:4:8");
}

// PyYAML's readings, which are those of YAML 1.2.
TEST(ParseYaml, LineEndsAtTheEndOfATextAreKept) {
  const std::pair<const char*, const char*> cases[] = {
      {"v: 'a\n\n\n  '\nname: q\n", "a\n\n"},
      {"v: \"a\n\n\n\n  \"\nname: q\n", "a\n\n\n"},
      {"v: 'a\n\n  '\n", "a\n"},
      {"v: 'a\n  '\n", "a "},
      {"v: '\n\n  '\n", "\n"},
      {"v: 'a\n\n  b\n \n\n  '\n", "a\nb\n\n"},
      {"v: \"a\\n\n\n\n\"\n", "a\n\n\n"},
      {"v: \"a\\u0041\n\n\n\n \"\n", "aA\n\n\n"},
      {"v: \"a\\ \n\n\n\"\n", "a \n\n"},
      {"v: >+\n  a\n\nname: q\n", "a\n\n"},
      {"v: >+\n  a\n  b\n\n\n", "a b\n\n\n"},
      {"v: >+\n  a\n   b\n\nname: q\n", "a\n b\n\n"},
      {"v: >2+\n   a\n  b\n\n# c\nname: q\n", " a\nb\n\n"},
      {"v: >2+\n  a\n   \nname: q\n", "a\n \n"},
      {"v: >\n  a\n\nname: q\n", "a\n"},
      {"v: |+\n  a\n\nname: q\n", "a\n\n"},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(parse_yaml(text, "x.yaml").find("v")->text, value) << text;
  const Node list = parse_yaml("m:\n- >+\n  a\n\n- v: >2+\n      a\n    b\n\n  w: 1\n", "x.yaml");
  EXPECT_EQ(list.at_path("m.0")->text, "a\n\n");
  EXPECT_EQ(list.at_path("m.1.v")->text, "  a\nb\n\n");
}

// Readers of YAML refuse these characters, or take them for line ends, where they are not escaped.
TEST(ParseYaml, UnprintableCharactersAreWrittenAsEscapes) {
  for (const std::string text : {"a\u2028b", "a\u2029", "\u0085", "\u009f", "\ufeffa", "a\ufffe", "\u007f\u0001"}) {
    Node map = Node::map();
    map.set("v", Node::string(text));
    map.set(text, Node::string("a key"));
    const std::string yaml = to_yaml(map);
    const auto plain = [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); };
    EXPECT_TRUE(std::all_of(yaml.begin(), yaml.end(), plain)) << yaml;
    const Node read = parse_yaml(yaml, "x.yaml");
    EXPECT_EQ(read.find("v")->text, text);
    EXPECT_NE(read.find(text), nullptr) << yaml;
  }
  EXPECT_EQ(to_yaml(Node::string("größe…")), "größe…\n");
}

struct BadText {
  const char* text;
  const char* message;
};

TEST(ParseYaml, EachMistakeHasItsMessage) {
  const BadText cases[] = {
      {"a: 1\nb: 2\na: 3\n", "x.yaml:3:1: key 'a' is here twice; the first is at line 1"},
      {"m:\n  k: {x: 1, x: 2}\n", "x.yaml:2:13: key 'x' is here twice; the first is at line 2"},
      {"base: &b [1]\nm:\n  <<: *b\n",
       "x.yaml:3:3: << takes a map, or a list of maps, whose keys this map is to have: <<: *base"},
      {"m:\n  <<:\n", "x.yaml:2:3: << takes a map, or a list of maps, whose keys this map is to have: <<: *base"},
      {"a: &a {x: 1}\nm: {<<: *a, <<: *a}\n",
       "x.yaml:2:13: << is here twice; it takes a list of maps, too: <<: [*a, *b]"},
      {"a:\n\t- 1\n", "x.yaml:2:1: a tab indents this line; YAML requires spaces"},
      {"a: 1\n---\nb: 2\n", "x.yaml:2:1: a second document; a recipe is one document"},
      {"  a: 1\n b: 2\n", "x.yaml:2:2: this line belongs to nothing above it; check its indentation"},
      {"a: 1\nb:2\n", "x.yaml:2:1: key 'b:2' has no value: write 'b: 2'"},
      {"a: {b:1, c: 2}\n", "x.yaml:1:5: key 'b:1' has no value: write 'b: 1'"},
      {"a: 'oops\nb: 2\n", "x.yaml:1:4: this quote is never closed"},
      {"a: \"oops \\\" \nb: 2\n", "x.yaml:1:4: this quote is never closed"},
      {"a: [1, 2,, 3]\n", "x.yaml:1:10: an empty list item (two commas in a row?)"},
      {"a: &x [1, *x]\n", "x.yaml:1:11: an alias inside the value that its own anchor names"},
      {"a: !!int 3\n", "x.yaml:1:10: the tag 'tag:yaml.org,2002:int' is not supported; remove it"},
      {"a: 1\nbetas: [0.9, 0.98\nlr: 3\nseed: 1\n", "x.yaml:2:8: '[' is never closed by ']'"},
      {"a: {b: 1,\n  c: [2, 3]\n", "x.yaml:1:4: '{' is never closed by '}'"},
      {"a: {b: [0.9, 1}\n", "x.yaml:1:8: '[' is never closed by ']'"},
      {"a: ]\n", "x.yaml:1:4: this bracket closes none; a text that begins with it needs quotes"},
      {"a: {b: 1 c: 2}\n",
       "x.yaml:1:11: a ',' is missing in front of this, or quotes around a text with ': ', inside { }"},
      {"a: [']', b: 1 c: 2]\n",
       "x.yaml:1:16: a ',' is missing in front of this, or quotes around a text with ': ', inside [ ]"},
      {"note: the loss: up\n", "x.yaml:1:15: a second ': ' in this line; put quotes around a text that holds one"},
      {"a: 1\n  b: 2\n",
       "x.yaml:2:3: a key that continues the text above it; check its indentation, and whether a ':' is missing above"},
      {"a: - 1\n", "x.yaml:1:4: a list's '- ' begins a line of its own, below its key; or write [item, item]"},
      {"a: ? b\n", "x.yaml:1:4: a '? ' that is no key; put quotes around a text that begins with it"},
      {"a: @b\n", "x.yaml:1:4: a text that begins with @, ` or % needs quotes"},
      {"a: *b\n", "x.yaml:1:4: no '&' above gives this name to a value; a text that begins with * needs quotes"},
      {"a: * b\n", "x.yaml:1:5: a text that begins with * needs quotes"},
      {"a: &\n", "x.yaml:1:5: a text that begins with & needs quotes"},
      {"a: !<b\n", "x.yaml:1:7: a text that begins with ! needs quotes"},
      {"a: \"\\q\"\n", "x.yaml:1:7: no escape of double quotes; write a backslash twice, or use single quotes"},
      {"a: |b\n", "x.yaml:1:5: the line must end after | or >; a text that begins with | or > needs quotes"},
      {"a: '\n---\n'\n", "x.yaml:2:1: --- or ... inside quotes; is a quote missing above?"},
      {"a: 'b", "x.yaml:1:6: the file ends inside quotes; is a quote missing above?"},
      {"? [a]\n: 1\n", "x.yaml:1:3: a key must be a single word or a quoted text, not a list or map"},
      {"~: 1\n", "x.yaml:1:1: a key is missing before ':', or is null; quote it if it is meant"},
      {"a: \xff\n", "x.yaml:1:4: not UTF-8 text"},
      {"a: b\x01\n", "x.yaml:1:5: a control character (code 1); write it in double quotes as \\x.."},
  };
  for (const BadText& c : cases) EXPECT_EQ(parse_error(c.text), c.message) << c.text;
}

TEST(ParseYaml, SyntaxErrorsNameThePlace) {
  EXPECT_NE(parse_error("a: {p: \?\?\?}\n").find("inside [ ] or { } write it in quotes"), std::string::npos);
  for (const char* text : {",", ",:\nx", "a: [1", "a: {", "a: \"b\" c\n", "- 1\nb: 2\n", "&", "*", "a: |x\n", "]"})
    EXPECT_NE(parse_error(text), "no error") << text;
}

// yaml-cpp passes over such lines.
TEST(ParseYaml, LinesThatBeginWithPercent) {
  for (const char* text : {"%lr: 1\n", "# c\n\n%lr: 1\n---\na: 1\n"})
    EXPECT_NE(parse_error(text).find(":1: a line that begins with % is a YAML directive"), std::string::npos) << text;
  EXPECT_EQ(parse_error("a: 1\n%b: 2"),
            "x.yaml:2:1: a line that begins with % is a YAML directive; a key that begins with % needs quotes");
  EXPECT_EQ(parse_error("%YAML 1.2\na: 1\n"), "x.yaml:1:1: a YAML directive must be followed by a line ---");
  EXPECT_EQ(to_json(parse_yaml("%YAML 1.2\n---\na: 'b\n%c'\n", "x.yaml")), R"({"a": "b %c"})");
  EXPECT_EQ(to_json(parse_yaml("a: |\n  %b\nc: 50%\n", "x.yaml")), R"({"a": "%b\n", "c": "50%"})");
}

TEST(ParseYaml, DepthAndSizeAreBounded) {
  const std::string deep = "a: " + std::string(300, '[') + std::string(300, ']');
  EXPECT_NE(parse_error(deep).find("nested deeper than 100 levels"), std::string::npos);
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) laughs += (k ? ", *a" : "*a") + std::to_string(i - 1);
    laughs += "]\n";
  }
  EXPECT_NE(parse_error(laughs).find("more than 200000 values"), std::string::npos);
  EXPECT_NE(parse_error(std::string(size_t{17} << 20, ' ')).find("larger than 16 MiB"), std::string::npos);
  // An anchor keeps what it names, and so does each around it.
  std::string nested, ends, items;
  for (int i = 0; i < 50; ++i) {
    nested += "&a" + std::to_string(i) + " [";
    ends += "]";
  }
  for (int i = 0; i < 10'000; ++i) items += "1,";
  EXPECT_NE(parse_error("a: " + nested + items + ends).find("more than 200000 values"), std::string::npos);
}

TEST(ParseYaml, KeysFitIntoALine) {
  const std::string longest(200, 'k');
  EXPECT_EQ(parse_yaml("? " + longest + "\n: 1\n", "x.yaml").keys(), std::vector<std::string>{longest});
  EXPECT_EQ(parse_error("? " + longest + "k\n: 1\n"), "x.yaml:1:3: a key of 201 bytes; at most 200");
  EXPECT_EQ(parse_error("{" + longest + "k: 1}\n"), "x.yaml:1:2: a key of 201 bytes; at most 200");
}

// One line with many values, those that are not written among them: its columns are counted once.
TEST(ParseYaml, ALongLineTakesNoLongerThanManyLines) {
  std::string line = "{";
  for (int i = 0; i < 90'000; ++i) line += "key" + std::to_string(i) + ":,";
  const Node node = parse_yaml(line + "}", "x.yaml");
  ASSERT_EQ(node.entries.size(), 90'000u);
  EXPECT_EQ(node.entries.back().second.mark.line, 1);
}

TEST(ParseYaml, FilesThatCannotBeRead) {
  const lmx_test::TempFolder folder;
  EXPECT_EQ(user_error([&] { parse_yaml_file(folder.path("none.yaml")); }),
            folder.path("none.yaml") + ": cannot be read: No such file or directory");
  EXPECT_NE(user_error([&] { parse_yaml_file(folder.path("")); }).find("is a folder"), std::string::npos);
  EXPECT_EQ(parse_yaml_file(folder.write("empty.yaml", "")).kind, Node::Kind::null);
}

// What one scalar in `text` becomes, as JSON.
std::string json_of(const std::string& text) {
  return to_json(*parse_yaml("v: " + text + "\n", "x").find("v"));
}

TEST(Scalars, Yaml12CoreRules) {
  EXPECT_EQ(json_of("12"), "12");
  EXPECT_EQ(json_of("-1_000"), "-1000");
  EXPECT_EQ(json_of("+7"), "7");
  EXPECT_EQ(json_of("1e3"), "1000.0");
  EXPECT_EQ(json_of(".5"), "0.5");
  EXPECT_EQ(json_of("5."), "5.0");
  EXPECT_EQ(json_of("0.1"), "0.1");
  EXPECT_EQ(json_of("True"), "true");
  EXPECT_EQ(json_of("-.inf"), "\"-.inf\"");
  for (const char* text :
       {"1_", "_1", "1__0", "2024-01-02", "1e", "e5", "'12'", "nan", "--1", "y", "'yes'", "0x", "0xg", "a:10"})
    EXPECT_EQ(json_of(text).front(), '"') << text;
  EXPECT_EQ(json_of("0x1F"), "31");  // to every reader
}

// What one reader takes for a number or a boolean and another for a text is refused, whatever it was meant to be.
TEST(Scalars, WhatReadersTakeDifferently) {
  for (const char* text :
       {"yes", "No", "ON", "off", "010", "007", "-017", "0o17", "0b11", "-0x10", "12:30", "1:02:03.5"})
    EXPECT_NE(user_error([&] { json_of(text); }).find("to some readers of YAML and"), std::string::npos) << text;
}

TEST(Scalars, NumbersAtTheirLimits) {
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_int("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_int("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("-"), std::nullopt);
  EXPECT_EQ(parse_double("1e999"), std::nullopt);
  EXPECT_EQ(parse_double("."), std::nullopt);
  EXPECT_EQ(parse_double("-0.0"), 0.0);
}

// Equal values, whatever the quotes.
bool same(const Node& a, const Node& b) {
  return to_json(a) == to_json(b);
}

TEST(ToYaml, ReadsBackToTheSameValues) {
  const char* texts[] = {
      "a: 1\nb: [1, 2.5, '3', 'yes', 'true', '', ~]\nc: {}\nd: []\n",
      "a: [[1, 2], [], [{b: c, d: [e]}]]\n",
      "- 1\n- - 2\n  - a: b\n    c:\n      d: e\n- []\n",
      "a: |\n  one\n   two\n\n  three\nb: >-\n  x\n  y\n",
      "a: \"tab\\there \\x01 \\\" quote\"\nb: 'it''s'\nc: '- x'\nd: 'a: b'\ne: 'x #y'\nf: '#z'\n",
      "größe: '日本語 ☃'\n'null': 1\n'a: b': 2\n'': 3\n",
      "a: '\?\?\?'\nb: ['\?\?\?', '0x10', '010', '1e5', '.5', '-', '--- x', ' lead', 'trail ']\n",
      "a: ${x.y}\nb: '${oc.env:A,b}'\nc: '@at'\nd: '`tick'\ne: '%p'\nf: '!bang'\ng: '&amp'\nh: '*star'\n",
  };
  for (const char* text : texts) {
    const Node first = parse_yaml(text, "first");
    const std::string written = to_yaml(first);
    EXPECT_TRUE(same(first, parse_yaml(written, "second"))) << text << "became\n" << written;
    EXPECT_EQ(to_yaml(parse_yaml(written, "second")), written);
  }
}

TEST(ToYaml, EveryShortTextSurvivesAsAString) {
  const std::string alphabet = "a0 :-#'\"\\{[,?~.\n\t!&*%@`|>=y";
  std::vector<std::string> texts{""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 3; ++i)
    for (char c : alphabet) texts.push_back(texts[i] + c);
  Node list = Node::list({});
  for (const std::string& text : texts) list.items.push_back(Node::string(text));
  const std::string yaml = to_yaml(list);
  const Node back = parse_yaml(yaml, "back");
  ASSERT_EQ(back.items.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(to_json(back.items[i]), to_json(list.items[i])) << texts[i];
  // The same texts as keys and values of block maps.
  Node map = Node::map();
  for (const char* text : {"a: b", "- x", "?", "? a", "y", "12", "", "a#", " a", "a ", "'", "\n"})
    map.set(text, Node::string(text));
  EXPECT_EQ(to_json(parse_yaml(to_yaml(map), "back")), to_json(map));
}

TEST(ToYaml, ReadsWell) {
  Node root = Node::map();
  root.set("name", Node::string("lstm"));
  root.set("version", Node::string("12"));
  root.set("sizes", Node::list({Node::scalar("1"), Node::string("a, b")}));
  root.set("train", Node::map()).set("steps", Node::scalar("20"));
  EXPECT_EQ(to_yaml(root), "name: lstm\nversion: '12'\nsizes: [1, 'a, b']\ntrain:\n  steps: 20\n");
}

TEST(NodeTree, SetReplacesAndErases) {
  Node root = Node::map();
  root.set("a", Node::scalar("1"));
  root.set("b", Node::scalar("2"));
  root.set("a", Node::scalar("3"));
  EXPECT_EQ(to_json(root), R"({"a": 3, "b": 2})");
  EXPECT_TRUE(root.erase("a"));
  EXPECT_FALSE(root.erase("a"));
  EXPECT_EQ(to_json(root), R"({"b": 2})");
}

}  // namespace
}  // namespace lmx
