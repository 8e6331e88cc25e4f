// The expansion follows Hydra: each list is walked from its end, so that the overrides of later entries (and of
// `+experiment=x` from the command line, which is appended to the recipe's list) are known before earlier entries are
// chosen.
#include "app/compose/sources.h"

#include <algorithm>
#include <map>
#include <set>

#include "app/compose/interpolate.h"
#include "config/messages.h"

namespace lmx::app {
namespace {

// Replaces the option that a defaults list gives for a group.
struct Choice {
  Node option;
  Mark mark;
  bool from_command_line = false, used = false;
  std::string label;  // as written, for messages
};

std::string dotted(std::string group) {
  std::replace(group.begin(), group.end(), '/', '.');
  return group;
}

// The group of an entry in a list whose names are relative to the group `own`.
std::string group_path(const DefaultEntry& entry, const std::string& own) {
  if (entry.group.starts_with("/")) return entry.group.substr(1);
  if (entry.group.empty() || own.empty()) return entry.group.empty() ? own : entry.group;
  return str(own, "/", entry.group);
}

// A file that is being expanded: where its own entries are searched, and where their content is merged.
struct Place {
  const RecipeFile* source;
  std::string group, package;
  bool is_root = false, interpolated = false;
  std::vector<Mark> chosen_by = {};  // see MergeStep::chosen_by
  Mark included = {};                // the entry of the recipe's own list that includes this file
};

// Where the option of a group is listed, and the entry of the recipe's own list that includes that file.
struct Selected {
  Mark listed, included;
};

class Expansion {
 public:
  Expansion(Sources& sources, const std::vector<Override>& groups) : sources_(sources) {
    for (const Override& o : groups) add_command_line(o);
  }

  Expanded run(const RecipeFile& recipe) {
    const std::string package = recipe.package ? resolve_keyword(*recipe.package, "", "", true) : "";
    std::vector<MergeStep> steps = expand({&recipe, "", package, true, false});
    check_all_used();
    return {std::move(steps), known_};
  }

 private:
  void add_command_line(const Override& o) {
    const std::string key = key_of(o.key, o.package.value_or(dotted(o.key)));
    if (o.kind == Override::Kind::force)
      throw UserError(str(config::at(o.mark), "++ does not choose groups; write ", o.body(), ", or +", o.body(),
                          " where no defaults list has it"));
    if (o.kind == Override::Kind::remove) {
      removed_.insert_or_assign(key, Choice{o.value.value_or(Node()), o.mark, true, false, o.body()});
    } else if (o.kind == Override::Kind::add) {
      DefaultEntry entry;
      entry.group = o.key;
      entry.package = o.package;
      entry.option = *o.value;
      entry.mark = o.mark;
      appended_.push_back(std::move(entry));
    } else {
      choices_.insert_or_assign(key, Choice{*o.value, o.mark, true, false, o.body()});
    }
    const auto removal = removed_.find(key);
    const bool added =
        std::any_of(appended_.begin(), appended_.end(), [&](const auto& e) { return entry_key(e, {}) == key; });
    if (removal != removed_.end() && added)
      throw UserError(str(config::at(removal->second.mark), "removes the group that +", key,
                          "=... adds; choose another option with ", key, "=..."));
    if (o.value && o.value->kind == Node::Kind::null && o.kind != Override::Kind::remove)
      throw UserError(str(config::at(o.mark), "a group needs an option (", config::join(sources_.options(o.key)),
                          "); '~", key, "' removes the group"));
  }

  // A group's key is its path, followed by its package if that is not the default one.
  static std::string key_of(const std::string& group, const std::string& package) {
    if (package == dotted(group)) return group;
    return str(group, "@", package.empty() ? "_global_" : package);
  }

