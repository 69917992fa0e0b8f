#include "longhand/train/run/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <vector>

namespace longhand::train {
namespace {

void limit_resource(decltype(RLIMIT_AS) resource, uint64_t value) {
  rlimit limit{};
  getrlimit(resource, &limit);
  // Time: SIGXCPU, which states the reason, one second before SIGKILL.
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, value);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, resource == RLIMIT_CPU ? value + 1 : value);
  setrlimit(resource, &limit);
}

/// Returns the bytes of address space that this process uses.
uint64_t address_space() {
  std::ifstream in("/proc/self/statm");
  uint64_t pages = 0;
  in >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void limit_resources(uint64_t file_bytes) {
  limit_resource(RLIMIT_AS, address_space() + (uint64_t{1} << 30) + 4 * file_bytes);
  limit_resource(RLIMIT_CPU, 10 + 5 * (file_bytes >> 20));
  limit_resource(RLIMIT_FSIZE, 1 << 16);
  limit_resource(RLIMIT_CORE, 0);
#ifdef __SANITIZE_ADDRESS__
  constexpr int files = 3;  // the sanitizer probes addresses with a pipe
#else
  constexpr int files = 1;
#endif
  const int lowest = open("/", O_RDONLY | O_DIRECTORY);  // the next free descriptor
  close(lowest);
  if (lowest >= 0) limit_resource(RLIMIT_NOFILE, static_cast<uint64_t>(lowest) + files);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    (defined(__x86_64__) || defined(__aarch64__))

bool enter_sandbox() {
#ifdef __x86_64__
  constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#else
  constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#endif
  constexpr uint32_t number = offsetof(seccomp_data, nr);
  // The low halves of arguments, on little-endian machines.
  const auto argument = [](int i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(i));
  };
  std::vector<sock_filter> filter;
  const auto load = [&](uint32_t offset) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
  };
  /// Compares the loaded value; skips the next `skip` statements if the comparison fails.
  const auto unless = [&](uint16_t comparison, uint32_t value, uint8_t skip) {
    filter.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | comparison | BPF_K), value, 0, skip));
  };
  const auto end = [&](uint32_t action) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, action)); };
  constexpr uint32_t allow = SECCOMP_RET_ALLOW, deny = SECCOMP_RET_ERRNO | EPERM;

  load(offsetof(seccomp_data, arch));
  unless(BPF_JEQ, architecture, 1);
  filter.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
  end(deny);
  load(number);
  for (const int call : {SYS_read,           SYS_readv,
                         SYS_pread64,        SYS_lseek,
                         SYS_fstat,          SYS_newfstatat,
                         SYS_close,          SYS_munmap,
                         SYS_mremap,         SYS_brk,
                         SYS_madvise,        SYS_futex,
                         SYS_sched_yield,    SYS_sched_getaffinity,
                         SYS_clock_gettime,  SYS_gettimeofday,
                         SYS_getrandom,      SYS_rt_sigaction,
                         SYS_rt_sigprocmask, SYS_rt_sigreturn,
                         SYS_exit,           SYS_exit_group}) {
    unless(BPF_JEQ, static_cast<uint32_t>(call), 1);
    end(allow);
  }
  for (const int call : {SYS_write, SYS_writev}) {
    unless(BPF_JEQ, static_cast<uint32_t>(call), 4);
    load(argument(0));
    unless(BPF_JGT, STDERR_FILENO, 1);
    end(deny);
    end(allow);
  }
  for (const int call : {SYS_mmap, SYS_mprotect}) {
    unless(BPF_JEQ, static_cast<uint32_t>(call), 4);
    load(argument(2));
    unless(BPF_JSET, PROT_EXEC, 1);
    end(deny);
    end(allow);
  }
  end(deny);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#else

bool enter_sandbox() { return false; }

#endif

}  // namespace longhand::train
