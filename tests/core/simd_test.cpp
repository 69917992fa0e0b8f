#include "longhand/core/simd.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("instruction sets have names") {
  CHECK(name_of(Isa::baseline) == "baseline");
  CHECK(name_of(Isa::avx2) == "avx2");
  CHECK(name_of(Isa::avx512) == "avx512");
}

TEST_CASE("simd runs the loop, once") {
  std::vector<float> x(1001, 2), y(1001);
  int calls = 0;
  simd([&] {
    ++calls;
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * 3;
  });
  CHECK(calls == 1);
  CHECK(y == std::vector<float>(1001, 6));
}

// Run by the test below in a process of its own: the choice is made once.
TEST_CASE("the instruction set is the expected one", "[.expected-isa]") {
  const char* const expected = std::getenv("EXPECTED_ISA");
  REQUIRE(expected != nullptr);
  CHECK(name_of(isa()) == expected);
}

TEST_CASE("LONGHAND_ISA lowers the instruction set, and never raises it") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto gives = [&](const std::string& wanted, const std::string& expected) {
    const std::string command = "LONGHAND_ISA=" + wanted + " EXPECTED_ISA=" + expected + " '" +
                                self + "' '[.expected-isa]' > /dev/null";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  CHECK(gives("baseline", "baseline"));
  CHECK_FALSE(gives("baseline", "avx2"));
  if (std::getenv("LONGHAND_ISA")) return;  // this process does not know what the machine has
  const std::string best(name_of(isa()));
  CHECK(gives("avx2", best == "baseline" ? "baseline" : "avx2"));
  CHECK(gives("avx512", best));
  CHECK(gives("nonsense", best));
}