  static std::string resolve_keyword(const std::string& package, const std::string& group, const std::string& parent,
                                     bool absolute) {
    const auto below = [&](std::string_view keyword, const std::string& base) {
      return config::join_path(base, package.size() > keyword.size() ? package.substr(keyword.size() + 1) : "");
    };
    if (package == "_global_" || package.starts_with("_global_.")) return below("_global_", "");
    if (package == "_group_" || package.starts_with("_group_.")) return below("_group_", dotted(group));
    if (package == "_here_" || package.starts_with("_here_.")) return below("_here_", parent);
    return absolute ? package : config::join_path(parent, package);
  }

  // The path at which an entry's content is merged. `source` is null if only the entry's key is needed.
  static std::string package_of(const DefaultEntry& entry, const Place& place, const RecipeFile* source) {
    const std::string group = group_path(entry, place.group);
    if (entry.package) return resolve_keyword(*entry.package, group, place.package, false);
    if (source && source->package) return resolve_keyword(*source->package, group, place.package, true);
    const std::string relative = entry.group.starts_with("/") ? entry.group.substr(1) : entry.group;
    return config::join_path(place.package, dotted(relative));
  }

  static std::string entry_key(const DefaultEntry& entry, const Place& place) {
    return key_of(group_path(entry, place.group), package_of(entry, place, nullptr));
  }

  void collect_overrides(const std::vector<DefaultEntry>& defaults, const Place& place) {
    for (const DefaultEntry& entry : defaults) {
      if (!entry.is_override) continue;
      if (place.interpolated)
        throw UserError(
            str(config::at(entry.mark), "no override can be in a file that ${...} in a defaults list has chosen"));
      // The first override wins: lists are walked from the end, and the overrides of the command line were added
      // before.
      choices_.try_emplace(entry_key(entry, place),
                           Choice{entry.option, entry.mark, false, false, "override " + entry.label()});
    }
  }

  std::vector<MergeStep> expand(const Place& place) {
    enter(*place.source);
    std::vector<DefaultEntry> list = place.source->defaults;
    const auto is_self = [](const DefaultEntry& entry) { return entry.kind == DefaultEntry::Kind::self; };
    if (std::none_of(list.begin(), list.end(), is_self)) {
      DefaultEntry self;
      self.kind = DefaultEntry::Kind::self;
      list.push_back(self);
    }
    if (place.is_root) list.insert(list.end(), appended_.begin(), appended_.end());
    collect_overrides(list, place);
    std::vector<std::vector<MergeStep>> parts(list.size());
    std::vector<size_t> interpolated;  // expanded after every plain choice of this list is known
    for (size_t i = list.size(); i-- > 0;) {
      DefaultEntry& entry = list[i];
      if (is_self(entry)) {
        parts[i] = {{place.source, place.package, place.chosen_by}};
      } else if (!entry.is_override && (entry.kind == DefaultEntry::Kind::file || choose(entry, place))) {
        if (is_interpolated(entry)) {
          interpolated.push_back(i);
        } else {
          parts[i] = expand_entry(entry, place, place.interpolated);
        }
      }
    }
    for (size_t i : interpolated) {
      std::vector<Mark> chosen_by;
      interpolate(list[i], chosen_by);
      std::vector<Mark>& replaced = replaced_[entry_key(list[i], place)];
      replaced.insert(replaced.end(), chosen_by.begin(), chosen_by.end());
      parts[i] = expand_entry(list[i], place, true);
      if (list[i].kind == DefaultEntry::Kind::choice) known_[entry_key(list[i], place)] = list[i].option.text;
    }
    stack_.pop_back();
    return joined(parts);
  }

  static std::vector<MergeStep> joined(const std::vector<std::vector<MergeStep>>& parts) {
    std::vector<MergeStep> steps;
    for (const auto& part : parts) steps.insert(steps.end(), part.begin(), part.end());
    return steps;
  }

  void enter(const RecipeFile& source) {
    const auto again = std::find(stack_.begin(), stack_.end(), source.file);
    if (again != stack_.end())
      throw UserError(str(source.file, ": its defaults lists include each other: ",
                          config::join({again, stack_.end()}, " -> "), " -> ", source.file));
    stack_.push_back(source.file);
  }

