#include "longhand/train/run/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tests/support/catch.h"

using namespace longhand;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("in the sandbox, only open files can be read, and stdout be written") {
  if (prctl(PR_GET_SECCOMP) < 0) {
    WARN("this kernel has no seccomp");
    return;
  }
  const int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // ends with the number of the first wrong answer
    const int null = open("/dev/null", O_WRONLY);
    if (!train::enter_sandbox()) _exit(1);
    int number = 1;
    const auto allowed = [&](bool ok) {
      ++number;
      if (!ok) _exit(number);
    };
    const auto denied = [&](auto result) {
      ++number;
      if (static_cast<long>(result) != -1 || errno != EPERM) _exit(number);
      errno = 0;
    };
    char byte = 0;
    const auto map = [](int protection) {
      return reinterpret_cast<intptr_t>(
          mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    };
    allowed(pread(file, &byte, 1, 0) == 1);               // 2
    allowed(write(STDOUT_FILENO, "", 0) == 0);            // 3
    allowed(map(PROT_READ | PROT_WRITE) != -1);           // 4
    allowed(std::malloc(1 << 26) != nullptr);             // 5
    denied(write(null, "x", 1));                          // 6
    denied(open("/etc/passwd", O_RDONLY));                // 7
    denied(open("/tmp/x", O_WRONLY | O_CREAT, 0600));     // 8
    denied(unlink("/tmp/none"));                          // 9
    denied(socket(AF_INET, SOCK_STREAM, 0));              // 10
    denied(execl("/bin/true", "true", nullptr));          // 11
    denied(fork());                                       // 12
    denied(kill(getppid(), 0));                           // 13
    denied(map(PROT_READ | PROT_EXEC));                   // 14
    denied(mprotect(&number, 1, PROT_READ | PROT_EXEC));  // 15
    denied(ftruncate(file, 0));                           // 16
    _exit(0);
  }
  close(file);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif
