"""More cases for config_cases.py, from real typing errors and from Hydra's grammar."""
from config_case_list import CASES, PLAIN, case, config

__all__ = ["CASES"]

# --- files merged over existing values, references in brackets, directives
ON = {"conf/g/x.yaml": "v: 1\n"}
case("package.on_list", "A group's file on a list", config("defaults: [_self_, g: x]\ng: [1, 2]\n", **ON), mentions=["g", "list"])
case("package.below_list", "And below one", config("defaults: [_self_, g@p.q: x]\np: [1]\n", **ON), mentions=["p", "list"])
case("package.into_list_item", "Or into one of its maps", config("defaults: [_self_, g@p.0: x]\np: [{w: 1}]\n", **ON), mentions=["p", "list"])
case("package.on_word", "On a word it takes its place", config("defaults: [_self_, g: x]\ng: 3\n", **ON))
case("package.on_null", "And on null", config("defaults: [_self_, g: x]\ng: null\n", **ON))
case("package.on_reference", "On a reference it changes a copy", config("defaults: [_self_, g: x]\ng: ${b}\nb: {w: 1}\n", **ON))
case("package.below_reference", "And below one", config("defaults: [_self_, g@c.d: x]\nc: ${b}\nb: {w: 1}\n", **ON))
ADD = config("a: 1\n", **ON)
case("package.empty_end", "A package that ends in a dot", ADD, ["+g@p.=x"], mentions=["@p"])
case("package.empty_begin", "One that begins with a dot", ADD, ["+g@.p=x"], mentions=["@.p"])
case("package.twice", "Two packages", ADD, ["+g@p@q=x"], mentions=["@p"])
case("package.dots", "A package of two names", ADD, ["+g@p.q=x"])

case("interp.bracket_first", "A path that begins in brackets is one from the root", config("m: {x: 1}\nk: {r: '${[m][x]}', m: {x: 2}}\n"))
case("interp.bracket_relative", "Brackets behind one dot", config("a: [1, ['b', '${.[0]}']]\n"))
case("interp.bracket_sibling", "The first item beside it", config("r: [1, '${.[0]}']\n"))
case("interp.bracket_up", "Brackets behind two dots", config("r: [1, {a: '${..[0]}'}]\n"))
case("interp.escaped_blanks", "Escaped blanks around an argument", config("b: '${oc.env:NO_SUCH_X,\\ x\\ }'\n"))
case("interp.blanks", "Blanks around an argument are none of it", config("b: '${oc.env:NO_SUCH_X,  x  }'\n"))
case("interp.escaped_backslash", "An escaped backslash at the end of one", config("b: '${oc.env:NO_SUCH_X,x\\\\ }'\n"))

case("yaml.percent_first", "A first line that begins with %", config("%lr: 0.1\nseed: 2\n"), mentions=["%"])
case("yaml.percent_later", "A later one", config("a: 1\n%b: 2\n"), mentions=["%"])
case("yaml.directive_alone", "A directive without ---", config("%YAML 1.2\na: 1\n"), mentions=["---"])
case("yaml.directive", "A directive and ---", config("%YAML 1.1\n---\na: 1\n"))
case("yaml.percent_quoted", "% where a line begins inside quotes", config('a: "x\n%b y"\nc: 2\n'))
case("yaml.no_break_escape", "U+00A0 by its escape", config('a: "b\\_c"\n'))
case("yaml.behind_quotes", "A text behind a value in quotes", config("a: 'b' c\n"), mentions=["quotes"])

case("override.cast_by_both", "A value by position and by name", PLAIN, ["+b=int(1, value=2)"], mentions=["value"])
case("override.cast_by_name", "A value by name", PLAIN, ["+b=int(value=2)"])
for id, title, value in [
    ("blank_kept", "Blanks inside a text", "a b"),
    ("escaped_comma", "An escaped comma", "a\\,b"),
    ("escaped_quote", "An escaped quote in quotes", "'it\\'s'"),
    ("double_in_single", "The other quotes inside", "'say \"x\"'"),
    ("backslashes", "Backslashes in quotes stay", "'a\\b'"),
    ("quoted_number", "A number in quotes is a text", "'12'"),
    ("quoted_null", "null in quotes is a text", "'null'"),
    ("empty_list", "An empty list", "[]"),
    ("empty_map", "An empty map", "{}"),
    ("nested", "Lists and maps in one another", "{a: [1, {b: [x, 'y z']}], c: {}}"),
    ("colon", "A colon in a text", "http://x:80/y"),
    ("slash_dot", "A path", "/a/b.c/d-e_f"),
    ("upper_true", "TRUE", "TRUE"),
    ("plus_number", "A sign before a number", "+5"),
    ("point_first", "A number that begins with its point", ".5"),
    ("point_last", "And one that ends with it", "5."),
    ("underscores", "Digits in groups", "1_000_000"),
    ("exponent", "An exponent without a point", "1e3"),
    ("minus_inf", "Minus infinity", "-inf"),
    ("empty", "Nothing at all", ""),
    ("dollar", "A dollar sign alone", "a$b"),
    ("reference", "A reference", "${optim.lr}"),
    ("reference_text", "A reference inside a text", "lr_${optim.lr}_x"),
    ("list_of_texts", "Texts in quotes in a list", "['a,b', \"c d\", e]"),
]:
    case("value." + id, title, PLAIN, ["+new=" + value])
