// A task for a model of few parameters, and a model with every kind of state, for tests of training.
#pragma once

#include <algorithm>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/data/dataset.h"
#include "longhand/nn/module.h"
#include "longhand/train/step/metrics.h"

namespace longhand::test {

inline constexpr int64_t vocabulary = 8, classes = 3;

inline Tensor normal(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, Generator(seed));
  return t;
}

/// Sequences of 1 to 6 random tokens. Targets: the first token modulo 3, or, per token, each token
/// modulo 3 with every fourth one ignored.
class ToyDataset : public data::Dataset {
 public:
  ToyDataset(int64_t size, bool per_token, uint64_t seed)
      : size_(size), per_token_(per_token), random_(seed) {}

  int64_t size() const override { return size_; }
  int64_t length(int64_t index) const override {
    return 1 + static_cast<int64_t>(random_.fork("length").bits(index) % 6);
  }

  data::Batch collate(std::span<const int64_t> indices) const override {
    const int64_t B = std::ssize(indices);
    int64_t N = 0;
    for (const int64_t i : indices) N = std::max(N, length(i));
    std::vector<int32_t> tokens(B * N, 0), lengths(B), first(B);
    std::vector<int32_t> each(B * N, data::ignore_index);
    for (int64_t b = 0; b < B; ++b) {
      lengths[b] = static_cast<int32_t>(length(indices[b]));
      for (int64_t n = 0; n < lengths[b]; ++n) {
        const auto token =
            static_cast<int32_t>(random_.fork("token").fork(indices[b]).bits(n) % vocabulary);
        tokens[b * N + n] = token;
        if (n % 4 != 3) each[b * N + n] = token % classes;
      }
      first[b] = static_cast<int32_t>(tokens[b * N] % classes);
    }
    return {Tensor::from(tokens, {B, N}),
            per_token_ ? Tensor::from(each, {B, N}) : Tensor::from(first, {B}),
            Tensor::from(lengths, {B})};
  }

 private:
  int64_t size_;
  bool per_token_;
  Generator random_;
};

inline data::Task toy_task(bool per_token, int64_t size = 50) {
  data::Task task;
  task.info = {.name = "toy",
               .vocabulary = vocabulary,
               .classes = classes,
               .per_token = per_token,
               .max_length = 6};
  task.train = std::make_unique<ToyDataset>(size, per_token, 1);
  task.validation = std::make_unique<ToyDataset>(23, per_token, 2);
  return task;
}

/// Two layers with dropout between them, and random numbers that are redrawn every third step, like
/// those of Performer.
class ToyModel : public nn::Module {
 public:
  ToyModel(DType dtype, bool per_token, double dropout = 0.2)
      : Module(nn::root(dtype, 5)), per_token_(per_token), dropout_(dropout) {}

  Variable forward(const data::Batch& batch, const nn::Pass& pass) {
    Variable x = embedding(table_, per_token_ ? batch.tokens : batch.tokens.select(1, 0));
    x = tanh(x + Variable(noise_.value()));
    if (pass.training) x = longhand::dropout(x, dropout_, pass.random.fork("dropout"));
    return linear(x, weight_, bias_);
  }

 private:
  void on_step() override {
    int64_t& steps = *steps_.mutable_value().data<int64_t>();
    if (++steps % 3 == 0) fill_normal(noise_.mutable_value(), init_random().fork(steps), 0, 0.1);
  }

  static void normal(Tensor& t, const Generator& random) { fill_normal(t, random, 0, 0.5); }

  bool per_token_;
  double dropout_;
  nn::Parameter table_{scope("table"), {vocabulary, 16}, normal};
  nn::Parameter weight_{scope("weight"), {classes, 16}, normal};
  nn::Parameter bias_{scope("bias"), {classes}, normal};
  nn::Buffer noise_{scope("noise"), Tensor::zeros({16}, parameter_dtype())};
  nn::Buffer steps_{scope("steps"), Tensor::zeros({}, DType::i64)};
};

inline train::LogitsFn logits_of(ToyModel& model) {
  return [&model](const data::Batch& batch, const nn::Pass& pass) {
    return train::Prediction{model.forward(batch, pass), batch.targets};
  };
}

}  // namespace longhand::test
