#include "longhand/train/cost/efficiency.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;

namespace {

// Exact attention: 1e-9 N² seconds and 4 N bytes; linear attention: 1e-8 k N seconds.
std::vector<Cost> made_up_costs() {
  std::vector<Cost> out;
  for (const int64_t N : {128, 256, 512, 1024}) {
    const auto n = static_cast<double>(N);
    out.push_back({"softmax", 0, N, 1e-9 * n * n, 0, 0, 0.4e-9 * n * n, 4 * n});
    for (const int64_t k : {32, 64}) {
      const auto size = static_cast<double>(k);
      out.push_back(
          {"linformer", k, N, 1e-8 * size * n, 0, 0, 0.5e-8 * size * n, 4 * n + 8 * size});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("efficiency: exponents against length and size") {
  const auto by_length = slopes_of(made_up_costs(), &Cost::size, &Cost::length);
  REQUIRE(by_length.size() == 3);
  CHECK(by_length[0].attention == "softmax");
  CHECK(by_length[0].seconds.slope == Approx(2));
  CHECK(by_length[0].bytes.slope == Approx(1));
  CHECK(by_length[1].size == 32);
  CHECK(by_length[1].forward.slope == Approx(1));
  const auto by_size = slopes_of(made_up_costs(), &Cost::length, &Cost::size);
  REQUIRE(by_size.size() == 4);  // softmax has no size
  CHECK(by_size[3].size == 1024);
  CHECK(by_size[3].seconds.slope == Approx(1));
  CHECK(slopes_of({made_up_costs()[0]}, &Cost::size, &Cost::length).empty());
}

TEST_CASE("efficiency: crossovers") {
  const std::map<double, double> exact{{100, 1}, {200, 4}, {400, 16}};
  const auto of = [&](const std::map<double, double>& other) { return crossover(exact, other); };
  const Crossover at = of({{100, 2}, {200, 2}, {400, 2}});
  CHECK(at.kind == Crossover::Kind::at);
  CHECK(at.length == Approx(100 * std::sqrt(2)));  // 2 = (N / 100)²
  CHECK(to_text(at, "faster") == "faster from about 141 tokens");
  CHECK(of({{100, 0.5}, {200, 1}, {400, 1}}).kind == Crossover::Kind::always);
  CHECK(of({{100, 2}, {200, 5}, {400, 17}}).kind == Crossover::Kind::never);
  CHECK(of({{100, 2}, {200, 1}, {400, 17}}).kind == Crossover::Kind::never);  // it does not stay
  CHECK(of({{300, 1}}).kind == Crossover::Kind::unknown);
  CHECK(to_text(of({{300, 1}}), "faster").empty());
}
