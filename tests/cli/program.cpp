#include "tests/cli/program.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/support/catch.h"

namespace longhand::test {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::filesystem::path fresh_name() {
  static std::atomic<int> number{0};
  return std::filesystem::temp_directory_path() /
         ("longhand-cli-" + std::to_string(getpid()) + "-" + std::to_string(++number));
}

int open_to_write(const std::filesystem::path& path) {
  return open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const std::filesystem::path& where,
                 const std::map<std::string, std::string>& environment, bool terminal)
    : Program(LONGHAND_PROGRAM, arguments, where, environment, terminal) {}

Program::Program(const std::string& program, const std::vector<std::string>& arguments,
                 const std::filesystem::path& where,
                 const std::map<std::string, std::string>& environment, bool terminal)
    : out_(fresh_name()), err_(fresh_name()) {
  // Everything that allocates comes before the fork.
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  std::map<std::string, std::string> variables = environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    // Ignores the settings of the environment, except the instruction set.
    const std::string name = text.substr(0, equals);
    if (equals != std::string::npos && (name == "LONGHAND_ISA" || !name.starts_with("LONGHAND_")))
      variables.emplace(name, text.substr(equals + 1));
  }
  std::vector<std::string> settings;
  for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (std::string& setting : settings) envp.push_back(setting.data());
  envp.push_back(nullptr);

  const int out = open_to_write(out_);
  int err = open_to_write(err_);
  REQUIRE((out >= 0 && err >= 0));
  if (terminal) {
    winsize size{24, 100, 0, 0};
    close(err);
    REQUIRE(openpty(&terminal_, &err, nullptr, nullptr, &size) == 0);
  }
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    if (chdir(where.c_str()) != 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
      _exit(126);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out);
  close(err);
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (terminal_ >= 0) close(terminal_);
  std::filesystem::remove(out_);
  std::filesystem::remove(err_);
}

void Program::send(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

bool Program::over() {
  if (pid_ > 0 && wait4(pid_, &status_, WNOHANG, &usage_) == pid_) pid_ = -1;
  return pid_ < 0;
}

Outcome Program::wait() {
  if (terminal_ >= 0) {
    // A terminal that is not read would block the writer. Reading fails at the end.
    char buffer[4096];
    for (ssize_t n = 0; (n = read(terminal_, buffer, sizeof buffer)) > 0;)
      shown_.append(buffer, static_cast<size_t>(n));
  }
  if (pid_ > 0) {
    pid_t ended = 0;
    do ended = wait4(pid_, &status_, 0, &usage_);
    while (ended < 0 && errno == EINTR);
    pid_ = -1;
  }
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {code, contents(out_), terminal_ >= 0 ? shown_ : contents(err_),
          int64_t{usage_.ru_maxrss} * 1024};
}

Outcome run(const std::vector<std::string>& arguments, const std::filesystem::path& where,
            const std::map<std::string, std::string>& environment) {
  return Program(arguments, where, environment).wait();
}

Outcome succeed(const std::vector<std::string>& arguments, const std::filesystem::path& where,
                const std::map<std::string, std::string>& environment) {
  const Outcome outcome = run(arguments, where, environment);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome;
}

Outcome shell(const std::string& script, const std::filesystem::path& where) {
  return Program("/bin/sh", {"-c", script}, where, {{"longhand", LONGHAND_PROGRAM}}, false).wait();
}

}  // namespace longhand::test
