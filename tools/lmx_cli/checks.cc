#include "checks.h"

#include <string>

namespace lmx_cli {

const CLI::Validator& positive() {
  static const CLI::Validator check(
      [](std::string& text) -> std::string {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value > 0 ? "" : "'" + text + "' is no number above 0";
      },
      "");
  return check;
}

}  // namespace lmx_cli
