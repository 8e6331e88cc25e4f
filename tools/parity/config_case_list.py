"""The cases of config_cases.py: each (id, title, files, args, options).

If Hydra fails, lmx's message must contain the words of `mentions`.
"""
import yaml

MODEL = {
    "conf/model/tiny.yaml": "dim: 64\nheads: 2\n",
    "conf/model/base.yaml": "dim: 512\nheads: 8\n",
    "conf/model/big.yaml": "defaults:\n  - base\n  - attn: flash\n  - _self_\ndim: 1024\n",
    "conf/model/attn/flash.yaml": "kind: flash\nwindow: 256\n",
    "conf/model/attn/naive.yaml": "kind: naive\n",
}
OPTIM = {
    "conf/optim/adam.yaml": "name: adam\nlr: 0.001\nbetas: [0.9, 0.98]\n",
    "conf/optim/sgd.yaml": "name: sgd\nlr: 0.1\nmomentum: 0.9\n",
}
GROUPS = {**MODEL, **OPTIM, "conf/config.yaml": "defaults:\n  - model: tiny\n  - optim: adam\n  - _self_\nseed: 7\n"}
PLAIN = {
    "conf/config.yaml": "seed: 7\nname: ott\nlr: 0.1\nflag: false\nopt: null\npath: /data\nlayers: [1, 2, 3]\n"
    "optim: {name: adam, lr: 0.001, betas: [0.9, 0.98]}\nstages:\n  - {kind: warm, lr: 0.1}\n  - {kind: main, lr: 0.2}\n"
}
EXPERIMENT = {
    **GROUPS,
    "conf/experiment/long.yaml": "# @package _global_\ndefaults:\n  - override /model: big\n  - override /optim: sgd\n"
    "seed: 11\noptim: {lr: 0.5}\n",
    "conf/experiment/naive.yaml": "# @package _global_\ndefaults:\n  - override /model: big\n  - override /model/attn: naive\n",
    "conf/experiment/nested.yaml": "# @package _global_\ndefaults:\n  - long\n  - _self_\nseed: 12\n",
}


def config(text, **more):
    return {"conf/config.yaml": text, **more}


def with_files(text, *groups):
    files = {}
    for g in groups:
        files.update(g)
    files["conf/config.yaml"] = text
    return files


CASES = []


def case(id, title, files, args=(), **options):
    CASES.append((id, title, files, list(args), options))


# --- defaults lists
case("defaults.base_and_group", "A file entry, then a group inside an option's own list", GROUPS, ["model=big"])
case("defaults.nested_override_from_root", "An override at the root re-selects a group two levels down",
     with_files("defaults:\n  - model: big\n  - override model/attn: naive\n", MODEL))
case("defaults.cli_beats_override", "The command line beats an override entry",
     with_files("defaults:\n  - model: big\n  - override model/attn: naive\n", MODEL), ["model/attn=flash"])
case("defaults.delete_group", "~group removes it from the defaults list", GROUPS, ["~optim"])
case("defaults.delete_group_option", "~group=option removes it where that is the option", GROUPS, ["~optim=adam"])
case("defaults.delete_group_other", "~group=option fails where another is chosen", GROUPS, ["~optim=sgd"],
     mentions=["optim", "sgd"])
case("defaults.delete_nested_group", "~group/sub removes what an option lists",
     with_files("defaults:\n  - model: big\n", MODEL), ["~model/attn"])
case("defaults.delete_absent_group", "~group that nothing lists", with_files("seed: 1\n", MODEL), ["~model"],
     mentions=["model"])
case("defaults.optional_present", "optional loads what is there",
     with_files("defaults:\n  - optional model: base\n  - _self_\nseed: 1\n", MODEL))
case("defaults.optional_missing_option", "optional leaves out an option that is not there",
     with_files("defaults:\n  - optional model: none\n  - _self_\nseed: 1\n", MODEL))
case("defaults.optional_nested", "optional inside an option",
     with_files("defaults:\n  - model: opt\n", {**MODEL, "conf/model/opt.yaml": "defaults:\n  - optional attn: none\ndim: 3\n"}))
case("defaults.optional_cli_typo", "A typed option must exist even where it is optional",
     with_files("defaults:\n  - optional model: none\n  - _self_\nseed: 1\n", MODEL), ["model=tny"], stance="stricter",
     mentions=["model", "tny", "tiny"])
case("defaults.mandatory_group", "group: ??? without a choice", with_files("defaults:\n  - model: ???\n", MODEL),
     mentions=["model", "tiny", "base"])
case("defaults.number_as_file", "A file's name is a text", with_files("defaults:\n  - 12\n", {"conf/12.yaml": "x: 1\n"}),
     mentions=["12"])
case("defaults.quoted_number_as_file", "A quoted number is one", with_files("defaults:\n  - '12'\n", {"conf/12.yaml": "x: 1\n"}))
case("defaults.included_twice", "A file that two entries include",
     with_files("defaults:\n  - mid\n  - other\n", {**MODEL, "conf/mid.yaml": "defaults:\n  - model: tiny\n",
                                                   "conf/other.yaml": "defaults:\n  - mid\n"}), mentions=["model", "mid"])
case("defaults.override_without_match", "override of a group that nothing lists",
     with_files("defaults:\n  - model: tiny\n  - override optim: sgd\n", MODEL, OPTIM), mentions=["optim"])
