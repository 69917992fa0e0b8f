// Chapter 12: ranks that divide the examples of a batch, with the same bits, and ranks that divide its sequences.
#include <cstdio>
#include <numeric>
#include <span>

#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/trainer.h"
#include "threads.h"

using namespace longhand;

double sum_of(std::span<const double> x, bool by_tree) {
  if (!by_tree || x.size() == 1) return std::accumulate(x.begin(), x.end(), 0.0);
  return sum_of(x.first(x.size() / 2), true) + sum_of(x.last(x.size() / 2), true);
}

// Adds up 8 shards on P ranks, 1,000 times: each rank its own, and then the sums of the ranks.
void sums() {
  std::puts("ranks  in order  by a tree");
  for (const size_t P : {1, 2, 4, 8}) {
    int different[2] = {};
    for (uint64_t i = 0; i < 1000; ++i)
      for (const bool by_tree : {false, true}) {
        double x[8], own[8];
        for (uint64_t s = 0; s < 8; ++s) x[s] = Generator(12).uniform(8 * i + s);
        for (size_t r = 0; r < P; ++r) own[r] = sum_of({x + r * 8 / P, 8 / P}, by_tree);
        different[by_tree] += sum_of({own, P}, by_tree) != sum_of(x, by_tree);
      }
    std::printf("%-5zu  %8d  %9d\n", P, different[0], different[1]);
  }
}

// Trains a model for five steps on P ranks.
void train_together() {
  const char* const text = R"(
    data = { task = "mqar", length = 32, pairs = 4, vocabulary = 64 }
    model = { d_model = 32, heads = 4 }
    attention = { type = "performer" }
    train = { steps = 5, batch_size = 32, shards = 8, eval_batches = 1 })";
  std::puts("\nranks  examples of each  same bits");
  std::string expected;
  for (const int P : {1, 2, 4})
    run_ranks(P, [&](Communicator& ranks) {
      train::Experiment run(train::Config::parse(text, "chapter 12"));
      data::Loader loader = run.loader();
      const train::RankGrid grid(ranks, /*sequence_ranks=*/1, run.options.step.shards);
      train::Trainer trainer(run.model, train::logits_of(run.model), *run.optimizer, run.schedule,
                             loader, run.task, run.options);
      trainer.join(grid), trainer.run();
      if (ranks.rank() > 0) return;
      const std::string hash = train::hash_of(run.optimizer->parameters());
      if (P == 1) expected = hash;
      std::printf("%-5d  %16d  %s\n", P, 32 / P, hash == expected ? "yes" : "no");
    });
}

// Attention to N tokens, forward and backward, on P ranks: the bytes that rank 0 sends, and the result.
std::pair<int64_t, Variable> attend(const std::string& name, int64_t heads, int64_t N, int P) {
  attention::Config config{.heads = heads, .head_dim = 32 / heads, .max_length = N};
  if (name == "nystrom") config.options.set("landmarks", int64_t{16});
  if (name == "window") config.options.set("window", int64_t{16});
  int64_t bytes = 0;
  Variables results{size_t(P), Variable(Tensor::zeros({1}))};
  run_ranks(P, [&](Communicator& ranks) {
    const auto variant = attention::make(name, nn::root(DType::f64), config);
    const auto part = attention::SequencePart::of(ranks, N);
    Variables x;
    for (uint64_t a = 0; a < 3; ++a) {
      Tensor whole = Tensor::empty({1, N, config.heads, config.head_dim}, DType::f64);
      fill_normal(whole, Generator(a));
      x.push_back(attention::tokens_of_part(Variable(whole, /*requires_grad=*/true), *part));
    }
    const nn::Pass pass = attention::over_part(nn::Pass::train(Generator(1)), part);
    const Variable y = variant->forward(x[0], x[1], x[2], {}, pass);
    backward(sum(square(y)));
    results[size_t(ranks.rank())] = Variable(y.value());
    if (ranks.rank() == 0) bytes = ranks.traffic().bytes;
  });
  return {bytes, concat(results, 1)};
}

int main() {
  sums(), train_together();
  bool agree = true;
  std::printf("\ntokens  linear  nystrom  window  softmax, 4 heads  softmax, 2 heads");
  for (int64_t N = 64; N <= 1024; N *= 2) {
    std::printf("\n%-6d", int(N));
    for (const auto& [name, heads] :
         {std::pair{"linear", 4}, {"nystrom", 4}, {"window", 4}, {"softmax", 4}, {"softmax", 2}}) {
      const auto [bytes, result] = attend(name, heads, N, 4);
      agree &= sum(square(result - attend(name, heads, N, 1).second)).value().item() < 1e-20;
      std::printf("  %7d", int(bytes));
    }
  }
  std::printf("\nresults agree with those of one rank: %s\n", agree ? "yes" : "no");
}
