// Communicator: collective communication between processes that compute together.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/core/tensor.h"

namespace longhand {

/// What a rank has sent, and how long it took.
struct Traffic {
  int64_t operations = 0;
  /// Sent by this rank to other ranks, by algorithms that send everything directly to its receiver.
  int64_t bytes = 0;
  double seconds = 0;  // from the start of each operation until its end
  double waited = 0;   // of these, while the caller waited

  friend Traffic operator-(const Traffic& a, const Traffic& b) {
    return {a.operations - b.operations, a.bytes - b.bytes, a.seconds - b.seconds,
            a.waited - b.waited};
  }
  friend Traffic operator+(const Traffic& a, const Traffic& b) {
    return {a.operations + b.operations, a.bytes + b.bytes, a.seconds + b.seconds,
            a.waited + b.waited};
  }
};

/// One operation of a communicator, for a timeline. Times are from clock_seconds().
struct Message {
  std::string name;  // the name of the function
  int64_t bytes = 0;
  double begin = 0, end = 0;
};

/// A group of processes, called ranks, that run the same program. All operations are collective:
/// every rank calls the same ones in the same order, with tensors of the same shape and dtype. A
/// group of one rank does nothing, at no cost.
///
/// Operations are carried out one at a time, in the order of their calls. Tensors must be
/// contiguous. Transport errors are thrown as Error, by wait() or by the call itself; the group
/// cannot be used afterwards.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;  // 0 to size() - 1
  virtual int size() const = 0;

  /// Starts to replace x (f32, f64 or i64) with its sum over all ranks, and returns a future for
  /// wait(). Each element is summed by a binary tree over the ranks, (0 + 1) + (2 + 3), …: the
  /// result is bitwise identical on every rank, and to a sum over twice as many ranks that each
  /// hold one half of a pair. Nothing else may use x before wait() has returned.
  virtual std::future<void> start_sum(Tensor x) = 0;
  void sum(Tensor& x) { wait(start_sum(x)); }

  /// Returns x of all ranks, (P, …).
  virtual Tensor all_gather(const Tensor& x) = 0;
  /// Returns the sum of x[rank()] over all ranks, for x (P, …), by the tree of start_sum().
  virtual Tensor sum_scatter(const Tensor& x) = 0;
  /// Returns y with y[p] = x[rank()] of rank p, for x (P, …).
  virtual Tensor all_to_all(const Tensor& x) = 0;
  /// Starts to replace `out` with x of rank() - distance, modulo P, of the same shape and dtype.
  /// Until wait() has returned, nothing may change x or use `out`.
  virtual std::future<void> start_shift(Tensor x, Tensor out, int distance) = 0;
  /// Returns x of rank() - distance, modulo P.
  Tensor shift(const Tensor& x, int distance);
  /// Replaces `bytes` with those of rank 0, which may have any length.
  virtual void broadcast(std::string& bytes) = 0;
  /// Returns the strings of all ranks, which may have any length.
  virtual std::vector<std::string> gather(const std::string& own) = 0;
  /// Returns once every rank has called this.
  virtual void barrier() = 0;

  /// Divides the ranks into groups, one for each value of `group`; ranks keep their order.
  virtual std::unique_ptr<Communicator> split(int group) = 0;

  /// Waits for an operation, and rethrows its error.
  virtual void wait(std::future<void> operation) = 0;
  /// What this rank has sent in this group so far.
  virtual Traffic traffic() const = 0;
  /// Starts to record the operations of this group, and returns those since the last call.
  virtual std::vector<Message> take_messages() { return {}; }

  /// Whether a condition holds on any rank.
  bool any(bool condition);

 protected:
  Communicator() = default;
};

/// The group that consists of this process alone.
Communicator& alone();

/// The lowest rank whose text differs from that of rank 0, and both texts.
struct Difference {
  int rank;
  std::string expected, found;
};
/// Compares hashes of state that must be equal on all ranks. Empty if all are equal.
std::optional<Difference> first_difference(Communicator& ranks, const std::string& text);

/// out = the sum of x (P, …) over its first axis by a binary tree, (0 + 1) + (2 + 3), …, for f32,
/// f64 and i64: what Communicator::start_sum() computes. Overwrites x.
void tree_sum(Tensor& out, Tensor& x);

}  // namespace longhand