case("defaults.override_last_wins", "Of two overrides the outer one wins",
     with_files("defaults:\n  - mid\n  - override model: tiny\n",
                {**MODEL, "conf/mid.yaml": "defaults:\n  - model: base\n  - override /model/attn: naive\n"}),
     mentions=["model/attn"])
case("defaults.outer_override_wins", "An override in the primary config beats one in a file it lists",
     with_files("defaults:\n  - outer\n  - override model/attn: flash\n",
                {**MODEL, "conf/outer.yaml": "defaults:\n  - model: big\n  - override model/attn: naive\n"}))
case("defaults.interpolated", "An option named by other choices",
     with_files("defaults:\n  - model: tiny\n  - optim: sgd\n  - tuned: ${model}_${optim}\n",
                MODEL, OPTIM, {"conf/tuned/tiny_sgd.yaml": "lr: 0.3\n", "conf/tuned/base_sgd.yaml": "lr: 0.4\n"}), ["model=base"])
case("defaults.interpolated_env", "An option named by the environment",
     with_files("defaults:\n  - model: ${oc.env:LMX_TEST_MODEL}\n", MODEL), env={"LMX_TEST_MODEL": "base"})
case("defaults.yaml_suffix", "A file entry may be written with its suffix",
     with_files("defaults:\n  - base.yaml\n  - _self_\nx: 1\n", {"conf/base.yaml": "x: 0\ny: 2\n"}))
case("defaults.absolute_file", "An absolute file entry of another group lands in its own package",
     with_files("defaults:\n  - model: m\n", {"conf/model/m.yaml": "defaults:\n  - /shared/norm\n  - _self_\ndim: 3\n",
                                               "conf/shared/norm.yaml": "eps: 1.0e-5\n"}))
case("defaults.two_levels_of_files", "Files that extend files", with_files("defaults:\n  - b\n  - _self_\nz: 3\n",
     {"conf/b.yaml": "defaults:\n  - a\n  - _self_\ny: 2\n", "conf/a.yaml": "x: 1\ny: 1\nz: 1\n"}))
case("defaults.self_in_middle_of_nested", "_self_ before a nested group lets the group win",
     with_files("defaults:\n  - model: m\n", {**MODEL, "conf/model/m.yaml": "defaults:\n  - _self_\n  - attn: flash\nattn: {window: 1, extra: 2}\n"}))
case("defaults.multi_select_empty", "An empty list selects nothing",
     with_files("defaults:\n  - model: []\n  - _self_\nseed: 1\n", MODEL))
case("defaults.multi_select_missing", "A list naming an option that is not there",
     with_files("defaults:\n  - model: [tiny, huge]\n", MODEL), mentions=["model", "huge"])
case("defaults.null_value_cli", "group=null is no option", GROUPS, ["optim=null"], mentions=["optim"])
case("defaults.cycle", "Files that include each other", with_files("defaults:\n  - a\n", {"conf/a.yaml": "defaults:\n  - b\n", "conf/b.yaml": "defaults:\n  - a\n"}),
     skip_hydra=True, mentions=["a.yaml", "b.yaml"])
case("defaults.group_needs_folder_option", "An option that is not there, typed", GROUPS, ["model=hugge"], mentions=["model", "hugge", "tiny", "base"])
case("defaults.override_keyword_nested_package", "override with a package",
     with_files("defaults:\n  - optim@enc: adam\n  - optim@dec: adam\n  - override optim@dec: sgd\n", OPTIM))
case("defaults.null_then_override", "group: null is filled by an override",
     with_files("defaults:\n  - optim: null\n  - override optim: sgd\n", OPTIM))
FILTERS = {f"conf/filter/{name}.yaml": f"{name}: 1\n" for name in ("dedup", "length", "lang")}
case("defaults.multi_select_add", "+group=[option] adds to a list of options",
     with_files("defaults:\n  - filter: [dedup]\n", FILTERS), ["+filter=[lang]"])
case("defaults.multi_select_add_single", "+group=option adds to it too",
     with_files("defaults:\n  - filter: [dedup]\n", FILTERS), ["+filter=lang"])
case("defaults.multi_select_twice", "Two lists of options of one group add up",
     with_files("defaults:\n  - filter: [dedup]\n  - filter: [length]\n", FILTERS))
case("defaults.multi_select_and_two_singles", "Beside a list there is one single option",
     with_files("defaults:\n  - filter: [dedup]\n  - filter: length\n", FILTERS), ["+filter=lang"], mentions=["filter"])
case("defaults.interpolated_file", "A file entry named by a choice",
     with_files("defaults:\n  - model: tiny\n  - extra/${model}\n", MODEL, {"conf/extra/base.yaml": "q: 1\n"}), ["model=base"])
case("defaults.mandatory_without_group", "group: ??? where there is no such group", with_files("defaults:\n  - model: ???\n"),
     mentions=["model"])
BASE_FILE = {"conf/base.yaml": "a: {b: 1}\nl: [1, 2]\nn: null\n"}
case("defaults.list_over_map", "A list does not replace a map", config("defaults:\n  - base\n  - _self_\na: [1]\n", **BASE_FILE),
     mentions=["config.yaml", "base.yaml", "'a'"])
case("defaults.map_over_list", "Nor a map a list", config("defaults:\n  - base\n  - _self_\nl: {x: 1}\n", **BASE_FILE),
     mentions=["config.yaml", "base.yaml", "'l'"])
