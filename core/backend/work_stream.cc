#include "backend/work_stream.h"

#include <utility>

namespace lmx {
namespace {

thread_local WorkStream of_thread = WorkStream::compute;

}  // namespace

WorkStream work_stream() {
  return of_thread;
}

OnStream::OnStream(WorkStream stream) : before_(std::exchange(of_thread, stream)) {}

OnStream::~OnStream() {
  of_thread = before_;
}

}  // namespace lmx
