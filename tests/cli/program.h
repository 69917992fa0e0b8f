// The program as a process: starting, signalling, waiting, and its output.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace longhand::test {

/// Refusing a file must take less memory, in resident bytes. The sanitizers take more, and keep freed memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t memory_to_refuse = int64_t{600} << 20;
#else
inline constexpr int64_t memory_to_refuse = int64_t{200} << 20;
#endif

struct Outcome {
  int code = -1;  // exit code, or 128 + the signal that ended it
  std::string out, err;
  int64_t peak_memory = 0;  // resident bytes, as the system counted them
};

/// A running `longhand`.
class Program {
 public:
  /// In folder `where`, with variables added to the environment. With `terminal`, stderr is one.
  Program(const std::vector<std::string>& arguments, const std::filesystem::path& where,
          const std::map<std::string, std::string>& environment = {}, bool terminal = false);
  /// Starts another program.
  Program(const std::string& program, const std::vector<std::string>& arguments,
          const std::filesystem::path& where, const std::map<std::string, std::string>& environment,
          bool terminal);
  /// Kills it if it still runs.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal);
  /// Whether it has ended.
  bool over();
  Outcome wait();

 private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  rusage usage_{};
  int terminal_ = -1;
  std::string shown_;  // output on the terminal
};

/// Runs the program to its end.
Outcome run(const std::vector<std::string>& arguments, const std::filesystem::path& where,
            const std::map<std::string, std::string>& environment = {});

/// The same, and requires exit code 0.
Outcome succeed(const std::vector<std::string>& arguments, const std::filesystem::path& where,
                const std::map<std::string, std::string>& environment = {});

/// Runs a script of sh, in which $longhand is the program.
Outcome shell(const std::string& script, const std::filesystem::path& where);

/// Waits up to a minute for `done` to hold; false if it never does.
template <class F>
bool eventually(F&& done) {
  using namespace std::chrono_literals;
  for (const auto end = std::chrono::steady_clock::now() + 60s;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms))
    if (done()) return true;
  return false;
}

}  // namespace longhand::test