case("defaults.scalar_over_containers", "A scalar replaces either", config("defaults:\n  - base\n  - _self_\na: 1\nl: x\n", **BASE_FILE))
case("defaults.containers_over_null", "Either replaces null", config("defaults:\n  - base\n  - _self_\nn: {x: 1}\n", **BASE_FILE))
case("defaults.list_value_in_entry_map", "A group's value may not be a map", with_files("defaults:\n  - model: {a: 1}\n", MODEL), mentions=["model"])

# --- packages
case("package.directive_nested_defaults", "What a relocated option lists moves with it",
     with_files("defaults:\n  - model@net: big\n", MODEL))
case("package.directive_below_comment", "The directive counts below an ordinary comment as well",
     with_files("defaults:\n  - optim: adam\n", {"conf/optim/adam.yaml": "# Adam\n# @package train.opt\nname: adam\n"}), stance="stricter",
     expect={"config": {"train": {"opt": {"name": "adam"}}}})
case("package.directive_primary", "The directive of the primary file",
     config("# @package train\ndefaults:\n  - optim: adam\nsteps: 3\n", **OPTIM))
case("package.directive_words", "The directive has one package", with_files("defaults:\n  - optim: adam\n",
     {"conf/optim/adam.yaml": "# @package train opt\nname: adam\n"}), mentions=["adam.yaml", "train opt"])
case("package.directive_empty", "And not none", with_files("defaults:\n  - optim: adam\n",
     {"conf/optim/adam.yaml": "# @package\nname: adam\n"}), mentions=["adam.yaml", "@package"])
case("package.directive_colon", "A colon behind @package is no directive to Hydra, and a mistake to lmx",
     with_files("defaults:\n  - optim: adam\n", {"conf/optim/adam.yaml": "# @package: _global_\nname: adam\n"}), stance="stricter")
case("package.global_in_group", "_global_ in an option of a nested group",
     with_files("defaults:\n  - a/b: c\n", {"conf/a/b/c.yaml": "# @package _global_\nx: 1\n"}))
case("package.group_dot", "_group_ and more", with_files("defaults:\n  - a/b@_group_.z: c\n", {"conf/a/b/c.yaml": "x: 1\n"}))
case("package.here_dot", "_here_ and more; to Hydra it is a key `_here_`",
     with_files("defaults:\n  - model: m\n", {**OPTIM, "conf/model/m.yaml": "defaults:\n  - /optim@_here_.opt: adam\nd: 1\n"}), stance="better",
     skip_hydra=True, raw_expect={"config": {"model": {"opt": {"name": "adam", "lr": 0.001, "betas": [0.9, 0.98]}, "d": 1}}})
case("package.cli_global", "group@_global_ on the command line", with_files("seed: 7\n", OPTIM), ["+optim@_global_=sgd"])
case("package.value_below_relocated", "A value override below a relocated group",
     with_files("defaults:\n  - optim@enc: adam\n", OPTIM), ["enc.lr=1", "optim@enc=sgd"])
case("package.file_entry", "A file entry with a package", with_files("defaults:\n  - base@sub.tree\n  - _self_\nq: 1\n", {"conf/base.yaml": "x: 1\n"}))
case("package.delete_relocated", "~group@package", with_files("defaults:\n  - optim@enc: adam\n  - optim@dec: adam\n", OPTIM), ["~optim@enc"])
case("package.twice_same", "The same group and package twice", with_files("defaults:\n  - optim@enc: adam\n  - optim@enc: sgd\n", OPTIM), mentions=["optim@enc"])
case("package.add_second", "+group@package beside the listed one", GROUPS, ["+optim@other=sgd"])

# --- experiments
case("experiment.nested_file", "An experiment that extends another", EXPERIMENT, ["+experiment=nested"])
case("experiment.cli_group_wins", "A group typed beats the experiment's override", EXPERIMENT, ["+experiment=long", "model=base"])
case("experiment.cli_nested_group_wins", "The same two levels down", EXPERIMENT, ["+experiment=naive", "model/attn=flash"])
case("experiment.order_of_args", "The order of the arguments does not matter for groups", EXPERIMENT, ["optim.lr=3", "model=tiny", "+experiment=long"])
case("experiment.list_and_value", "Two experiments and a value", EXPERIMENT, ["+experiment=[naive,long]", "seed=1"])
for id, listed in [("last_override_wins", "[long,small]"), ("last_override_wins_reversed", "[small,long]")]:
    case("experiment." + id, "Of two experiments that choose one group the later wins",
         {**EXPERIMENT, "conf/experiment/small.yaml": "# @package _global_\ndefaults:\n  - override /model: tiny\n"},
         ["+experiment=" + listed])
case("experiment.unknown", "An experiment that is not there", EXPERIMENT, ["+experiment=lng"], mentions=["experiment", "lng", "long"])
case("experiment.add_group_itself", "An experiment adds a group", with_files("seed: 1\n", {**OPTIM, "conf/experiment/e.yaml": "# @package _global_\ndefaults:\n  - /optim: sgd\n"}), ["+experiment=e"])