  // Applies overrides and removals. Returns false if the entry adds nothing.
  bool choose(DefaultEntry& entry, const Place& place) {
    const std::string key = entry_key(entry, place);
    const Mark listed = entry.mark;
    if (const auto choice = choices_.find(key); choice != choices_.end()) {
      choice->second.used = true;
      entry.option = choice->second.option;
      entry.mark = choice->second.mark;
      replaced_[key] = {choice->second.mark};
      if (choice->second.from_command_line) entry.optional = false;  // an option given on the command line must exist
    }
    note_selected(key, entry, {listed, place.is_root ? listed : place.included});
    if (const auto removal = removed_.find(key); removal != removed_.end()) {
      const Node& wanted = removal->second.option;
      if (wanted.kind == Node::Kind::null || same_option(wanted, entry.option)) {
        removal->second.used = true;
        return false;
      }
      throw UserError(str(config::at(removal->second.mark), "group '", key, "' has the option ",
                          config::describe_value(entry.option), ", not ", config::describe_value(wanted)));
    }
    const std::string group = group_path(entry, place.group);
    if (config::is_missing(entry.option) && sources_.options(group).empty()) fail_no_group(entry, group);
    if (config::is_missing(entry.option))
      throw UserError(str(config::at(entry.mark), "group '", key, "' must be chosen: ", key,
                          "=OPTION (options: ", config::join(sources_.options(group)), ")"));
    if (entry.option.kind == Node::Kind::scalar && !is_interpolated(entry)) known_[key] = entry.option.text;
    return entry.option.kind != Node::Kind::null;
  }

  // Lists of options can be combined (`+filter=[length]` with `filter: [dedup]`); a single option must be the only one.
  void note_selected(const std::string& key, const DefaultEntry& entry, const Selected& now) {
    std::optional<Selected>& single = selected_[key];
    if (entry.option.kind == Node::Kind::list) return;
    // If the same line is read twice, the message names the lines that include its file.
    const auto same = [](const Mark& a, const Mark& b) { return to_string(a) == to_string(b); };
    if (single && same(single->listed, now.listed) && !same(single->included, now.included))
      throw UserError(str(config::at(now.included), "group '", key, "' is chosen twice by ", to_string(now.listed),
                          ", because ", to_string(single->included),
                          " includes that file, too; leave out one of them"));
    if (single)
      throw UserError(str(config::at(now.listed), "group '", key, "' is chosen twice, also at ",
                          to_string(single->listed), "; to choose another option write `override ", key,
                          ": option`, or ", key, "=option on the command line"));
    single = now;
  }

  static bool same_option(const Node& a, const Node& b) {
    if (a.items.size() != b.items.size() || a.text != b.text) return false;
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                      [](const Node& x, const Node& y) { return x.text == y.text; });
  }

  // `tuned: ${model}_${optim}`, or a file `extra/${model}`.
  static bool is_interpolated(const DefaultEntry& entry) {
    const bool is_file = entry.kind == DefaultEntry::Kind::file;
    if (!is_file && entry.option.kind != Node::Kind::scalar) return false;
    return (is_file ? entry.path() : entry.option.text).find("${") != std::string::npos;
  }

  // Appends to `chosen_by` the overrides that have chosen the groups named in the entry.
  void interpolate(DefaultEntry& entry, std::vector<Mark>& chosen_by) const {
    if (entry.kind == DefaultEntry::Kind::file)
      entry.set_file(with_choices(entry.path(), entry.mark, chosen_by));
    else
      entry.option.text = with_choices(entry.option.text, entry.option.mark, chosen_by);
  }

