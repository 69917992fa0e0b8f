// Checks that the variants whose state decays share: their scan, as a recurrence and as weights, and
// f32 over long sequences.
#pragma once

#include "longhand/attention/bases/scan_attention.h"
#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"
#include "tests/attention/recurrence.h"

namespace longhand::test {

/// Inputs (B, N, H, D) of a scan variant whose tokens x are (B, N, H D).
struct ScanCase {
  Tensor q, k, v, x;
  ScanCase(int64_t B, int64_t N, int64_t H, int64_t D, DType dtype = DType::f64)
      : q(normal({B, N, H, D}, 1, dtype)),
        k(normal({B, N, H, D}, 2, dtype)),
        v(normal({B, N, H, D}, 3, dtype)),
        x(normal({B, N, H * D}, 4, dtype, 1)) {}
  attention::Inputs inputs() const { return {Variable(q), Variable(k), Variable(v), Variable(x)}; }
};

/// Checks a variant of 2 heads of width 4, without norm and gate, for several lengths: the result in
/// blocks, as a recurrence and as weights are the same, with what is added to the sums; a padded
/// sample gives what it gives alone, with all gradients of its parameters.
inline void check_scan_forms(attention::Variant& variant) {
  const auto& scanning = dynamic_cast<attention::ScanAttention&>(variant);
  for (const int64_t N : {1, 7, 48, 65, 140}) {
    INFO("N " << N);
    const ScanCase c(2, N, 2, 4);
    const attention::ScanInputs of = scanning.operands(c.inputs());
    const Variable added = scanning.direct(c.inputs());
    const auto with = [&](const Tensor& sums) {
      const Variable y(sums);
      return ((added.defined() ? y + added : y) / 2).value();  // sqrt(D) = 2
    };
    const Tensor blocks = variant.forward(c.inputs(), {}, {}).value();
    CHECK(near(blocks,
               with(recurrent(of.q.value(), of.k.value(), of.v.value(), of.log_decay.value(),
                              nullptr, false)
                        .out),
               1e-12));
    const Variable weights = attention::definitions::retention(of.q, of.k, of.log_decay);
    CHECK(near(blocks, with(attention::definitions::apply(weights, of.v).value()), 1e-12));
    const auto n = static_cast<int32_t>(N / 2 + 1);
    const Tensor padded =
        variant.forward(c.inputs(), lengths({static_cast<int32_t>(N), n}), {}).value();
    CHECK(near(one(padded, 1, n), one(blocks, 1, n), 1e-13));
    CHECK(all_zero(padded.slice(0, 1, 2).slice(1, n, N)));
  }
}

/// The relative errors (of norms) of f32 against f64 over 65,536 tokens: of the result, and the
/// largest of those of the gradients of q, k, v, x and the parameters, relative to the norm of the
/// gradient or to the largest of q, k and v, if that is larger. Where decays are near 0 so are their
/// gradients, as differences of numbers of the size of q·dq.
struct LongErrors {
  double result, gradients;
};
struct Norms {
  double error, size;
};
inline Norms norms_of(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]), size += y[i] * y[i];
  return {std::sqrt(error), std::sqrt(size)};
}
inline LongErrors long_errors(attention::Variant& narrow, attention::Variant& wide, int64_t H,
                              int64_t D) {
  wide.load_state_dict(narrow.state_dict());
  const ScanCase c(1, 65536, H, D, DType::f32);
  const Tensor cotangent = normal(c.q.shape(), 5, DType::f32, 1);
  const auto run = [&](attention::Variant& variant, DType dtype) {
    std::vector<Variable> in;
    for (const Tensor& t : {c.q, c.k, c.v, c.x}) in.emplace_back(t.to(dtype), true);
    variant.zero_grad();
    const Variable out = variant.forward({in[0], in[1], in[2], in[3]}, {}, {});
    backward(out, cotangent.to(dtype));
    std::vector<Tensor> results{out.value()};
    for (const Variable& t : in)
      if (t.grad().defined()) results.push_back(t.grad());
    for (const auto& [name, parameter] : variant.named_parameters())
      results.push_back(parameter.grad().clone());
    return results;
  };
  const auto lo = run(narrow, DType::f32), hi = run(wide, DType::f64);
  const Norms of_result = norms_of(lo[0], hi[0]);
  LongErrors errors{of_result.error / of_result.size, 0};
  double largest = 0;
  for (size_t i = 1; i <= 3; ++i) largest = std::max(largest, norms_of(lo[i], hi[i]).size);
  for (size_t i = 1; i < lo.size(); ++i) {
    const Norms of = norms_of(lo[i], hi[i]);
    errors.gradients = std::max(errors.gradients, of.error / std::max(of.size, largest));
  }
  return errors;
}

/// Checks that decoding gives the rows of the whole sequence, with groups of key heads.
inline void check_decoding(const std::string& name, const Options& options) {
  const DType dtype = GENERATE(DType::f64, DType::f32);
  const int64_t B = 2, N = 140, H = 4, G = 2, D = 4;
  const auto variant = make_variant(
      name, {.heads = H, .max_length = N, .kv_heads = G, .causal = true, .dtype = dtype}, options);
  const Tensor q = normal({B, N, H, D}, 1, dtype), k = normal({B, N, G, D}, 2, dtype),
               v = normal({B, N, G, D}, 3, dtype), x = normal({B, N, H * D}, 4, dtype);
  const Tensor expected =
      variant->forward({Variable(q), Variable(k), Variable(v), Variable(x)}, {}, {}).value();
  const auto decoder = variant->decoder(B);
  Tensor out = Tensor::empty(q.shape(), dtype);
  for (int64_t t = 0; t < N; ++t)
    copy_into(out.select(1, t),
              decoder->step({q.select(1, t), k.select(1, t), v.select(1, t), x.select(1, t)}));
  CHECK(near(out, expected, dtype == DType::f64 ? 1e-11 : 1e-4));
  CHECK(decoder->bytes() == B * H * D * D * 8);
}

}  // namespace longhand::test
