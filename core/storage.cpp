#include "longhand/core/storage.h"

#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tbb/spin_mutex.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace longhand {
namespace {

constexpr size_t alignment = 64;
constexpr size_t huge_page = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The addresses that RLIMIT_AS (ulimit -v) leaves to this process; infinity without a limit. Thread
// stacks and all memory from malloc need some of them: a process that has none left fails in
// unexpected places, such as the end of a thread.
double addresses_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<double>::infinity();
  std::ifstream in("/proc/self/statm");
  double pages = 0;
  in >> pages;
  return std::max(
      static_cast<double>(limit.rlim_cur) - pages * static_cast<double>(sysconf(_SC_PAGESIZE)),
      0.0);
}

// A single range of addresses, whose pages the system backs on first use. Allocation splits the
// smallest free block that is large enough, at its front (best fit); a freed block is merged with
// its free neighbours. The free blocks thus depend only on what is in use, not on the history: a
// training step that begins like the previous one finds the same blocks at the same addresses, and
// needs no additional pages.
class Arena {
 public:
  // `share`: of the addresses that a limit leaves. Addresses cost nothing: reserve as many as
  // fragmentation may require, or as the system allows.
  explicit Arena(double share)
      : Arena(std::min(4 * static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<double>(sysconf(_SC_PAGESIZE)),
                       share * addresses_left()),
              PROT_NONE) {
    madvise(begin_, capacity_, MADV_HUGEPAGE);
  }
  // An arena of this many bytes, or fewer. Pages beyond the first blocks are requested from the
  // system, unless `protection` makes all of them usable.
  Arena(double wanted, int protection) : is_open_(protection != PROT_NONE) {
    capacity_ = std::max(round_up(static_cast<size_t>(wanted), huge_page), huge_page);
    for (; capacity_ >= huge_page; capacity_ = round_up(capacity_ / 2, huge_page)) {
      range_ = mmap(nullptr, capacity_ + huge_page, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range_ != MAP_FAILED || capacity_ == huge_page) break;
    }
    if (range_ == MAP_FAILED) throw std::bad_alloc();
    mapped_ = capacity_ + huge_page;
    void* aligned = range_;
    size_t space = mapped_;
    begin_ = static_cast<std::byte*>(std::align(huge_page, capacity_, aligned, space));
    add_free(new_free_block(), begin_, capacity_);
  }
  ~Arena() { munmap(range_, mapped_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  size_t reserved() const { return reserved_; }

  std::byte* take(size_t size) {
    const auto smallest = by_size_.lower_bound({size, nullptr});
    if (smallest == by_size_.end()) throw std::bad_alloc();
    const auto [free, block] = *smallest;
    // Everything that may throw is done first.
    if (free > size && spare_.size() == in_use_) spare_.push_back(new_free_block());
    back(block, size);
    FreeBlock entries = remove_free(by_address_.find(block));
    if (free > size)
      add_free(std::move(entries), block + size, free - size);
    else
      spare_.push_back(std::move(entries));
    ++in_use_;
    return block;
  }

  void give(std::byte* block, size_t size) noexcept {
    const auto next = by_address_.lower_bound(block);
    if (next != by_address_.begin()) {
      const auto [before, free] = *std::prev(next);
      if (before + free == block) {
        spare_.push_back(remove_free(std::prev(next)));
        block = before;
        size += free;
      }
    }
    if (next != by_address_.end() && block + size == next->first) {
      size += next->second;
      spare_.push_back(remove_free(next));
    }
    add_free(std::move(spare_.back()), block, size);
    spare_.pop_back();
    --in_use_;
  }

  void release() {
    for (const auto& [block, size] : by_address_) {
      // The whole pages within the block.
      const size_t first = round_up(block - begin_, huge_page) / huge_page;
      const size_t last = std::min((block - begin_ + size) / huge_page, backed_.size());
      for (size_t page = first; page < last; ++page) {
        if (!backed_[page]) continue;
        madvise(begin_ + page * huge_page, huge_page, MADV_DONTNEED);
        backed_[page] = false;
        reserved_ -= huge_page;
      }
    }
  }

 private:
  using ByAddress = std::map<std::byte*, size_t>;
  using BySize = std::set<std::pair<size_t, std::byte*>>;

  // Inserts and erases a free block in both orders.
  struct FreeBlock {
    ByAddress::node_type by_address;
    BySize::node_type by_size;
  };

  // Neither of these allocates.
  void add_free(FreeBlock entries, std::byte* block, size_t size) noexcept {
    entries.by_address.key() = block;
    entries.by_address.mapped() = size;
    entries.by_size.value() = {size, block};
    by_address_.insert(std::move(entries.by_address));
    by_size_.insert(std::move(entries.by_size));
  }
  FreeBlock remove_free(ByAddress::iterator free) noexcept {
    BySize::node_type by_size = by_size_.extract({free->second, free->first});
    return {by_address_.extract(free), std::move(by_size)};
  }

  FreeBlock new_free_block() {
    if (entries_ == spare_.capacity()) spare_.reserve(2 * entries_ + 64);
    ByAddress by_address;
    BySize by_size;
    by_address.emplace(nullptr, 0);
    by_size.emplace(0, nullptr);
    ++entries_;
    return {by_address.extract(by_address.begin()), by_size.extract(by_size.begin())};
  }

  // Counts the pages of a block, and requests those beyond the last page so far from the system.
  void back(const std::byte* block, size_t size) {
    const size_t first = (block - begin_) / huge_page;
    const size_t last = round_up(block - begin_ + size, huge_page) / huge_page;
    if (const size_t pages = backed_.size(); last > pages) {
      if (!is_open_ &&
          mprotect(begin_ + pages * huge_page, (last - pages) * huge_page, PROT_READ | PROT_WRITE))
        throw std::bad_alloc();
      backed_.resize(last);
    }
    for (size_t page = first; page < last; ++page) {
      if (backed_[page]) continue;
      backed_[page] = true;
      reserved_ += huge_page;
    }
  }

  void* range_ = MAP_FAILED;
  std::byte* begin_ = nullptr;
  size_t mapped_ = 0, capacity_ = 0, reserved_ = 0;
  bool is_open_;
  std::vector<bool> backed_;  // per page: whether the system may have backed it
  ByAddress by_address_;
  BySize by_size_;
  // Taken from entries_: at least as many as there are blocks in use, with room for all. Freeing a
  // block therefore never allocates, and so cannot fail; taking one rarely does.
  std::vector<FreeBlock> spare_;
  size_t entries_ = 0, in_use_ = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Without an arena, so that use after free is detected.
class System {
 public:
  explicit System(double) {}
  size_t reserved() const { return reserved_; }
  std::byte* take(size_t size) {
    void* const block = std::aligned_alloc(alignment, size);
    if (!block) throw std::bad_alloc();
    reserved_ += size;
    return static_cast<std::byte*>(block);
  }
  void give(std::byte* block, size_t size) noexcept {
    std::free(block);
    reserved_ -= size;
  }
  void release() {}

 private:
  size_t reserved_ = 0;
};
using Source = System;
#else
using Source = Arena;
#endif

template <class Source>
class Pool {
 public:
  // The arguments for the sources of small and of large blocks.
  template <class... Args>
  explicit Pool(double small, double large, Args... args)
      : small_(small, args...), large_(large, args...) {}

  std::byte* take(size_t bytes) {
    const size_t size = block_size(bytes);
    std::lock_guard lock(mutex_);
    std::byte* const block = source(size).take(size);
    in_use_ += size;
    peak_ = std::max(peak_, in_use_);
    return block;
  }

  void give(std::byte* block, size_t bytes) noexcept {
    const size_t size = block_size(bytes);
    std::lock_guard lock(mutex_);
    source(size).give(block, size);
    in_use_ -= size;
  }

  void release() {
    std::lock_guard lock(mutex_);
    small_.release();
    large_.release();
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return {in_use_, peak_, small_.reserved() + large_.reserved()};
  }

 private:
  static size_t block_size(size_t bytes) {
    if (bytes > SIZE_MAX - alignment) throw std::bad_alloc();
    return round_up(std::max<size_t>(bytes, 1), alignment);
  }

  // Small blocks have their own region: in a gap left by a large block, one would move the next
  // large block elsewhere.
  Source& source(size_t size) { return size < (size_t{1} << 20) ? small_ : large_; }

  // Held for less than a microsecond: a thread that went to sleep would wake up much later.
  tbb::spin_mutex mutex_;
  Source small_, large_;
  size_t in_use_ = 0, peak_ = 0;
};

// Never destroyed: tensors in static objects may outlive it.
Pool<Source>& pool() {
  static Pool<Source>* const pool = [] {
#ifdef __GLIBC__
    // Other allocations of a step, such as its graph, are small and come from malloc, which would
    // return them to the system after each step and request them again. glibc sets these values
    // itself after the first large block.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
    // The remaining addresses under a limit are left to everything else.
    return new Pool<Source>(0.1, 0.5);
  }();
  return *pool;
}

}  // namespace

// The arena of a dry run, whose addresses can be used but are not meant to be.
struct detail::DryPool : Pool<Arena> {
  explicit DryPool(double bytes)
      : Pool(std::min({bytes, most, addresses_left() / 8}),
             std::min({bytes, most, addresses_left() / 4}), PROT_READ | PROT_WRITE) {}

  static constexpr double most = int64_t{1} << 45;  // a quarter of the addresses of a process
};

namespace {

thread_local std::shared_ptr<detail::DryPool> dry_pool;

// The arena of this thread: that of its dry run, or of the process.
template <class F>
auto of_this_thread(F&& f) {
  return is_dry() ? f(*dry_pool) : f(pool());
}

}  // namespace

constinit thread_local bool detail::dry = false;

DryRun::DryRun(double bytes) {
  check(!is_dry(), "dry run: expected one at a time on a thread, but another is in progress");
  dry_pool = std::make_shared<detail::DryPool>(bytes);
  detail::dry = true;
}

DryRun::~DryRun() {
  detail::dry = false;
  dry_pool.reset();  // survives in the storage that remains of it
}

Storage::Storage(size_t bytes) : bytes_(bytes) {
  if (is_dry()) dry_ = dry_pool;
  data_ = dry_ ? dry_->take(bytes) : pool().take(bytes);
}
Storage::Storage(std::byte* data, size_t bytes, std::shared_ptr<const void> owner)
    : dry_(owner, nullptr), data_(data), bytes_(bytes) {
  check(owner != nullptr, "storage: expected the owner of memory that is borrowed");
}
Storage::~Storage() {
  if (borrowed()) return;
  dry_ ? dry_->give(data_, bytes_) : pool().give(data_, bytes_);
}

MemoryStats memory_stats() {
  return of_this_thread([](auto& pool) { return pool.stats(); });
}
void reset_memory_peak() {
  of_this_thread([](auto& pool) { pool.reset_peak(); });
}
void release_free_memory() {
  of_this_thread([](auto& pool) { pool.release(); });
}

// VmHWM: unlike ru_maxrss, it does not start at the value of the parent process.
int64_t peak_resident_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kib = 0; word == "VmHWM:" && status >> kib) return kib * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace longhand