  std::string with_choices(std::string text, const Mark& mark, std::vector<Mark>& chosen_by) const {
    for (size_t begin; (begin = text.find("${")) != std::string::npos;) {
      const size_t end = text.find('}', begin);
      if (end == std::string::npos) throw UserError(str(config::at(mark), "'${' is never closed by '}'"));
      const std::string name = text.substr(begin + 2, end - begin - 2);
      if (name.find(':') != std::string::npos) {  // ${oc.env:SITE}
        const Node call = Node::scalar(text.substr(begin, end + 1 - begin), mark);
        text.replace(begin, end + 1 - begin, resolve_alone(call).text);
        continue;
      }
      const auto it = known_.find(name);
      if (it == known_.end()) {
        std::vector<std::string> names;
        for (const auto& group : selected_) names.push_back(group.first);
        if (selected_.contains(name))
          throw UserError(
              str(config::at(mark), "${", name, "}: the group '", name, "' has no one option here to refer to"));
        throw UserError(str(config::at(mark), "${", name, "}: a defaults list can refer to chosen groups only (",
                            config::join(names), ")", did_you_mean(name, names)));
      }
      text.replace(begin, end + 1 - begin, it->second);
      if (const auto marks = replaced_.find(name); marks != replaced_.end())
        chosen_by.insert(chosen_by.end(), marks->second.begin(), marks->second.end());
    }
    return text;
  }

  std::vector<MergeStep> expand_entry(const DefaultEntry& entry, const Place& place, bool interpolated) {
    const std::string group = group_path(entry, place.group);
    std::vector<std::string> names;
    if (entry.kind == DefaultEntry::Kind::file) names.push_back(entry.name);
    if (entry.option.kind == Node::Kind::scalar) names.push_back(entry.option.text);
    for (const Node& item : entry.option.items) names.push_back(item.text);
    std::vector<Mark> chosen_by = place.chosen_by;
    if (const auto marks = replaced_.find(entry_key(entry, place)); marks != replaced_.end())
      chosen_by.insert(chosen_by.end(), marks->second.begin(), marks->second.end());
    std::vector<std::vector<MergeStep>> parts(names.size());
    for (size_t i = names.size(); i-- > 0;) {  // from the end, like defaults lists: the overrides of the last one win
      const std::string& name = names[i];
      const RecipeFile* source = sources_.find(group.empty() ? name : group + "/" + name);
      if (!source && entry.optional) continue;
      if (!source) fail_not_found(entry, group, name);
      // An option's own defaults list is searched in the option's folder: for `sub/name`, in group/sub.
      parts[i] = expand({source, group, package_of(entry, place, source), false, interpolated, chosen_by,
                         place.is_root ? entry.mark : place.included});
    }
    return joined(parts);
  }

  [[noreturn]] void fail_not_found(const DefaultEntry& entry, const std::string& group, const std::string& name) const {
    const std::vector<std::string> options = sources_.options(group);
    if (entry.kind == DefaultEntry::Kind::file) {
      throw UserError(str(config::at(entry.mark), "no file ", group.empty() ? name : group + "/" + name, ".yaml",
                          did_you_mean(name, options), "; searched: ", folder_list()));
    }
    if (options.empty()) fail_no_group(entry, group);
    throw UserError(str(config::at(entry.mark), "group '", group, "' has no option '", name, "'",
                        did_you_mean(name, options), " (options: ", config::join(options), ")"));
  }

  [[noreturn]] void fail_no_group(const DefaultEntry& entry, const std::string& group) const {
    throw UserError(str(config::at(entry.mark), "no group '", group, "'", did_you_mean(group, sources_.groups()),
                        "; searched: ", folder_list()));
  }

  std::string folder_list() const {
    std::vector<std::string> names;
    for (const std::string& folder : sources_.folders()) names.push_back(folder.empty() ? "." : folder);
    return config::join(names) + "; --config-dir DIR adds a folder";
  }

  // An override that matches nothing is an error; the message suggests what it may have meant.
  void check_all_used() const {
    for (const auto& [key, choice] : choices_)
      if (!choice.used) fail_unused(key, choice, choice.from_command_line ? str("; +", choice.label, " adds it") : "");
    for (const auto& [key, choice] : removed_)
      if (!choice.used) fail_unused(key, choice, "");
  }

