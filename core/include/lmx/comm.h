// Groups of ranks and the ledger of what they send.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/tensor.h"

namespace lmx {

// One line of the ledger: bytes that this rank sent and received in one collective.
struct LedgerEntry {
  int64_t step = 0;
  std::string group;       // the parameter group or purpose
  std::string collective;  // "all_reduce"
  int64_t sent = 0, received = 0;
};

// A group of ranks. A group of one is the identity: every call returns at once and enters the ledger with 0 bytes.
class LMX_API Communicator {
 public:
  virtual ~Communicator();
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place: the sum over ranks, in rank order, in the tensor's own type.
  virtual void all_reduce(Tensor& t, const std::string& group) = 0;
  // Ranks' tensors (equal type and trailing shape, any leading size) one after the other, in rank order.
  virtual Tensor all_gather(const Tensor& t, const std::string& group) = 0;
  virtual void broadcast(Tensor& t, int root, const std::string& group) = 0;
  virtual void barrier() = 0;
  const std::vector<LedgerEntry>& ledger() const { return ledger_; }
  void set_step(int64_t step) { step_ = step; }
  void clear_ledger() { ledger_.clear(); }

 protected:
  void enter(const std::string& group, const char* collective, int64_t sent, int64_t received);

 private:
  std::vector<LedgerEntry> ledger_;
  int64_t step_ = 0;
};

// The group of one rank.
LMX_API std::unique_ptr<Communicator> make_self_communicator();

using CommFactory = std::unique_ptr<Communicator> (*)(const Node& config, const std::string& path);

}  // namespace lmx
