#include "longhand/train/cost/sequence_traffic.h"

#include <algorithm>

#include "longhand/attention/model/transformer.h"
#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"
#include "longhand/core/measure/clock.h"
#include "longhand/train/ranks/grid.h"

namespace longhand::train {
namespace {

Tensor random_integers(int64_t length, int64_t bound, const Generator& generator) {
  RandomStream random(generator);
  Tensor out = Tensor::empty({1, length}, DType::i32);
  for (int64_t i = 0; i < length; ++i)
    out.data<int32_t>()[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(bound)));
  return out;
}

}  // namespace

SequenceTraffic measure_sequence_traffic(Communicator& ranks,
                                         const attention::TransformerConfig& config) {
  const Generator random(1);
  const int64_t N = config.max_length;
  attention::Transformer model(nn::root(), config);
  const auto part = attention::SequencePart::of(ranks, N);
  const nn::Pass pass = attention::over_part(nn::Pass::train(random), part);
  const data::Batch batch =
      part_of({random_integers(N, config.vocabulary, random.fork("tokens")),
               random_integers(N, config.classes, random.fork("targets")), Tensor()},
              *part);
  const attention::Variant& kernel = model.kernel(0);
  SequenceTraffic out;
  out.path = attention::name_of(attention::sequence_path(kernel, ranks.size()));
  for (int repetition = 0; repetition < 3; ++repetition) {
    model.zero_grad();
    ranks.barrier();
    const Traffic before = ranks.traffic();
    const double begin = clock_seconds();
    backward(cross_entropy(model.forward(batch.tokens, {}, pass), batch.targets, {}));
    const double seconds = clock_seconds() - begin;
    out.seconds = repetition == 0 ? seconds : std::min(out.seconds, seconds);
    out.bytes =
        static_cast<double>((ranks.traffic() - before).bytes) / static_cast<double>(config.layers);
  }
  return out;
}

}  // namespace longhand::train