# --- override grammar
for id, title, args in [
    ("plus_int", "+12 is an integer", ["seed=+12"]),
    ("minus_float", "Negative exponents", ["lr=-1e-3"]),
    ("float_dot", "5. and .5 are floats", ["lr=5.", "+x=.5"]),
    ("inf_nan", "inf and nan in any case", ["lr=INF", "+x=-inf"]),
    ("underscore_edges", "1_ and _1 are texts", ["name=1_", "path=_1"]),
    ("double_underscore", "1__0 is a text", ["name=1__0"]),
    ("leading_zero_float", "00.5 is a text", ["name=00.5"]),
    ("zero", "0 and -0", ["seed=0", "+x=-0"]),
    ("words", "Words that look like YAML booleans stay texts", ["name=yes", "path=None", "+x=off"]),
    ("trailing_blank", "Blanks around a value are dropped", ["name=  a b  "]),
    ("escaped_blank", "An escaped blank stays", ["name=a\\ "]),
    ("empty", "An empty value is an empty text", ["name="]),
    ("empty_add", "+key= too", ["+x="]),
    ("quoted_empty", "'' is an empty text", ["name=''"]),
    ("quoted_number", "A quoted number is a text", ["name='12'", "path=\"1e3\""]),
    ("quoted_bool", "So is a quoted boolean", ["name='true'"]),
    ("double_in_single", "The other quote needs no escape", ["name='a\"b'", "path=\"a'b\""]),
    ("backslashes_at_end", "Backslashes before the closing quote", ["path='C:\\\\'"]),
    ("unquoted_backslash", "A backslash before a plain letter stays", ["path=C:\\tmp"]),
    ("escaped_specials", "Each special character escaped", ["name=\\(\\)\\[\\]\\{\\}\\:\\=\\,"]),
    ("colons", "Colons in a value", ["name=a:b:c"]),
    ("email", "@ and dots in a value", ["name=a.b@c.d"]),
    ("hyphens", "Hyphens and words", ["name=a-b --c"]),
    ("dict_spaces", "Blanks inside a map", ["+m={ a : 1 , b : x y }"]),
    ("dict_quoted_key", "A quoted value under a plain key", ["+m={a: 'x,y', b: \"{}\"}"]),
    ("dict_number_value", "Numbers keep their types in maps", ["+m={a: 1, b: 1.0, c: '1', d: true, e: null}"]),
    ("dict_empty", "An empty map", ["+m={}"]),
    ("dict_merge_existing", "A map merges into a map without +", ["optim={lr: 5}"]),
    ("dict_nested_merge", "It merges at every level", ["+a={b: {c: 1}}", "+a={b: {d: 2}}"]),
    ("list_nested", "Lists in lists", ["layers=[[1,2],[3,[4]],[]]"]),
    ("list_of_maps", "Maps in lists", ["stages=[{kind: a},{kind: b, lr: 1}]"]),
    ("list_quotes", "Quoted items", ["layers=['1',\"a,b\",' c ']"]),
    ("list_blanks", "Blanks around items", ["layers=[ 1 , 2 ]"]),
    ("index_set", "A list item by its index", ["layers.0=9", "stages.0.kind=cold"]),
    ("index_map_item", "A key added to a map in a list", ["+stages.1.wd=0.1"]),
    ("force_add_new", "++ adds what is not there", ["++new.deep.key=1"]),
    ("force_add_map", "++ merges a map", ["++optim={eps: 1e-8}"]),
    ("add_map_key", "+ below a map", ["+optim.eps=1e-8"]),
    ("add_then_change", "A key that was added can be changed", ["+x=1", "x=2"]),
    ("null_to_map", "+ below a null makes a map", ["+opt.a=1"]),
    ("delete_nested_value", "~ with a matching text", ["~optim.name=adam"]),
    ("delete_list", "~ of a list", ["~layers"]),
    ("delete_list_value", "~ of a list with its value", ["~layers=[1,2,3]"]),
        ("list_replaces_scalar", "A list may replace a text", ["name=[a,b]"]),
    ("scalar_replaces_list", "A text may replace a list", ["layers=none"]),
    ("null_replaces", "null may replace anything", ["optim=null", "layers=null"]),
    ("interp_in_text", "An interpolation inside a text", ["name=run-${seed}"]),
    ("interp_quoted", "And in quotes", ["name='run ${seed}, ${optim.name}'"]),
    ("interp_in_list", "And in a list", ["layers=[${seed},${optim.lr}]"]),
    ("interp_in_map", "And in a map", ["+m={a: ${seed}}"]),
    ("interp_resolver", "A resolver", ["name=${oc.select:no.such,7}"]),
    ("cast_nested", "Casts inside casts", ["name=str(int(3.9))"]),
    ("cast_dict", "Casts reach into maps", ["+m=float({a: 1, b: 2})"]),
    ("cast_str_bool", "str(true)", ["name=str(true)"]),
    ("cast_str_float", "str(1.5)", ["name=str(1.5)"]),
    ("cast_int_text", "int of a quoted number", ["seed=int('12')"]),
    ("cast_bool_text", "bool of a word", ["flag=bool(TRUE)"]),
    ("cast_float_text", "float of a quoted number", ["lr=float('1e-3')"]),
    ("cast_in_list", "A cast inside a list", ["layers=[int(1.5),str(2)]"]),
    ("cast_blank", "A blank before the parenthesis", ["seed=int (3.2)"]),
    ("sort_list", "sort() of a list", ["layers=sort([3,1,2])"]),
    ("sort_list_reverse", "and the other way", ["layers=sort([3,1,2], reverse=true)"]),
    ("sort_texts", "sort() of texts", ["layers=sort([c,a,b])"]),
    ("value_keyword", "A cast's argument by name", ["seed=int(value=3.2)"]),
    ("at_sign_value", "A path with @ and ?", ["path=user@host:/x?y=1".replace("=1", "")]),
    ("dollar", "A lone dollar", ["name=a$b"]),
    ("question_marks", "??? on the command line", ["name=???"]),
    ("cast_str_exponent", "str() of a number in another spelling", ["name=str(1e3)", "path=str(1e-5)"]),
    ("cast_float_inf", "float('inf')", ["lr=float('inf')"]),
    ("interp_blanks", "Blanks inside an interpolation", ["name=${ seed }"]),
    ("null_to_list", "A list over null", ["opt=[1]"]),
]:
    case("override." + id, title, PLAIN, args)
