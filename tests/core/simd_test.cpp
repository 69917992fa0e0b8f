#include "longhand/core/simd.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "longhand/core/error.h"
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

TEST_CASE("LONGHAND_ISA restricts the instruction set") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto gives = [&](const std::string& requested, const std::string& expected) {
    const std::string command = "LONGHAND_ISA=" + requested + " EXPECTED_ISA=" + expected + " '" +
                                self + "' '[.expected-isa]' > /dev/null";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  for (const Isa set : all_isas) {
    const std::string name(name_of(set));
    INFO(name);
    CHECK(gives(name, name) == (set <= machine_isa()));
  }
  CHECK_FALSE(gives("baseline", "avx2"));
  CHECK(gives("", std::string(name_of(machine_isa()))));
  CHECK_FALSE(gives("nonsense", std::string(name_of(machine_isa()))));
}

TEST_CASE("a LONGHAND_ISA that cannot be had is an error") {
  CHECK(select_isa("", Isa::avx512) == Isa::avx512);
  CHECK(select_isa("avx2", Isa::avx512) == Isa::avx2);
  CHECK(select_isa("baseline", Isa::baseline) == Isa::baseline);
  CHECK_THROWS_WITH(select_isa("avx512", Isa::avx2),
                    "LONGHAND_ISA: this CPU does not support avx512; expected at most avx2");
  CHECK_THROWS_WITH(select_isa("sse9", Isa::avx2),
                    "LONGHAND_ISA: expected baseline, avx2 or avx512, got \"sse9\"");
  CHECK_THROWS_AS(select_isa("AVX2", Isa::avx2), ConfigError);
}
