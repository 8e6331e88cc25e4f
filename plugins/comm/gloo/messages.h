// The messages of one collective between two ranks of a Gloo group.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "peer_memory.h"
#include "processes/link.h"
#include "waits.h"

namespace lmx_gloo {

// Checks that a message has the length that its receiver expects. Gloo itself does not: it accepts a message that is
// too short, and ends the process of a receiver whose buffer is too short.

// The slot of the messages with this tag and this length. Messages of other lengths have other slots, so that none of
// them is ever written to a buffer that is too short for it. `tag`: 0 to 2^24 - 1. `bytes`: 0 to 2^40 - 1, and less
// than 2^32 where Gloo's own collectives use the same connections, because their slots begin at 2^56.
constexpr uint64_t slot_of(int tag, int64_t bytes) {
  return static_cast<uint64_t>(tag) | static_cast<uint64_t>(bytes) << 24;
}

// InternalError if rank `from` has sent another number of bytes than this rank expects.
void check_length(int from, int64_t sent, int rank, int64_t expected);

// The first message between two ranks for a tensor: its length in bytes and, if it is short, its data, or, if the
// receiver reads it in the sender's memory, its address there.
class Head {
 public:
  // Bytes of the longest tensor that its head contains.
  static constexpr int64_t kShort = 1024;

  Head(gloo::Context& context, const lmx::Tensor& t, bool in, bool direct);
  void send(int to, int tag);
  void receive(int from, int tag);
  Buffer& buffer() { return *buffer_; }

  // These three are for a head that has been received.
  int64_t length() const;
  void copy_to(lmx::Tensor& t) const;
  uint64_t address() const;

 private:
  size_t capacity_;  // of the head that is sent; the longest one that may be received
  std::unique_ptr<std::byte[]> bytes_;
  std::unique_ptr<Buffer> buffer_;
};

// A short tensor is sent in its head. A long one follows its head in pieces, or is direct: the receiver copies it from
// the sender's memory and answers, and only if it cannot read that memory, the sender sends the pieces.
class GlooMessages final : public lmx::processes::Messages {
 public:
  // Bytes of the shortest tensor that is direct.
  static constexpr int64_t kDirect = lmx::processes::kLongestUnwaited + 1;

  GlooMessages(gloo::Context& context, Waits& waits, const PeerMemory& memory, int tag)
      : context_(context), waits_(waits), memory_(memory), tag_(tag) {}
  // All pieces are posted at once: those between two ranks follow one another on one connection.
  void post(const lmx::Tensor& t, int other, bool in) override;
  void wait() override { complete(0); }

 private:
  enum class Answer : uint8_t { none, read, send_it };
  struct Message {
    lmx::Tensor tensor;
    Head head;
    int other;
    bool in, direct;
    Answer answer = Answer::none;
    std::unique_ptr<Buffer> answer_buffer;  // null unless direct
    std::unique_ptr<Buffer> buffer;         // of the pieces; null if there are none
    int64_t pieces = 0;                     // that are not complete
    bool complete = false;
  };

  size_t posted() const override { return messages_.size(); }
  void complete(size_t begin) override;
  void receive_head(Message& m);
  bool read(Message& m);
  void receive_answer(Message& m);
  void post_pieces(Message& m);
  void finish(Message& m);
  void until_complete(Buffer& buffer, int other, bool in);

  gloo::Context& context_;
  Waits& waits_;
  const PeerMemory& memory_;
  int tag_;
  std::deque<Message> messages_;
};

}  // namespace lmx_gloo