for id, title, args, mentions in [
    ("unclosed_map", "A map that is never closed", ["+m={a:1"], ["+m={a:1"]),
    ("unclosed_quote", "A quote that is never closed", ["name='abc"], ["name='abc"]),
    ("stray_bracket", "A bracket in a plain value", ["name=a]"], ["name=a]"]),
    ("missing_item", "An empty item", ["layers=[1,,2]"], ["layers=[1,,2]"]),
    ("no_equals", "A key alone", ["seed"], ["seed"]),
    ("no_key", "A value alone", ["=3"], ["=3"]),
    ("plus_existing", "+ over a value", ["+seed=1"], ["seed"]),
    ("plus_existing_nested", "+ over a nested value", ["+optim.lr=1"], ["optim.lr"]),
    ("index_beyond", "An index beyond the list", ["layers.7=1"], ["layers.7"]),
    ("key_of_list", "A word for a list", ["layers.first=1"], ["layers"]),
    ("below_text", "A key below a text", ["name.x=1"], ["name.x"]),
    ("cast_of_word", "int() of a word", ["seed=int(abc)"], ["int", "abc"]),
    ("cast_bool_word", "bool() of a word", ["flag=bool(maybe)"], ["bool", "maybe"]),
    ("unknown_function_near", "A function misspelt", ["seed=rnage(3)"], ["rnage", "range"]),
    ("choice_without_multirun", "choice() in a single run", ["seed=choice(1,2)"], ["seed", "multirun"]),
    ("glob_without_multirun", "glob() in a single run", ["seed=glob(*)"], ["seed", "multirun"]),
    ("interval_without_multirun", "interval() in a single run", ["lr=interval(0,1)"], ["lr", "multirun"]),
    ("list_with_sweep", "A sweep inside a list", ["layers=[range(3)]"], ["layers"]),
    ("delete_other_list", "~ of a list with another value", ["~layers=[1,2]"], ["layers"]),
    ("map_new_key", "A map without + names what is there", ["optim={lrr: 1}"], ["optim.lrr", "optim.lr", "+optim"]),
    ("map_new_key_below", "At every level", ["+a={b: {c: 1}}", "a={b: {d: 1}}"], ["a.b.d"]),
    ("list_over_map", "A list does not replace a map", ["optim=[1]"], ["optim", "config.yaml"]),
    ("map_over_list", "Nor a map a list", ["layers={a: 1}"], ["layers", "config.yaml"]),
    ("bracket_key", "A list's item in brackets", ["+layers[0]=5"], ["layers[0]", "key.0"]),
    ("colon_key", "A colon where an equals sign was meant", ["+a:b=2"], ["+a:b=2"]),
    ("parenthesis_first", "A value that begins with a parenthesis", ["name=(a)"], ["name=(a)", "quote"]),
    ("text_behind_quote", "Text behind a quoted value", ["name='a'b"], ["name='a'b"]),
]:
    case("override." + id, title, PLAIN, args, mentions=mentions)

# --- interpolation
case("interp.concat", "Texts and numbers together", config("a: 1\nb: x${a}y${a}\nc: ${a}${a}\n"))
case("interp.chain", "A reference to a reference", config("a: 3\nb: ${a}\nc: ${b}\n"))
case("interp.nested_key", "A key named by another", config("dims: {small: 1, big: 2}\nsize: big\nd: ${dims.${size}}\n"))
case("interp.nested_bracket", "The same in brackets", config("dims: {small: 1, big: 2}\nsize: big\nd: ${dims[${size}]}\n"))
case("interp.whole_map", "A whole map", config("base: {a: 1, b: [2, 3]}\nother: ${base}\n"))
case("interp.whole_list", "A whole list", config("base: [1, {a: 2}]\nother: ${base}\n"))
case("interp.through_map", "A path through a reference", config("base: {a: 1}\nother: ${base}\nx: ${other.a}\n"))
case("interp.override_below_reference", "An override below a reference is refused", config("base: {a: 1}\nother: ${base}\n"), ["other.a=2"], mentions=["other.a"])
case("interp.in_list", "Inside a list", config("d: 5\nl: [1, \"${d}\", \"x${d}\"]\n"))
case("interp.relative_in_list", "Relative from a list's item", config("l:\n  - {a: 1, b: \"${.a}\"}\n  - {a: 2, b: \"${.a}\"}\n"))
case("interp.relative_up", "Relative, two levels up", config("x: {y: {z: \"${..w}\"}, w: 4}\n"))
case("interp.null_value", "A reference to null", config("a: null\nb: ${a}\n"))
case("interp.env_default", "A default of an unset variable", config("a: ${oc.env:LMX_TEST_NONE,12}\nb: ${oc.env:LMX_TEST_NONE,null}\nc: ${oc.env:LMX_TEST_NONE,'x, y'}\n"))
case("interp.env_missing", "An unset variable", config("a: ${oc.env:LMX_TEST_NONE}\n"), mentions=["LMX_TEST_NONE"])
case("interp.env_nested_default", "A default that is a reference", config("d: /tmp\na: ${oc.env:LMX_TEST_NONE,${d}}\n"))
case("interp.decode_list", "oc.decode of a list", config("a: ${oc.decode:'[1, x, 2.5]'}\n"))
case("interp.select_nested", "oc.select with a reference as default", config("d: 4\na: ${oc.select:no,${d}}\n"))
case("interp.select_null", "oc.select of a null", config("n: null\na: ${oc.select:n,5}\n"))
case("interp.dict_values_numbers", "oc.dict.values of numbers", config("m: {a: 1, b: 2}\nv: ${oc.dict.values:m}\n"))
case("interp.deprecated", "oc.deprecated follows the new name", config("new: 5\nold: ${oc.deprecated:new}\n"))
case("interp.create", "oc.create of a map", config("a: \"${oc.create:{x: 1}}\"\n"))
case("interp.numbers_in_text", "Numbers in a text look alike, however they are written",
     config("a: 1e-4\nb: 1e5\nc: 1_000\nd: 0.00001\ne: 1e16\nf: 2.50\ng: -.inf\n"
            "t: \"${a} ${b} ${c} ${d} ${e} ${f} ${g}\"\n"))
