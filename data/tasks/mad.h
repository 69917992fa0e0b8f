// Shared by the tasks of MAD: Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid
// Architectures", arXiv 2403.17844, section 3 and appendix B. Distributions and option names
// follow the paper's code.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "longhand/data/tasks/generated.h"

namespace longhand::data {

/// Noise tokens from a separate vocabulary, which replace some meaningful ones.
struct Noise {
  int64_t noise_vocab_size = 0;
  double frac_noise = 0;

  void describe(OptionVisitor& v);
  bool falls(RandomStream& random) const { return frac_noise > 0 && random.uniform() < frac_noise; }
  /// One of the tokens from `first` on.
  int32_t draw(RandomStream& random, int64_t first) const {
    return static_cast<int32_t>(first + static_cast<int64_t>(random.below(noise_vocab_size)));
  }
};

/// A sequence whose tokens are predicted from the previous ones, and which of them are predictable.
struct Recited {
  std::vector<int32_t> tokens;
  std::vector<bool> known;

  void add(int32_t token, bool is_known = false) {
    tokens.push_back(token);
    known.push_back(is_known);
  }
  void add(std::span<const int32_t> some, bool are_known = false) {
    for (const int32_t token : some) add(token, are_known);
  }
};

/// The options of tasks that ask for values of keys seen before in the sequence.
struct AnswerOptions : MixtureOfLengths {
  int64_t vocabulary = 16;
  Noise noise{};
  bool multi_query = true;
  std::string train_loss = "all";
  bool padded = false;  // set by the task, not an option: a token pads sequences

  AnswerOptions() : MixtureOfLengths{{128}, {{12800}, {1280}, {1280}}} {}
  void describe(OptionVisitor& v);
  /// The number of tokens for padding, and before the key asked for: not keys, values or noise.
  int64_t special() const { return padded + !multi_query; }
  int64_t plain() const { return vocabulary - special() - noise.noise_vocab_size; }
  int64_t keys() const { return plain() / 2; }
  int64_t values() const { return plain() - keys(); }
  /// Sequences have length + 1 - dropped() tokens, of which a model reads all but the last.
  int64_t dropped() const { return multi_query && !padded; }
  TaskInfo info() const;
  /// `recite` draws a sequence, for training or not, of a segment whose option length is `length`.
  Task make_recited(uint64_t seed, const std::function<Recited(RandomStream& random, int64_t length,
                                                               bool training)>& recite) const;
};

}  // namespace longhand::data
