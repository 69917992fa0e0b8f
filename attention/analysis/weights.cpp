#include "longhand/attention/analysis/weights.h"

#include <algorithm>
#include <cmath>

#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"

namespace longhand::attention::analysis {

Variable differentiable_weights(Variant& variant, const Inputs& inputs, const Mask& mask,
                                const nn::Pass& pass) {
  check<ConfigError>(variant.capabilities().linear,
                     "weights: this variant has none: its result is not linear in v, or the "
                     "weights of a token differ between channels");
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v, &x = inputs.x;
  const int64_t M = v.size(1), D = v.size(3);
  Variables columns;
  for (int64_t first = 0; first < M; first += D) {
    const int64_t count = std::min(D, M - first);
    Tensor units = Tensor::zeros(v.shape(), v.dtype());
    for (int64_t d = 0; d < count; ++d) units.select(1, first + d).select(2, d).fill(1);
    const Variable out = variant.forward({q, k, Variable(units), x}, mask, pass);
    columns.push_back(slice(transpose(out, 1, 2), 3, 0, count));
  }
  return concat(columns, 3);
}

Tensor weights(Variant& variant, const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const NoGrad no_grad;
  return differentiable_weights(variant, inputs, mask, pass).value().to(DType::f64).contiguous();
}

MapShape map_shape(const Tensor& map) {
  const int64_t N = map.size(0), M = map.size(1);
  const auto w = map.to_vector<double>();
  MapShape shape;
  int64_t rows = 0, negative = 0;
  for (int64_t i = 0; i < N; ++i) {
    const double* const row = w.data() + i * M;
    double sum = 0, size = 0, distance = 0, entropy = 0, largest = 0;
    for (int64_t j = 0; j < M; ++j) {
      sum += row[j];
      size += std::abs(row[j]);
      distance += std::abs(row[j]) * static_cast<double>(std::abs(i - j));
      negative += row[j] < 0;
    }
    if (sum == 0) continue;
    for (int64_t j = 0; j < M; ++j) {
      const double p = row[j] / sum;
      if (p > 0) entropy -= p * std::log(p);
      largest = std::max(largest, p);
    }
    ++rows;
    shape.entropy += entropy;
    shape.effective_keys += std::exp(entropy);
    shape.largest += largest;
    shape.self += i < M ? row[i] / sum : 0;
    shape.first += row[0] / sum;
    shape.distance += distance / size;
  }
  for (double* const each : {&shape.entropy, &shape.effective_keys, &shape.largest, &shape.self,
                             &shape.first, &shape.distance})
    *each /= static_cast<double>(std::max<int64_t>(1, rows));
  shape.negative = static_cast<double>(negative) / static_cast<double>(std::max<int64_t>(1, N * M));
  return shape;
}

Tensor pooled_map(const Tensor& map, int64_t size) {
  const int64_t N = map.size(0), M = map.size(1);
  const int64_t rows = std::min(N, size), columns = std::min(M, size);
  const auto w = map.to_vector<double>();
  Tensor out = Tensor::zeros({rows, columns}, DType::f64);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i0 = r * N / rows, i1 = (r + 1) * N / rows;
      const int64_t j0 = c * M / columns, j1 = (c + 1) * M / columns;
      double sum = 0;
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) sum += w[i * M + j];
      out.data<double>()[r * columns + c] = sum / static_cast<double>((i1 - i0) * (j1 - j0));
    }
  return out;
}

}  // namespace longhand::attention::analysis
