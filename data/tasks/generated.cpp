#include "longhand/data/tasks/generated.h"

#include <string_view>

#include "longhand/core/parallel.h"
#include "longhand/data/bytes.h"

namespace longhand::data {
namespace {

class Generated : public Dataset {
 public:
  Generated(const std::vector<GeneratedSegment>& segments, const Generator& generator,
            std::string_view split, int64_t SplitSizes::*size)
      : hashes_(generator.fork("split")), split_(split), mixture_(segments.size() > 1) {
    const Generator examples = generator.fork(split);
    for (size_t s = 0; s < segments.size(); ++s) {
      if (segments[s].sizes.*size == 0) continue;
      // The first segment has the generators of a task with one segment; others have their own.
      const Generator own = s == 0 ? examples : examples.fork("segment").fork(s);
      const int64_t begin = this->size();
      parts_.push_back({segments[s], own, begin, begin + segments[s].sizes.*size});
      const Part& part = parts_.back();
      std::vector<int32_t> tokens(length_in(part, 0)), targets(tokens.size());
      example(part, 0, tokens, targets);  // throws if the split has no examples
    }
  }

  int64_t size() const override { return parts_.empty() ? 0 : parts_.back().end; }
  int64_t length(int64_t index) const override {
    const Part& part = part_of(index);
    return length_in(part, index - part.begin);
  }

  Batch collate(std::span<const int64_t> indices) const override {
    Batch batch = blank_batch(*this, indices, true);
    const int64_t longest = batch.tokens.size(1);
    int32_t* const tokens = batch.tokens.data<int32_t>();
    int32_t* const targets = batch.targets.data<int32_t>();
    parallel_for_each(std::ssize(indices), 4, [&](int64_t b) {
      const Part& part = part_of(indices[b]);
      const int64_t i = indices[b] - part.begin;
      const auto n = static_cast<size_t>(length_in(part, i));
      example(part, i, {tokens + b * longest, n}, {targets + b * longest, n});
    });
    return batch;
  }

  // The options determine all examples, which may be too many to generate: the first ones show that
  // this version generates the same ones.
  std::string fingerprint() const override {
    constexpr int64_t most = 256;
    ContentHasher hasher;
    for (const Part& part : parts_)
      hasher.add(collate(indices_from(part.begin, std::min(part.begin + most, part.end))));
    return hasher.hex();
  }

  std::vector<Segment> segments() const override {
    std::vector<Segment> list;
    if (mixture_)
      for (const Part& part : parts_)
        list.push_back({part.segment.name, part.begin, part.end, part.segment.length});
    return list;
  }

 private:
  struct Part {
    GeneratedSegment segment;
    Generator examples;
    int64_t begin, end;
  };

  const Part& part_of(int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "example ", index,
                     " is out of range for a dataset of ", size(), " examples");
    return *std::ranges::find_if(parts_, [&](const Part& part) { return index < part.end; });
  }

  static int64_t length_in(const Part& part, int64_t index) {
    if (!part.segment.draw_length) return part.segment.length;
    RandomStream random(part.examples.fork("length").fork(static_cast<uint64_t>(index)));
    return part.segment.draw_length(random);
  }

  void example(const Part& part, int64_t index, std::span<int32_t> tokens,
               std::span<int32_t> targets) const {
    // A split with a quarter of all examples is missed this often in a row with probability 1e-125.
    constexpr int tries = 1000;
    RandomStream random(part.examples.fork(static_cast<uint64_t>(index)));
    const GeneratedSegment& segment = part.segment;
    const Draw& draw =
        split_ != "train" && segment.draw_unseen ? segment.draw_unseen : segment.draw;
    for (int i = 0; i < tries; ++i) {
      draw(random, tokens, targets);
      if (std::ssize(tokens) < segment.shared_below || split_of(tokens) == split_) return;
    }
    throw ConfigError("data: the task's options allow so few different examples of length " +
                      std::to_string(tokens.size()) + " that the " + std::string(split_) +
                      " split has none; allow longer ones, or more different tokens");
  }

  std::string_view split_of(std::span<const int32_t> tokens) const {
    constexpr std::string_view splits[] = {"validation", "test", "train", "train"};
    return splits[hashes_.fork(text_of(std::as_bytes(tokens))).bits(0) & 3];
  }

  Generator hashes_;
  std::string_view split_;
  bool mixture_;  // of several segments, some of which this split may lack
  std::vector<Part> parts_;
};

}  // namespace

