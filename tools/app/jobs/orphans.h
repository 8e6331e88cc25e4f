// Processes that a child has left behind when it ended.
#pragma once

#include <chrono>
#include <functional>

namespace lmx_cli::jobs {

// From its construction on, the descendants of an ended child become children of this process.
class OrphanReaper {
 public:
  OrphanReaper();
  // Waits until this process has no child, and kills those that still run after `patience`, or as soon as `urgent`
  // returns true. REQUIRES: no Child object has a running process.
  void end_all(std::chrono::milliseconds patience, const std::function<bool()>& urgent) const;
};

}  // namespace lmx_cli::jobs