case("interp.env_default_number", "A number as default becomes its text", config("a: ${oc.env:LMX_TEST_NONE,1.50}\n"))
case("interp.blanks", "Blanks inside the braces", config("m: {x: 1}\na: ${ m.x }\nb: v${m.x }\n"))
case("interp.dollar_key", "A key with a dollar", config("$x: 1\na: ${$x}\n"))
case("interp.argument_map", "References inside a map and a list",
     config("a: 1\nb: two\nc: '${oc.select:none,{p: ${a}, q: x${b}}}'\nd: '${oc.create:[${a},${b}]}'\n"))
case("interp.argument_escapes", "Escapes in arguments",
     config("a: ${oc.env:LMX_TEST_NONE,x\\,y}\nb: \"${oc.env:LMX_TEST_NONE,'it\\\\'s, ok'}\"\n"))
case("interp.decode_reference", "A decoded text may refer to a value", config("port: 80\na: ${oc.decode:${oc.env:LMX_TEST_P}}\n"),
     env={"LMX_TEST_P": "${port}"})
case("interp.merge_over_reference", "A map over a reference changes a copy",
     config("defaults:\n  - base\n  - _self_\nb: {c: 1}\ne: {c: 2}\n",
            **{"conf/base.yaml": "a: {c: 0, d: 2}\nb: ${a}\ne: ${.b}\n"}))
case("interp.unknown_resolver", "A resolver that is not there", config("a: ${oc.evn:HOME}\n"), mentions=["oc.evn", "oc.env"])
case("interp.cycle", "A circle", config("a: ${b}\nb: ${a}\n"), mentions=["a", "b"])
case("interp.self", "A value of itself", config("a: ${a}\n"), mentions=["a"])
case("interp.to_map_in_text", "A map in a text", config("m: {a: 1}\nb: x${m}\n"), skip_hydra=True, mentions=["m"])
case("interp.above_root", "Above the root", config("a: ${...b}\nb: 1\n"), mentions=["...b"])
case("interp.escaped_twice", "Escapes beside references", config("a: 1\nb: \\${a} ${a}\n"))
case("interp.follows_group", "A reference follows the chosen group", with_files("defaults:\n  - model: tiny\nffn: ${model.dim}\n", MODEL), ["model=base"])
case("interp.overridden_by_value", "A reference replaced by a value", config("a: 1\nb: ${a}\n"), ["b=5"])
case("interp.quoted_args", "Quoted arguments", config("a: ${oc.select:'no.such','a b'}\n"))
case("interp.number_text", "A number in quotes stays a text", config("a: '12'\nb: ${a}\n"))
case("interp.choices", "The chosen options", with_files("defaults:\n  - model: tiny\nm: ${hydra:runtime.choices.model}\n", MODEL), skip_hydra=True,
     expect={"config": {"dim": None}}, raw_expect={"config": {"model": {"dim": 64, "heads": 2}, "m": "${hydra:runtime.choices.model}"},
                                                    "resolved": {"model": {"dim": 64, "heads": 2}, "m": "tiny"}})

# --- mandatory values
case("mandatory.kept", "??? stays when nothing reads it", config("a: ???\nb: 1\n"))
case("mandatory.in_group", "??? in an option, given", with_files("defaults:\n  - data: d\n", {"conf/data/d.yaml": "path: ???\n"}), ["data.path=/x"])
case("mandatory.several", "All that are open are named", config("a: ???\nb:\n  c: ???\nd: 1\n"), access="a", skip_hydra=True, mentions=["a", "b.c"], many_lines=True)
case("mandatory.over_null", "??? leaves a null", config("defaults:\n  - base\n  - _self_\nn: ???\n", **BASE_FILE))
case("mandatory.add", "+ over ???", config("a: ???\n"), ["+a=1"])

# --- YAML
case("yaml.comment_only", "A file of comments", config("# nothing\n"))
case("yaml.empty_maps", "Empty containers", config("a: {}\nb: []\nc: ''\n"))
case("yaml.numbers", "Numbers", config("a: -3\nb: +4\nc: 1_000\nd: .5\ne: 5.\nf: 1e3\ng: -1.5e-3\nh: .inf\n"))
case("yaml.hex", "Hexadecimal", config("a: 0x10\nb: 0xfF\n"))
case("yaml.strings", "Texts", config("a: hello world\nb: \"x\\ty\"\nc: 'it''s'\nd: a:b\ne: http://x/y#z\n"))
case("yaml.blank_lines_in_quotes", "Blank lines in front of a closing quote",
     config("v: 'a\n\n\n  '\nw: \"b\n  c\n\n\n\n  \"\nx: '\n\n  '\nname: q\n"))