Task make_generated(const TaskInfo& info, const std::vector<GeneratedSegment>& segments,
                    uint64_t seed) {
  const Generator generator(seed);
  const auto make = [&](std::string_view split, int64_t SplitSizes::*size) {
    return std::make_unique<Generated>(segments, generator, split, size);
  };
  return {info, make("train", &SplitSizes::train), make("validation", &SplitSizes::validation),
          make("test", &SplitSizes::test)};
}

void MixtureSizes::describe(OptionVisitor& v) {
  const auto size = [&](const char* name, std::vector<int64_t>& values, const char* meaning) {
    v.integers(name, values, {0, most_examples}, meaning);
    v.require(std::ranges::any_of(values, [](int64_t n) { return n > 0; }), name,
              "expected at least one example");
  };
  size("train_size", train,
       "number of training examples; a list: of each segment, 0 for those not trained on");
  size("validation_size", validation, "number of validation examples; a list: of each segment");
  size("test_size", test, "number of test examples; a list: of each segment");
}

DataMemory MixtureSizes::memory(size_t segments) const {
  DataMemory out;
  for (size_t s = 0; s < segments; ++s) out.examples += static_cast<double>(of_segment(train, s));
  return out;
}

int64_t of_segment(const std::vector<int64_t>& values, size_t segment) {
  return values.size() == 1 ? values.front() : values.at(segment);
}

SplitSizes of_segment(const MixtureSizes& sizes, size_t segment) {
  return {of_segment(sizes.train, segment), of_segment(sizes.validation, segment),
          of_segment(sizes.test, segment)};
}

size_t segments_of(const std::vector<std::vector<int64_t>>& lists, const MixtureSizes& sizes) {
  size_t segments = std::max({sizes.train.size(), sizes.validation.size(), sizes.test.size()});
  for (const auto& list : lists) segments = std::max(segments, list.size());
  return segments;
}

void require_one_or_each(
    OptionVisitor& v, const std::vector<std::pair<const char*, const std::vector<int64_t>&>>& lists,
    const MixtureSizes& sizes) {
  size_t segments = segments_of({}, sizes);
  for (const auto& [name, values] : lists) segments = std::max(segments, values.size());
  const auto require = [&](const char* name, const std::vector<int64_t>& values) {
    v.require(values.size() == 1 || values.size() == segments, name,
              concat_message("expected one value for all segments, or one for each of ", segments));
  };
  for (const auto& [name, values] : lists) require(name, values);
  require("train_size", sizes.train);
  require("validation_size", sizes.validation);
  require("test_size", sizes.test);
}

Task MixtureOfLengths::make(const TaskInfo& info, const Draw& draw, uint64_t seed) const {
  return make(info, seed, [&](GeneratedSegment& segment, int64_t) { segment.draw = draw; });
}

void MixtureOfLengths::describe_lengths(OptionVisitor& v, const std::string& what, int64_t least) {
  v.integers("length", length, {least, 1 << 24}, what + ", at most; a list: of each segment");
  v.integers("min_length", min_length, {0, 1 << 24},
             what +
                 ", at least: all numbers from there to length are equally likely; 0: length; a "
                 "list: of each segment");
  for (const int64_t n : min_length)
    v.require(n == 0 || n >= least, "min_length",
              concat_message("expected 0, or at least ", least));
  for (size_t s = 0; s < std::max(length.size(), min_length.size()); ++s) {
    const int64_t n = length[std::min(s, length.size() - 1)];
    v.require(min_length[std::min(s, min_length.size() - 1)] <= n, "min_length",
              concat_message("expected at most length = ", n));
  }
  require_one_or_each(v, {{"length", length}, {"min_length", min_length}}, sizes);
}

Task MixtureOfLengths::make(const TaskInfo& info, uint64_t seed,
                            const std::function<void(GeneratedSegment&, int64_t)>& complete) const {
  // From this length on, even two symbols make thousands of sequences.
  constexpr int64_t enough = 12;
  std::vector<GeneratedSegment> parts;
  for (size_t s = 0; s < segments(); ++s) {
    const int64_t n = of_segment(length, s), given = of_segment(min_length, s),
                  least = given ? given : n;
    parts.push_back({concat_message("length ", n), n, of_segment(sizes, s), {}});
    if (least < n) {
      parts.back().name = concat_message("length ", least, " to ", n);
      parts.back().draw_length = [least, n](RandomStream& random) {
        return least + static_cast<int64_t>(random.below(n - least + 1));
      };
      parts.back().shared_below = enough;
    }
    complete(parts.back(), least);
  }
  return make_generated(info, parts, seed);
}

}  // namespace longhand::data
