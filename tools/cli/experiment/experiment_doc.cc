// lmx experiment doc
#include <algorithm>
#include <iostream>
#include <memory>

#include "app/experiment/results.h"
#include "app/records/records.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/experiment/prepared.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx_cli::experiments {
namespace {

using lmx::str;

struct ExperimentDocFlags {
  PluginDirectories directories;
  std::vector<std::string> pages;
  bool check = false;
};

// Returns the content of a block; nothing if it needs cells that have not run here.
std::optional<std::string> content_of(const Block& block, const std::string& page) {
  Choice choice;
  choice.name = block.id;
  choice.scale = block.scale;
  const Prepared p(choice);
  const Finished finished(p.cells, block.only_planned ? "" : p.out);
  const auto waits = [&](const Cell& cell) { return cell.runs && !finished.done(cell); };
  if (!block.only_planned && std::any_of(p.cells.begin(), p.cells.end(), waits)) {
    lmx::log_info(str(page, ": ", block.id, " ", block.scale, " is left as it is: its cells have not run in ", p.out));
    return {};
  }
  return "\n" + comparison_markdown(results_of(p, finished), block.only_planned);
}

// Returns the page with all blocks written.
std::string written(const std::string& file) {
  const std::string page = jobs::read_text(file);
  const std::vector<Block> blocks = blocks_of(page, file);
  if (blocks.empty()) lmx::log_info(file + " has no block <!-- experiment ID SCALE planned -->");
  std::string out;
  size_t from = 0;
  for (const Block& block : blocks) {
    const std::optional<std::string> content = content_of(block, file);
    out += page.substr(from, block.begin - from) + content.value_or(page.substr(block.begin, block.end - block.begin));
    from = block.end;
  }
  return out + page.substr(from);
}

void doc(const ExperimentDocFlags& o) {
  o.directories.load();
  std::string stale;
  for (const std::string& file : o.pages) {
    const std::string page = written(file);
    if (page == jobs::read_text(file)) continue;
    if (!o.check) lmx::write_file(file, page);
    if (!o.check) lmx::log_info("wrote " + file);
    stale += (stale.empty() ? "" : ", ") + file;
  }
  if (o.check && !stale.empty())
    throw lmx::RunError(str("[experiment] ", stale, ": the tables are not what lmx writes; run it without --check"));
}

}  // namespace

void add_experiment_doc(Command group) {
  const auto o = std::make_shared<ExperimentDocFlags>();
  const Command command = group.add_subcommand("doc", "write the tables of experiments into Markdown pages");
  set_examples(command,
               {{"lmx experiment doc docs/experiments/*.md", "every block of these pages"},
                {"lmx experiment doc --check docs/experiments/*.md", "exit code 1 if a page is not up to date"}});
  command.add_option("PAGES", o->pages, "pages with blocks <!-- experiment ID SCALE planned --> ... <!-- end -->")
      .required()
      .writes();
  command.add_flag("--check", o->check, "only compare");
  o->directories.add_to(command);
  command.callback([o] { doc(*o); });
}

}  // namespace lmx_cli::experiments