case("yaml.folded_keep", "Line ends that >+ keeps", config("v: >+\n  a\n\nw: >+\n  a\n  b\n\n\nx: >+\n  a\n   b\n\nname: q\n"))
case("yaml.octal", "A leading zero", config("a: 010\n"), stance="stricter")
case("yaml.base60", "Base 60", config("a: 12:30\n"), stance="stricter")
case("yaml.no", "Norway", config("lang: no\n"), stance="stricter")
case("yaml.nested_lists", "Lists of lists of maps", config("a:\n- - b: 1\n    c: 2\n  - d\n- []\n"))
case("yaml.multiline_flow", "Flow over lines", config("a: [1,\n  2,\n  {b: 3}]\n"))
case("yaml.merge_key", "A merge key gives what the map does not have", config("base: &b {lr: 0.1, name: adam}\nx:\n  <<: *b\n  name: sgd\n"))
case("yaml.merge_key_last", "A merge key behind the map's own keys", config("base: &b {lr: 0.1, name: adam}\nx:\n  name: sgd\n  <<: *b\n"))
case("yaml.merge_keys", "Several maps merged", config("a: &a {p: 1, q: 2}\nb: &b {q: 3, r: 4}\nx: {<<: [*a, *b], r: 5}\ny: {<<: [*b, *a]}\n"))
case("yaml.merge_key_nested", "A merged map that was merged itself", config("a: &a {p: {q: 1}}\nb: &b\n  <<: *a\n  r: 2\nc:\n  <<: *b\n  p: 3\n"))
case("yaml.merge_key_override", "Overrides of merged values change one place", config("a: &a {p: {q: 1}}\nb: {<<: *a}\n"), ["b.p.q=2"])
case("yaml.merge_key_text", "A merge key of a text", config("a: {<<: word}\n"), mentions=["<<"])
case("yaml.anchor_list", "An alias of a list", config("a: &x [1, 2]\nb: *x\nc: {d: *x}\n"))
case("yaml.quoted_keys", "Quoted keys", config("'a b': 1\n\"c\": 2\n"))
case("yaml.folded", "Folded text", config("a: >\n  one\n  two\n\n  three\n"))
case("yaml.bool_case", "Booleans' spellings", config("a: True\nb: FALSE\nc: true\n"))
case("yaml.two_documents", "Two documents", config("a: 1\n---\nb: 2\n"), mentions=["config.yaml"])
case("yaml.not_a_map", "A list at the top", config("- a\n- b\n"), skip_hydra=True, mentions=["config.yaml"])
case("yaml.unclosed_flow", "A list that is never closed", config("a: [1, 2\nb: 3\n"), mentions=["config.yaml"])
case("yaml.bad_in_group", "A mistake in an option's file", with_files("defaults:\n  - m: x\n", {"conf/m/x.yaml": "a: 1\na: 2\n"}), mentions=["x.yaml"])

# --- sweeps
for id, title, args in [
    ("three_axes", "Three axes, the last fastest", ["seed=1,2", "name=a", "lr=0.1,0.2"]),
    ("range_bounds", "range(start,stop)", ["seed=range(2,5)"]),
    ("range_step", "range with a step", ["seed=range(0,10,4)"]),
    ("range_down", "A range that goes down", ["seed=range(3,0,-1)"]),
    ("range_named", "range by names", ["seed=range(start=1,stop=4)"]),
    ("range_float_step", "Steps of a tenth", ["lr=range(0.1,0.5,0.1)"]),
    ("range_int_float", "A float step makes floats", ["lr=range(1,3,0.5)"]),
    ("choice_quotes", "choice() of quoted texts", ["name=choice('a,b',\"c d\")"]),
    ("choice_lists", "Lists as elements", ["layers=[1],[2,3],[]"]),
    ("choice_mixed", "Elements of several types", ["name=a,1,2.5,true,null,'x'"]),
    ("sort_reverse", "sort() backwards", ["seed=sort(3,1,2,reverse=true)"]),
    ("sort_choice", "sort() of a choice", ["seed=sort(choice(3,1,2))"]),
    ("cast_choice", "A cast over a sweep", ["lr=float(1,2)"]),
    ("cast_range", "A cast over a range", ["lr=float(range(1,3))"]),
    ("str_choice", "str() over a choice", ["name=str(choice(1,2))"]),
    ("tagged", "tag() leaves the values", ["seed=tag(a,b,choice(1,2))"]),
    ("interp_element", "Interpolations as elements", ["name=${seed},x"]),
    ("add_key", "+key swept", ["+new=1,2"]),
    ("same_key_twice", "The later override of a key wins", ["seed=1,2", "seed=5,6,7"]),
    ("no_sweep", "A multirun of one", ["seed=3"]),
    ("blanks", "Blanks around elements", ["seed=1, 2 ,3"]),
    ("index", "A list's item swept", ["layers.0=7,8"]),
]:
    case("sweep." + id, title, PLAIN, ["-m"] + args)
