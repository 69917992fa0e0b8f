#include "longhand/core/math.h"

#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "longhand/core/simd.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

struct Exp {
  template <class T>
  T operator()(T x) const {
    return math::exp(x);
  }
  static long double exact(long double x) { return std::exp(x); }
  static constexpr double low = -87.33, high = 88.72, low64 = -708.39, high64 = 709.78;
};
struct Log {
  template <class T>
  T operator()(T x) const {
    return math::log(x);
  }
  static long double exact(long double x) { return std::log(x); }
  static constexpr double low = 1e-45, high = 3.4e38, low64 = 4.95e-324, high64 = 1.7e308;
};
struct Tanh {
  template <class T>
  T operator()(T x) const {
    return math::tanh(x);
  }
  static long double exact(long double x) { return std::tanh(x); }
  static constexpr double low = -10, high = 10, low64 = -21, high64 = 21;
};
struct Erf {
  template <class T>
  T operator()(T x) const {
    return math::erf(x);
  }
  static long double exact(long double x) { return std::erf(x); }
  static constexpr double low = -4.5, high = 4.5, low64 = -7, high64 = 7;
};

struct Cos {
  template <class T>
  T operator()(T x) const {
    return math::cos_sin(x).cos;
  }
  static long double exact(long double x) { return std::cos(x); }
};
struct Sin {
  template <class T>
  T operator()(T x) const {
    return math::cos_sin(x).sin;
  }
  static long double exact(long double x) { return std::sin(x); }
};

struct NormalCdf {
  template <class T>
  T operator()(T x) const {
    return math::normal(x).cdf;
  }
  static long double exact(long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
  static constexpr double low = -13.1, high = 15, low64 = -37.5, high64 = 15;
};
struct NormalDensity {
  template <class T>
  T operator()(T x) const {
    return math::normal(x).density;
  }
  static long double exact(long double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L));
  }
  static constexpr double low = -13.1, high = 13.1, low64 = -37.5, high64 = 37.5;
};

template <class T, class F>
std::vector<T> applied(F f, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  simd([&] {
    for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  });
  return y;
}

// The error in units in the last place of the exact value.
template <class T>
double error_in_ulp(T got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / unit);
}

// Arguments spread evenly over [low, high], and over all magnitudes down to subnormal ones.
template <class T>
std::vector<T> sweep(double low, double high) {
  std::vector<T> x;
  for (int i = 0; i <= 400000; ++i) x.push_back(static_cast<T>(low + (high - low) * i / 400000));
  for (int e = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits; e < 3; ++e)
    for (int i = 0; i < 100; ++i)
      for (const double sign : {-1.0, 1.0})
        x.push_back(static_cast<T>(sign * std::ldexp(1 + i / 100.0, e)));
  std::erase_if(x, [&](T v) { return !(v >= static_cast<T>(low) && v <= static_cast<T>(high)); });
  return x;
}

