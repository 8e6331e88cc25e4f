#include "messages.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "lmx/error.h"

namespace lmx_gloo {

void check_length(int from, int64_t sent, int rank, int64_t expected) {
  if (sent == expected) return;
  throw lmx::InternalError(
      lmx::str("[gloo] rank ", from, " sent ", sent, " bytes where rank ", rank, " expected ", expected));
}

using lmx::Tensor;
using lmx::processes::kLongest;

namespace {

// Bytes of the head of an outgoing tensor.
size_t size_of_head(int64_t length, bool direct) {
  if (direct) return sizeof(int64_t) + sizeof(uint64_t);
  return sizeof(int64_t) + static_cast<size_t>(length <= Head::kShort ? length : 0);
}

// The slot of the answers for this tag. No piece has this length.
uint64_t slot_of_answer(int tag) {
  return slot_of(tag, kLongest + 1);
}

}  // namespace

Head::Head(gloo::Context& context, const Tensor& t, bool in, bool direct)
    : capacity_(in ? size_of_head(kShort, false) : size_of_head(t.bytes(), direct)), bytes_(new std::byte[capacity_]) {
  if (!in) {
    const int64_t length = t.bytes();
    const auto address = reinterpret_cast<uint64_t>(t.raw());
    std::memcpy(bytes_.get(), &length, sizeof length);
    const void* rest = direct ? &address : t.raw();
    if (capacity_ > sizeof length) std::memcpy(bytes_.get() + sizeof length, rest, capacity_ - sizeof length);
  }
  buffer_ = context.createUnboundBuffer(bytes_.get(), capacity_);
}

void Head::send(int to, int tag) {
  buffer_->send(to, slot_of(tag, 0), 0, capacity_);
}
void Head::receive(int from, int tag) {
  buffer_->recv(from, slot_of(tag, 0), 0, capacity_);
}

int64_t Head::length() const {
  int64_t length = 0;
  std::memcpy(&length, bytes_.get(), sizeof length);
  return length;
}
void Head::copy_to(Tensor& t) const {
  if (t.bytes() > 0) std::memcpy(t.raw(), bytes_.get() + sizeof(int64_t), static_cast<size_t>(t.bytes()));
}
uint64_t Head::address() const {
  uint64_t address = 0;
  std::memcpy(&address, bytes_.get() + sizeof(int64_t), sizeof address);
  return address;
}

void GlooMessages::post(const Tensor& t, int other, bool in) {
  const bool direct = t.bytes() >= kDirect && (in ? memory_.reads(other) : memory_.is_read_by(other));
  messages_.push_back({t, Head(context_, t, in, direct), other, in, direct, Answer::none, nullptr, nullptr});
  Message& m = messages_.back();
  if (direct) m.answer_buffer = context_.createUnboundBuffer(&m.answer, sizeof m.answer);
  waits_.call(other, [&] {
    if (direct && !in) m.answer_buffer->recv(other, slot_of_answer(tag_), 0, sizeof m.answer);
    in ? m.head.receive(other, tag_) : m.head.send(other, tag_);
    if (!direct && t.bytes() > Head::kShort) post_pieces(m);
  });
}

void GlooMessages::post_pieces(Message& m) {
  m.buffer = buffer_of(context_, m.tensor);
  for (int64_t at = 0; at < m.tensor.bytes(); at += kLongest, ++m.pieces) {
    const int64_t bytes = std::min(kLongest, m.tensor.bytes() - at);
    const auto offset = static_cast<size_t>(at), length = static_cast<size_t>(bytes);
    if (m.in) {
      m.buffer->recv(m.other, slot_of(tag_, bytes), offset, length);
    } else {
      m.buffer->send(m.other, slot_of(tag_, bytes), offset, length);
    }
  }
}

// This rank answers all messages to it before it waits for an answer, and it waits for no piece before it has all
// answers. So it never keeps another rank waiting for something that it does only after its own wait.
void GlooMessages::complete(size_t begin) {
  const auto each = [&](bool (*chosen)(const Message&), void (GlooMessages::*step)(Message&)) {
    for (size_t i = begin; i < messages_.size(); ++i)
      if (!messages_[i].complete && chosen(messages_[i])) (this->*step)(messages_[i]);
  };
  const auto incoming = [](const Message& m) { return m.in; };
  const auto outgoing = [](const Message& m) { return !m.in; };
  const auto answered = [](const Message& m) { return !m.in && m.direct; };
  each(incoming, &GlooMessages::receive_head);
  each(answered, &GlooMessages::receive_answer);
  each(incoming, &GlooMessages::finish);
  each(outgoing, &GlooMessages::finish);
}

void GlooMessages::receive_head(Message& m) {
  until_complete(m.head.buffer(), m.other, true);
  check_length(m.other, m.head.length(), context_.rank, m.tensor.bytes());
  if (!m.direct) return;
  m.answer = read(m) ? Answer::read : Answer::send_it;
  waits_.call(m.other, [&] {
    m.answer_buffer->send(m.other, slot_of_answer(tag_), 0, sizeof m.answer);
    if (m.answer == Answer::send_it) post_pieces(m);
  });
}

// Copies the tensor from the memory of the sender. Returns false if the kernel refuses that.
bool GlooMessages::read(Message& m) {
  auto* to = static_cast<std::byte*>(m.tensor.raw());
  for (int64_t at = 0; at < m.tensor.bytes(); at += kLongest) {
    const auto bytes = static_cast<size_t>(std::min(kLongest, m.tensor.bytes() - at));
    const PeerMemory::Result result =
        memory_.read(m.other, m.head.address() + static_cast<uint64_t>(at), to + at, bytes);
    if (result == PeerMemory::Result::refused) return false;
    waits_.call(m.other, [&] {
      if (result == PeerMemory::Result::gone) throw std::runtime_error("its process has ended");
    });
    waits_.watchdog().progress();
  }
  return true;
}

void GlooMessages::receive_answer(Message& m) {
  until_complete(*m.answer_buffer, m.other, true);
  if (m.answer == Answer::send_it) waits_.call(m.other, [&] { post_pieces(m); });
}

void GlooMessages::finish(Message& m) {
  if (m.in && m.direct) until_complete(*m.answer_buffer, m.other, false);
  if (m.in && !m.direct && !m.buffer) m.head.copy_to(m.tensor);
  if (!m.in) until_complete(m.head.buffer(), m.other, false);
  for (; m.pieces > 0; --m.pieces) until_complete(*m.buffer, m.other, m.in);
  m.complete = true;
}

void GlooMessages::until_complete(Buffer& buffer, int other, bool in) {
  if (in) {
    waits_.until_received(buffer, other);
  } else {
    waits_.until_sent(buffer, other);
  }
  waits_.watchdog().progress();
}

}  // namespace lmx_gloo
