#include "cli/output/json_output.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace lmx_cli {

void add_json(Command command, bool& json) {
  command.add_flag("--json", json, "print the result as JSON, with all digits (docs/json.md)");
}

void print_json(const Json& value) {
  std::cout << value.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace lmx_cli
