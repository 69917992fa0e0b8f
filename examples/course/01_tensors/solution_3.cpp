// Exercise 3: Kahan's sum carries what each addition has lost over to the next one.
#include <cmath>
#include <cstdint>
#include <iostream>

float kahan(int64_t n, float term) {
  float sum = 0, lost = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float next = term - lost;
    const float total = sum + next;
    lost = (total - sum) - next;  // 0 in exact arithmetic
    sum = total;
  }
  return sum;
}

int main() {
  bool right = true;
  for (int64_t n = 1 << 8; n <= 1 << 24; n *= 4) {
    const double error = std::abs(kahan(n, 0.1f) / (static_cast<double>(n) * 0.1f) - 1);
    right = right && error <= 0x1p-23;  // two roundings, however many terms
  }
  std::cout << (right ? "every sum is off by at most 2^-23\n" : "a sum is off by more\n");
  return right ? 0 : 1;
}
