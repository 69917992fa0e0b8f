// DryRun: what code takes, found by running it without computing.
#pragma once

namespace longhand {

/// While an object of this class exists, its thread computes nothing: storage is reserved, but nothing
/// backs it; parallel_for(), matrix products and decompositions return at once; and Background starts no
/// thread. memory_stats() is that of the dry run, from an arena of its own that gives blocks as the real
/// one does, so a step that runs dry tells what the step would take, in milliseconds.
///
/// Tensors hold zeros, or whatever code outside of these functions writes; small tensors of i32, such as
/// lengths, are filled and copied. So loops over tensors belong in parallel_for(), and code that chooses
/// sizes by the values of tensors must choose the largest ones if is_dry(). Storage of a dry run may
/// outlive it, but its contents have no meaning. Dry runs cannot be nested.
class DryRun {
 public:
  /// Storage of more than `bytes` at a time throws std::bad_alloc.
  explicit DryRun(double bytes);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
};

namespace detail {
extern constinit thread_local bool dry;
}

/// Whether there is a DryRun of this thread.
inline bool is_dry() { return detail::dry; }

}  // namespace longhand
