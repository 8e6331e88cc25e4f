#include "cli/output/checks.h"

#include <string>

namespace lmx_cli {

const CLI::Validator& positive() {
  static const CLI::Validator check(
      [](std::string& text) -> std::string {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value) || value <= 0) return "'" + text + "' is no number above 0";
        // CLI11 converts integers that exceed 64 bits to the largest 64-bit number.
        return value < 9.2e18 ? "" : "'" + text + "' is too large";
      },
      "");
  return check;
}

}  // namespace lmx_cli