template <class T, class F>
double worst_error(F f) {
  const bool f64 = sizeof(T) == 8;
  const std::vector<T> x = sweep<T>(f64 ? F::low64 : F::low, f64 ? F::high64 : F::high);
  const std::vector<T> y = applied(f, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = error_in_ulp(y[i], F::exact(static_cast<long double>(x[i])));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

template <class T, class F>
double worst_absolute_error(F f) {
  double worst = 0;
  for (const double range : {1.0, 100.0, 4194303.0}) {
    const std::vector<T> x = sweep<T>(-range, range), y = applied(f, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto error = static_cast<double>(std::abs(y[i] - F::exact(x[i])));
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

template <class F>
void check_all_sets_agree(F f) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 9973)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  std::vector<double> x64;
  for (uint64_t i = 0; i < 200000; ++i) x64.push_back(std::bit_cast<double>(i * 92233720368547));
  for (int i = -200000; i < 200000; ++i) x64.push_back(i * 0.0037);
  std::vector<float> y(x.size()), z(x.size());
  std::vector<double> y64(x64.size()), z64(x64.size());
  const auto into = [&](std::vector<float>& out, std::vector<double>& out64) {
    return [&, f] {
      for (size_t i = 0; i < x.size(); ++i) out[i] = f(x[i]);
      for (size_t i = 0; i < x64.size(); ++i) out64[i] = f(x64[i]);
    };
  };
  into(y, y64)();  // the baseline
  [[maybe_unused]] const auto check_set = [&](auto run, const char* name) {
    auto kernel = into(z, z64);
    run(kernel);
    INFO(name);
    int64_t differences = 0;
    for (size_t i = 0; i < x.size(); ++i)  // the sign and payload of NaN are unspecified
      differences += std::memcmp(&y[i], &z[i], 4) != 0 && !(y[i] != y[i] && z[i] != z[i]);
    for (size_t i = 0; i < x64.size(); ++i)
      differences +=
          std::memcmp(&y64[i], &z64[i], 8) != 0 && !(y64[i] != y64[i] && z64[i] != z64[i]);
    CHECK(differences == 0);
  };
#if defined(__x86_64__) && defined(__OPTIMIZE__)
  if (isa() >= Isa::avx2) check_set([](auto& k) { detail::run_avx2(k); }, "avx2");
  if (isa() >= Isa::avx512) check_set([](auto& k) { detail::run_avx512(k); }, "avx512");
#endif
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace

TEST_CASE("exp, tanh and erf are as accurate as documented") {
  CHECK(worst_error<float>(Exp()) <= 1.02);
  CHECK(worst_error<double>(Exp()) <= 1.01);
  CHECK(worst_error<float>(Tanh()) <= 2.63);
  CHECK(worst_error<double>(Tanh()) <= 2.6);
  CHECK(worst_error<float>(Erf()) <= 1.74);
  CHECK(worst_error<double>(Erf()) <= 2);
}

TEST_CASE("log is as accurate as documented, and has the limits of its range") {
  CHECK(worst_error<float>(Log()) <= 0.9);
  CHECK(worst_error<double>(Log()) <= 0.9);
  // All numbers of f32 around 1, where the logarithm has the most digits to lose.
  double worst = 0;
  for (float x = 0.69f; x < 1.45f; x = std::nextafter(x, inf))
    if (x != 1)
      worst = std::max(worst, error_in_ulp(math::log(x), std::log(static_cast<long double>(x))));
  CHECK(worst <= 0.9);
  const auto check_ends = []<class T>() {
    constexpr T most = std::numeric_limits<T>::infinity(),
                least = std::numeric_limits<T>::denorm_min(),
                nan = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> y =
        applied(Log(), std::vector<T>{1, 0, T{-0.0}, most, -1, -most, nan, least, 2, -least});
    CHECK(y[0] == 0);
    CHECK(y[1] == -most);
    CHECK(y[2] == -most);
    CHECK(y[3] == most);
    for (const size_t i : {4, 5, 6, 9}) CHECK(std::isnan(y[i]));
    CHECK(y[7] == std::log(least));
    CHECK(y[8] == std::numbers::ln2_v<T>);
  };
  check_ends.operator()<float>();
  check_ends.operator()<double>();
}

TEST_CASE("cos and sin are as accurate as documented") {
  CHECK(worst_absolute_error<float>(Cos()) <= 1.2e-7);
  CHECK(worst_absolute_error<double>(Cos()) <= 3e-16);
  CHECK(worst_absolute_error<float>(Sin()) <= 1.2e-7);
  CHECK(worst_absolute_error<double>(Sin()) <= 3e-16);
}

TEST_CASE("the normal distribution keeps its digits in the tails") {
  // In units of the last place, which are 1.2e-7 (2.2e-16) at most of a number.
  CHECK(worst_error<float>(NormalCdf()) <= 6);
  CHECK(worst_error<double>(NormalCdf()) <= 4000);
  CHECK(worst_error<float>(NormalDensity()) <= 3);
  CHECK(worst_error<double>(NormalDensity()) <= 3);
  const auto at = [](float x) { return applied(NormalCdf(), std::vector<float>{x})[0]; };
  CHECK(same_bits(at(-inf), 0));
  CHECK(same_bits(at(inf), 1));
  CHECK(same_bits(at(-3e38f), 0));
  CHECK(at(quiet_nan) != at(quiet_nan));
  CHECK(math::normal(-5.5).cdf == Approx(1.8989562465887718e-8).epsilon(1e-13));
  CHECK(at(-9) == Approx(1.1285884059538405e-19).epsilon(1e-6));
}

TEST_CASE("all instruction sets give the same bits") {
  check_all_sets_agree(Exp());
  check_all_sets_agree(Log());
  check_all_sets_agree(Tanh());
  check_all_sets_agree(Erf());
  check_all_sets_agree(Cos());
  check_all_sets_agree(Sin());
  check_all_sets_agree(NormalCdf());
  check_all_sets_agree(NormalDensity());
}

TEST_CASE("exp at the ends of its range") {
  const auto e = [](float x) { return applied(Exp(), std::vector<float>{x})[0]; };
  CHECK(same_bits(e(0), 1));
  CHECK(same_bits(e(-0.0f), 1));
  CHECK(same_bits(e(-inf), 0));
  CHECK(same_bits(e(-3e38f), 0));
  CHECK(same_bits(e(-88), 0));
  CHECK(same_bits(e(1e-45f), 1));
  CHECK(same_bits(e(-1e-38f), 1));
  CHECK(e(inf) == inf);
  CHECK(e(89) == inf);
  CHECK(e(3e38f) == inf);
  CHECK(std::isnan(e(quiet_nan)));
  // All numbers around the largest and the smallest results.
  float x = 88.7f, overflow = 0;
  for (; x < 88.75f; x = std::nextafter(x, inf)) {
    const double exact = std::exp(static_cast<double>(x));
    if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
      if (overflow == 0) overflow = x;
      CHECK(e(x) == inf);
    } else {
      CHECK(error_in_ulp(e(x), exact) <= 1.02);
    }
  }
  CHECK(overflow == 88.722839355f);
  for (x = -87.4f; x < -87.3f; x = std::nextafter(x, inf)) {
    const double exact = std::exp(static_cast<double>(x));
    const bool normal = exact >= static_cast<double>(std::numeric_limits<float>::min());
    CHECK(normal == (e(x) != 0));
    if (normal) CHECK(error_in_ulp(e(x), exact) <= 1.02);
  }
}

TEST_CASE("f64 exp at the ends of its range") {
  constexpr double inf64 = std::numeric_limits<double>::infinity();
  const auto e = [](double x) { return applied(Exp(), std::vector<double>{x})[0]; };
  CHECK(e(0) == 1);
  CHECK(e(-inf64) == 0);
  CHECK(e(-1e308) == 0);
  CHECK(e(-708.4) == 0);
  CHECK(e(-708.39) > 0);
  CHECK(e(inf64) == inf64);
  CHECK(e(709.79) == inf64);
  CHECK(e(1e308) == inf64);
  CHECK(std::isnan(e(std::numeric_limits<double>::quiet_NaN())));
  for (const double x : {709.782712893384, -708.3964185322641})
    CHECK(error_in_ulp(e(x), std::exp(static_cast<long double>(x))) <= 1.01);
}

TEST_CASE("tanh and erf are odd, bounded and keep the sign of zero") {
  const auto check_odd = [](auto f) {
    const std::vector<float> x = {0,     1e-45f, 1e-38f, 1e-10f, 0.5f, 0.99999994f, 1,  2.5f,
                                  3.95f, 9,      9.25f,  20,     100,  3e38f,       inf};
    std::vector<float> minus = x;
    for (float& v : minus) v = -v;
    const std::vector<float> y = applied(f, x), z = applied(f, minus);
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK(same_bits(y[i], -z[i]));
      CHECK(y[i] <= 1);
      if (x[i] >= 9.25f) CHECK(same_bits(y[i], 1));
    }
    CHECK(same_bits(y[0], 0));
    CHECK(std::isnan(applied(f, std::vector<float>{quiet_nan})[0]));
    CHECK(applied(f, std::vector<double>{-1e300})[0] == -1);
    CHECK(std::signbit(applied(f, std::vector<double>{-0.0})[0]));
    CHECK(std::isnan(applied(f, std::vector<double>{static_cast<double>(quiet_nan)})[0]));
  };
  check_odd(Tanh());
  check_odd(Erf());
  CHECK(same_bits(math::tanh(1e-45f), 1e-45f));
}
