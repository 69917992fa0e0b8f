// Exercise 2: forward mode. A dual number carries its value and one derivative along.
#include <cmath>
#include <iostream>

struct Dual {
  double value, slope;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator*(Dual a, Dual b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
Dual operator/(Dual a, Dual b) {
  const double y = a.value / b.value;
  return {y, (a.slope - y * b.slope) / b.value};
}
Dual exp(Dual a) { return {std::exp(a.value), std::exp(a.value) * a.slope}; }

int main() {
  const double at[] = {0.5, 1, -2, 3, -1};                              // q, k1, k2, v1, v2
  const double expected[] = {1.7898, 0.2983, -0.2983, 0.8176, 0.1824};  // of the chapter's program
  bool right = true;
  for (int i = 0; i < 5;
       ++i) {  // one pass for each input: forward mode has one direction at a time
    Dual x[5];
    for (int j = 0; j < 5; ++j) x[j] = {at[j], i == j ? 1.0 : 0.0};
    const auto [q, k1, k2, v1, v2] = x;
    const Dual w1 = exp(q * k1), w2 = exp(q * k2);
    const Dual o = (w1 * v1 + w2 * v2) / (w1 + w2);
    right = right && std::abs(o.slope - expected[i]) < 5e-5;
  }
  std::cout << (right ? "five forward passes agree with one backward pass\n" : "they differ\n");
  return right ? 0 : 1;
}
