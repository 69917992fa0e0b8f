#include "longhand/attention/bases/scan_attention.h"

#include <cmath>

#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/decoding/state_decoder.h"
#include "longhand/attention/mask.h"

namespace longhand::attention {
ScanAttention::ScanAttention(const nn::Scope& scope_, const Config& config,
                             const ScanOutput& output)
    : Variant(scope_, config), output_(output) {
  const int64_t D = config.head_dim, width = config.heads * D;
  if (output.gate) gate_.emplace(scope("gate"), width, width, false);
  if (output.norm && output.weight)
    weight_.emplace(scope("norm"), Shape{output.norm_last ? width : D}, nn::init::ones());
}

// The scan, and in memory the operands and the operations after the sums.
Work ScanAttention::work(int64_t queries, int64_t keys) const {
  const auto [N, M, H, D, bytes] = sizes(queries, keys);
  const double width = H * D, gate = gate_ ? 1 : 0,
               numbers = N * width * (1 + 3 * gate + (output_.norm ? 1 : 0));
  const Work::Counts all{N * (token_.flops + gate * 2 * width * width),
                         N * (token_.exponentials + gate * width)};
  return H * sums_work(N, D, bytes) + Work{all, {2 * all.flops, all.exponentials}, numbers * bytes};
}

Work ScanAttention::sums_work(double tokens, double dim, double bytes) const {
  return scan_work(tokens, dim, dim, bytes);
}

ScanInputs ScanAttention::padded_operands(const Inputs& in, const Tensor& lengths) const {
  ScanInputs of = operands(in);
  of.log_decay = without_decay_of_padding(of.log_decay, lengths);
  return of;
}

Variable ScanAttention::attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) {
  const ScanInputs of =
      padded_operands(in, lengths_from(mask.lengths, pass.tokens.first, in.q.size(1)));
  const ScanOptions options{.normalizer = false, .final_state = false, .join = pass.join};
  return finished(scan(of, nullptr, options).out, in);
}

Variable ScanAttention::direct(const Inputs& in) const {
  const double root = std::sqrt(static_cast<double>(in.v.size(3)));
  return skip_ ? in.v * unsqueeze(*skip_ * root, 1) : Variable();
}

Variable ScanAttention::finished(const Variable& sums, const Inputs& in) const {
  Variable y = sums;
  if (const Variable added = direct(in); added.defined()) y = y + added;
  Shape rows = sums.shape();  // rows of the norm
  if (output_.norm_last) rows = {rows[0], rows[1], rows[2] * rows[3]};
  // The norm of y / sqrt(D) equals that of y with another eps.
  const auto D = static_cast<double>(sums.size(3));
  GatedOptions options{.norm_last = output_.norm_last};
  if (output_.norm)
    options.norm = {
        .weight = weight_ ? Variable(*weight_) : Variable(), .eps = 1e-5 * D, .centred = false};
  else
    y = y / std::sqrt(D);
  const Variable logits = gate_ ? reshape(gate_->forward(in.x), rows) : Variable();
  return reshape(gated(reshape(y, rows), logits, options), sums.shape());
}

std::unique_ptr<Decoder> ScanAttention::make_decoder(int64_t batch) const {
  const auto step = [this](const Token& token, int64_t) {
    const ScanInputs of = operands(sequences_of(token));
    const auto row = [](const Variable& x) { return x.value().squeeze(1); };
    return StepInputs{row(of.q), row(of.k), row(of.v), row(of.log_decay)};
  };
  const auto finish = [this](const Tensor& sums, const Token& token) {
    return finished(Variable(sums.unsqueeze(1)), sequences_of(token)).value().squeeze(1);
  };
  return make_state_decoder(batch, config(), step, Normalizer::none, {}, finish);
}

}  // namespace longhand::attention
