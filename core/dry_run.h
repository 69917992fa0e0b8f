// DryRun: measures the memory that code needs by running it without computing.
#pragma once

namespace longhand {

/// While an object of this class exists, its thread computes nothing: storage is reserved but not
/// backed by memory; parallel_for(), matrix products and decompositions return at once; and
/// Background starts no thread. memory_stats() describes the dry run, whose own arena allocates
/// blocks as the real one does: a dry step shows what the real step would need, in milliseconds.
///
/// Tensors hold zeros, or whatever code outside these functions writes; small i32 tensors, such as
/// lengths, are filled and copied. So loops over tensors belong in parallel_for(), and code that
/// chooses sizes by the values of tensors must choose the largest ones if is_dry(). Storage of a
/// dry run may outlive it, but its contents are meaningless. Dry runs cannot be nested.
class DryRun {
 public:
  /// Storage throws std::bad_alloc if more than `bytes` would be in use at the same time.
  explicit DryRun(double bytes);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
};

namespace detail {
extern constinit thread_local bool dry;
}

/// Whether this thread has a DryRun.
inline bool is_dry() { return detail::dry; }

}  // namespace longhand
