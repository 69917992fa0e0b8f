// One variant, evaluated by several threads at the same time.
#include <array>
#include <thread>

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("variants: threads evaluate one model at the same time") {
  for (const std::string& name : library) DYNAMIC_SECTION(name) {
      const auto variant =
          make_variant(name, {.causal = attention::capabilities(name).causal_only});
      const auto out = [&](int64_t N) {
        const Shape shape{1, N, 2, 4};
        return attention::conformance::forward(*variant, normal(shape, 1), normal(shape, 2),
                                               normal(shape, 3));
      };
      // Several lengths: data cached for one must not be freed while another thread uses it.
      const std::array<int64_t, 4> lengths{16, 9, 13, 5};
      std::vector<Tensor> expected;
      for (const int64_t N : lengths) expected.push_back(out(N));
      std::array<int, 4> wrong{};
      std::vector<std::thread> threads;
      for (size_t t = 0; t < lengths.size(); ++t)
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < 200; ++i) {
            const size_t at = (t + i) % lengths.size();
            wrong[t] += !identical(out(lengths[at]), expected[at]);
            variant->metrics();
          }
        });
      for (std::thread& thread : threads) thread.join();
      CHECK(wrong == std::array<int, 4>{});
    }
}

// Passes store data: R for the latest length and dtype, A and Z of the latest pass.
TEST_CASE("variants: what one thread keeps is not torn by another") {
  for (const char* const name : {"random", "nystrom", "svd"}) DYNAMIC_SECTION(name) {
      const auto variant = make_variant(name);
      const auto out = [&](DType dtype) {
        const NoGrad no_grad;
        const Shape shape{1, 6, 2, 4};
        return variant
            ->forward(Variable(normal(shape, 1, dtype)), Variable(normal(shape, 2, dtype)),
                      Variable(normal(shape, 3, dtype)), {}, {})
            .value();
      };
      const std::array<DType, 2> dtypes{DType::f32, DType::f64};
      const std::array<Tensor, 2> expected{out(dtypes[0]), out(dtypes[1])};
      std::array<int, 4> wrong{};
      std::vector<std::thread> threads;
      for (size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < 1500; ++i) try {
              const size_t at = (t + i) % 2;
              wrong[t] += !identical(out(dtypes[at]), expected[at]);
              variant->metrics();
            } catch (const Error&) {  // shapes or dtypes that do not match
              ++wrong[t];
            }
        });
      for (std::thread& thread : threads) thread.join();
      CHECK(wrong == std::array<int, 4>{});
    }
}
