#include "runfiles/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/protobuf.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using protobuf::bytes_field;
using protobuf::fixed;
using protobuf::key;
using protobuf::number_field;

// wall_time and step are the first fields of every event; proto3 omits zeros.
std::string event_head(double wall_time, int64_t step) {
  std::string out;
  if (wall_time != 0) out += key(1, 1) + fixed(wall_time);
  return out + number_field(2, step);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = fixed(static_cast<uint64_t>(bytes.size()));
  return length + fixed(masked_crc32c(length)) + std::string(bytes) + fixed(masked_crc32c(bytes));
}

std::string file_version_event(double wall_time) {
  return event_head(wall_time, 0) + bytes_field(3, "brain.Event:2");
}

std::string session_start_event(double wall_time, int64_t step) {
  return event_head(wall_time, step) + bytes_field(7, number_field(1, 1));  // SessionLog{status: START}
}

std::string scalars_event(double wall_time, const Record& record) {
  std::string summary;
  for (const auto& [name, value] : record.values) {
    const std::string scalar = bytes_field(1, record.split + "/" + name) + key(2, 5) + fixed(static_cast<float>(value));
    summary += bytes_field(1, scalar);
  }
  return event_head(wall_time, record.step) + bytes_field(5, summary);
}

EventFile::EventFile(const std::string& directory, int64_t resume_step) {
  const double time = now();
  path_ = str(directory, "/events.out.tfevents.", static_cast<int64_t>(time), ".", host_name(), ".", getpid(), ".0");
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw RunError(str("[tensorboard] cannot write ", path_, ": ", std::strerror(errno)));
  append(file_version_event(time));
  if (resume_step > 0) append(session_start_event(time, resume_step + 1));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void EventFile::write(const Record& record) {
  append(scalars_event(now(), record));
}

void EventFile::append(const std::string& event) {
  const std::string bytes = tf_record(event);
  errno = 0;
  if (::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw RunError(str("[tensorboard] cannot write ", path_, ": ", errno ? std::strerror(errno) : "disk full"));
}

}  // namespace lmx
