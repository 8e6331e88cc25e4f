#include <iostream>

#include "base/table.h"
#include "conformance/conformance.h"
#include "lmx/error.h"

namespace lmx_cli::check {

void Report::run(const std::string& name, const std::function<std::string()>& body) {
  std::cout << kBegins << name << std::endl;
  const auto line = [&](const char* verdict, const std::string& text) {
    std::cout << verdict << lmx::padded(name, 13) << " " << text << std::endl;
  };
  try {
    const std::string seen = body();
    ++passes_;
    line("ok    ", seen);
  } catch (const Skipped& e) {
    line("skip  ", e.what());
  } catch (const std::exception& e) {
    ++failures_;
    line("FAIL  ", e.what());
  } catch (...) {
    ++failures_;
    line("FAIL  ", "threw what is no std::exception");
  }
}

}  // namespace lmx_cli::check