case("sweep.groups_product", "Two groups and a value", GROUPS, ["-m", "model=tiny,base", "optim=adam,sgd", "seed=1"])
case("sweep.glob", "glob() over a group's options", GROUPS, ["-m", "model=glob(*)"])
case("sweep.glob_exclude", "glob() with exceptions", GROUPS, ["-m", "model=glob(*, exclude=t*)"])
case("sweep.glob_list", "glob() of several patterns", GROUPS, ["-m", "model=glob([tiny,b*], exclude=[base])"])
case("sweep.nested_group", "A nested group swept", with_files("defaults:\n  - model: big\n", MODEL), ["-m", "model/attn=flash,naive"])
case("sweep.experiment_and_value", "Experiments times values", EXPERIMENT, ["-m", "+experiment=long,nested", "seed=1,2"])
case("sweep.multi_select", "Lists of options as elements", with_files("defaults:\n  - model: [tiny]\n", MODEL), ["-m", "model=[tiny],[tiny,base]"])
for id, title, args, mentions in [
    ("empty_range", "A range without numbers", ["-m", "seed=range(5,1)"], ["range"]),
    ("zero_step", "A step of 0", ["-m", "seed=range(0,5,0)"], ["range", "step"]),
    ("sort_mixed", "sort() of texts and numbers", ["-m", "seed=sort(1,a)"], ["sort"]),
    ("empty_choice", "choice() of nothing", ["-m", "seed=choice()"], ["choice"]),
    ("tag_without_sweep", "tag() of a value", ["-m", "seed=tag(a,b)"], ["tag"]),
    ("trailing_comma", "A comma at the end", ["-m", "seed=1,"], ["seed=1,"]),
    ("last_point_bad", "A mistake in the last point stops all", ["-m", "seed=1,2", "optim.x.y=1"], ["optim.x"]),
    ("bad_keyword", "An unknown argument", ["-m", "seed=range(1,2,stpe=1)"], ["stpe", "step"]),
]:
    case("sweep." + id, title, PLAIN, args, mentions=mentions, skip_hydra=True)

# --- schemas: their expectations are written by hand, after OmegaConf's rules for structured configs
SCHEMA = {"seed": "int", "lr": "float", "amp": "bool", "name": "str", "act": "enum[relu,gelu]", "dims": "list[int]",
          "w": "dict[float]", "clip": "optional[float]", "sub.depth": "int", "sub.names": "list[str]", "any": "any"}
TEXT = "seed: 1\nlr: 0.5\namp: true\nname: x\nact: relu\ndims: [1]\nw: {a: 1.0}\nclip: null\nsub: {depth: 2, names: [a]}\nany: 3\n"
FULL = {"seed": 1, "lr": 0.5, "amp": True, "name": "x", "act": "relu", "dims": [1], "w": {"a": 1.0}, "clip": None,
        "sub": {"depth": 2, "names": ["a"]}, "any": 3}


def schema(id, title, args, change=None, mentions=None, text=TEXT, stance="same", fields=SCHEMA, access=None):
    expect = {"error": {"code": "schema", "mentions": mentions}}
    if mentions is None:
        result = yaml.safe_load(yaml.safe_dump(FULL))
        for path, value in (change or {}).items():
            node = result
            *parents, last = path.split(".")
            for p in parents:
                node = node[p]
            node[last] = value
        expect = {"config": result}
    case("schema." + id, title, config(text), args, schema=fields, raw_expect=expect, stance=stance, skip_hydra=True,
         **({"access": access} if access else {}))


schema("all", "Everything fits", [])
schema("float_from_int", "Integers become floats, in maps too", ["lr=3", "+w.b=2"], {"lr": 3.0, "w": {"a": 1.0, "b": 2.0}})
schema("text_from_number", "A number in a text field becomes its text", ["name=12"], {"name": "12"})
schema("bool_words", "yes and 0 in a boolean field", ["amp=no"], {"amp": False})
schema("bool_number", "1 in a boolean field", ["amp=1"], {"amp": True})
schema("optional_given", "An optional float", ["clip=2"], {"clip": 2.0})
schema("optional_bad", "An optional float of the wrong type", ["clip=abc"], mentions=["clip", "abc"])
schema("any_map", "any takes anything", ["any={a: [1]}"], {"any": {"a": [1]}})
schema("enum_bad", "A choice that is not there", ["act=gellu"], mentions=["act", "gellu", "gelu"])
schema("enum_null", "null is no choice", ["act=null"], mentions=["act"])
schema("list_text", "Texts in a list of integers", ["dims=[1,2.5]"], mentions=["dims", "2.5"])
schema("list_null", "null for a list", ["dims=null"], mentions=["dims"])
schema("list_of_text", "Numbers in a list of texts", ["sub.names=[1,b]"], {"sub.names": ["1", "b"]})
schema("dict_text", "A text in a map of floats", ["+w.c=x"], mentions=["w.c", "x"])
schema("dict_null", "null for a map", ["w=null"], mentions=["w"])
schema("map_null", "null for a nested map", ["sub=null"], mentions=["sub"])
schema("nested_unknown", "An unknown key below", ["sub.dpth=1"], mentions=["sub.dpth", "depth"])
schema("root_unknown", "An unknown key at the root", ["sed=1"], mentions=["sed", "seed"])
schema("plus_unknown", "+ does not open a closed map", ["+sub.dpth=1"], mentions=["sub.dpth", "depth"])
schema("missing_field", "A field that no file gives is open", [], text="seed: 1\nlr: 1.0\n", fields={"seed": "int", "lr": "float", "z": "str"},
       mentions=["z"], access="z")
schema("interpolated", "A reference of the right type", ["seed=${sub.depth}"], {"seed": "${sub.depth}"})
schema("list_of_lists", "A list in a list of integers", ["dims=[[1]]"], mentions=["dims"])
