#include "longhand/train/run/child.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "longhand/train/lab/runner.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;

namespace {

ChildOptions shell(const std::string& script) {
  return {.program = "/bin/sh", .arguments = {"-c", script}};
}

}  // namespace

TEST_CASE("the end of a process is reported, however it comes") {
  const Ended code = Child(shell("exit 7")).wait();
  CHECK(code.code == 7);
  CHECK(code.signal == 0);
  CHECK_FALSE(code.out_of_memory);
  CHECK(code.peak_memory > 0);
  CHECK(Child(shell("kill -SEGV $$")).wait().signal == SIGSEGV);
  CHECK(Child({.program = "/nonexistent"}).wait().code == 127);

  Child sleeping(shell("exec sleep 100"));
  CHECK_FALSE(sleeping.poll());
  CHECK(kill(sleeping.pid(), 0) == 0);
  sleeping.signal(SIGTERM);
  // Also if it comes before the program has started, and this one catches it.
  CHECK(sleeping.wait().signal == SIGTERM);
  REQUIRE(sleeping.poll());
  CHECK(sleeping.poll()->signal == SIGTERM);
}

TEST_CASE("the files and the environment of a process") {
  const test::TemporaryDirectory folder;
  ChildOptions options = shell("echo $HOME.; echo err >&2");
  options.without = {"HOME"};
  options.capture = true;
  options.err = folder / "err";
  for (int i = 0; i < 2; ++i) {
    Child child(options);
    CHECK(child.output() == ".\n");
    CHECK(child.wait().code == 0);
  }
  std::ifstream in(folder / "err");
  CHECK(std::string{std::istreambuf_iterator<char>(in), {}} == "err\nerr\n");
}

TEST_CASE("a process is out of memory if it was killed when the kernel counted a kill for that") {
  const test::TemporaryDirectory folder;
  const std::string counts = folder / "vmstat";
  const auto write = [](int64_t kills) {
    return "printf 'pgfault 1\\noom_kill " + std::to_string(kills) + "\\n' > /proc/vmstat; ";
  };
  test::write_text(counts, "pgfault 1\noom_kill 1000000\n");
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    // The file stands in for the counts of the kernel, in this process and its children only.
    if ((unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && unshare(CLONE_NEWNS) != 0) ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(counts.c_str(), "/proc/vmstat", nullptr, MS_BIND, nullptr) != 0)
      _exit(77);
    try {
      const auto is_out_of_memory = [](const std::string& script) {
        return Child(shell(script)).wait().out_of_memory;
      };
      if (is_out_of_memory(write(1000000) + "kill -KILL $$")) _exit(1);
      if (!is_out_of_memory(write(1000001) + "kill -KILL $$")) _exit(2);
      if (is_out_of_memory(write(1000002) + "kill -TERM $$")) _exit(3);
      if (is_out_of_memory(write(1000003) + "exit 1")) _exit(4);
    } catch (...) {
      _exit(5);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    WARN("this system does not let users replace /proc/vmstat");
    return;
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a process that does not end in time is killed") {
  for (const bool capture : {false, true}) {
    ChildOptions options = shell("echo begun; exec sleep 100");
    options.capture = capture;
    options.out = capture ? "" : "/dev/null";
    options.most_seconds = 0.2;
    Child child(options);
    if (capture) CHECK(child.output() == "begun\n");
    const Ended ended = child.wait();
    CHECK(ended.signal == SIGKILL);
    CHECK(ended.timed_out);
    CHECK_FALSE(ended.out_of_memory);
  }
  ChildOptions quick = shell("exit 3");
  quick.most_seconds = 100;
  const Ended ended = Child(quick).wait();
  CHECK(ended.code == 3);
  CHECK_FALSE(ended.timed_out);
}

TEST_CASE("starting a process runs no handlers of fork(), of which that of OpenBLAS may hang") {
  static int forks = 0;
  REQUIRE(pthread_atfork([] { ++forks; }, nullptr, nullptr) == 0);
  CHECK(Child(shell("exit 5")).wait().code == 5);
  CHECK(forks == 0);
}

TEST_CASE("the reason of a failure") {
  const auto failure = [](const Ended& ended, const std::string& log) {
    const Failure found = failure_of(ended, log);
    return to_string(found.status) + ": " + found.reason;
  };
  CHECK(failure({.code = 4}, "step 1\nlonghand: step 2: the loss is nan\n") ==
        "diverged: step 2: the loss is nan");
  CHECK(failure({.code = 3}, "longhand: cannot read a.h5\n") ==
        "failed: exit code 3: cannot read a.h5");
  CHECK(failure({.code = 1}, "") == "failed: exit code 1: no message");
  CHECK_THAT(failure({.code = 1, .peak_memory = 5 << 20}, "longhand: out of memory\n"),
             Contains("out of memory: ") && Contains("5 MiB"));
  CHECK_THAT(failure({.signal = SIGKILL, .out_of_memory = true}, ""),
             Contains("out of memory: killed by the kernel"));
  CHECK_THAT(failure({.signal = SIGKILL}, ""), Contains("crashed: killed by signal 9"));
  CHECK_THAT(failure({.signal = SIGABRT}, ""), Contains("crashed: ended by signal 6 (Abort"));
}
