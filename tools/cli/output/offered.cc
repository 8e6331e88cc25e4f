#include "cli/output/offered.h"

#include "config/messages.h"

namespace lmx_cli {

CLI::Validator offered(const std::vector<std::string>& words) {
  return {[](std::string&) { return std::string(); }, "{" + lmx::config::join(words, ",") + "}"};
}

}  // namespace lmx_cli