  [[noreturn]] void fail_unused(const std::string& key, const Choice& choice, const std::string& hint) const {
    const std::string group = key.substr(0, key.find('@'));
    std::vector<std::string> same_group, all;
    for (const auto& entry : selected_) {
      all.push_back(entry.first);
      if (entry.first.substr(0, entry.first.find('@')) == group) same_group.push_back(entry.first);
    }
    std::string meant = did_you_mean(key, all);
    const size_t slash = group.rfind('/');
    const std::string last = group.substr(slash == std::string::npos ? 0 : slash + 1);
    if (!same_group.empty())
      meant = str("; name one of ", config::join(same_group));
    else if (!choice.from_command_line && selected_.contains(last))
      meant = str(" (did you mean 'override /", last, "'?)");
    // `scale=desk` where the recipe's group is `puri/scale`.
    const auto same_end =
        std::find_if(all.begin(), all.end(), [&](const std::string& k) { return k.ends_with("/" + key); });
    if (same_end != all.end() && choice.from_command_line && choice.option.kind == Node::Kind::scalar)
      throw UserError(str(config::at(choice.mark), "no defaults list chooses the group '", key, "' (did you mean '",
                          *same_end, "=", choice.option.text, "'?)"));
    const std::string shown = choice.from_command_line ? "" : str(" (", choice.label, ")");
    const bool exists = sources_.has_group(group);
    if (!exists && meant.empty()) meant = str("; there is no group '", group, "'");
    throw UserError(str(config::at(choice.mark), "no defaults list chooses the group '", key, "'", shown, meant,
                        exists && same_group.empty() ? hint : ""));
  }

  Sources& sources_;
  std::vector<DefaultEntry> appended_;
  std::map<std::string, Choice> choices_, removed_;
  // Group key -> where its single option is listed; empty if all choices of the group are lists of options.
  std::map<std::string, std::optional<Selected>> selected_;
  std::map<std::string, std::string> known_;           // group key -> option
  std::map<std::string, std::vector<Mark>> replaced_;  // group key -> overrides that replaced its option
  std::vector<std::string> stack_;                     // files being expanded
};

}  // namespace

Expanded expand_defaults(const RecipeFile& recipe, Sources& sources, const std::vector<Override>& groups) {
  return Expansion(sources, groups).run(recipe);
}

namespace {

// Whether the defaults list of `file`, or of a file that it includes, chooses `group`. `own`: the group that the names
// of the list are relative to. `seen`: the included files that were searched, because files may include each other.
bool chooses(Sources& sources, const RecipeFile& file, const std::string& own, const std::string& group,
             std::set<std::string>& seen) {
  return std::any_of(file.defaults.begin(), file.defaults.end(), [&](const DefaultEntry& e) {
    if (e.kind == DefaultEntry::Kind::self) return false;
    const std::string path = group_path(e, own);
    if (e.kind == DefaultEntry::Kind::choice) return path == group;
    if (e.path().find("${") != std::string::npos) return true;  // the file is not known yet, and may choose the group
    const RecipeFile* included = sources.find(path.empty() ? e.name : str(path, "/", e.name));
    return included && seen.insert(included->file).second && chooses(sources, *included, path, group, seen);
  });
}

}  // namespace

bool is_group_override(const Override& o, Sources& sources, const RecipeFile& recipe) {
  if (o.value && o.value->kind == Node::Kind::map) return false;
  if (o.key.find('.') != std::string::npos) return false;
  if (o.package || o.key.find('/') != std::string::npos) return true;
  if (!sources.has_group(o.key)) return false;
  // The folder may belong to the shipped recipes, and this recipe may write the values itself.
  std::set<std::string> seen;
  return recipe.content.find(o.key) == nullptr || chooses(sources, recipe, "", o.key, seen);
}

}  // namespace lmx::app
