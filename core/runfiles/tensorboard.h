// TensorBoard event files, written without TensorFlow: TFRecord framing (length, masked CRC-32C) around protobuf's
// Event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runfiles/metrics.h"

namespace lmx {

uint32_t crc32c(std::string_view bytes);         // Castagnoli, RFC 3720 B.4
uint32_t masked_crc32c(std::string_view bytes);  // TFRecord's: rotated right by 15, plus 0xa282ead8

// One TFRecord: u64 length, its CRC, the bytes, their CRC.
std::string tf_record(std::string_view bytes);
// Event messages of tensorflow/core/util/event.proto, serialised as protobuf does.
std::string file_version_event(double wall_time);
std::string session_start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, const Record& record);  // tags "train/nll_nat"

// One events.out.tfevents.* file of a run. A resumed run opens a new file, which makes TensorBoard discard later steps.
class EventFile {
 public:
  EventFile(const std::string& directory, int64_t resume_step);  // resume_step 0: a new run
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  void write(const Record& record);  // RunError: a full disk

 private:
  void append(const std::string& event);
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace lmx
