// User-supplied data: token sequences in CSV or JSON Lines (see data/token_lines.h), or one HDF5
// file with the groups train, validation and test, each of
//
//   tokens   (S, N)         integers from 0
//   targets  (S) or (S, N)  classes from 0, of sequences or of tokens; -100 is ignored;
//            (S) or (S, K)  numbers, or labels 0 and 1, if data.targets says so
//   lengths  (S)            optional: how many tokens of a row are real, 1 … N
//
// Optional root attributes state what arrays do not show: task (a name), vocabulary, classes,
// causal, bytes, labels of classes (a line each). Rows are read on demand: files may exceed memory.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/lines.h"
#include "longhand/data/names.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"
#include "longhand/data/tasks/stored.h"
#include "longhand/data/token_lines.h"

namespace longhand::data {
namespace {

using File = std::shared_ptr<const Hdf5Reader>;

// Opens a file. For a Longhand file, every byte is first compared with the digest at its end.
File open_verified(const std::string& path) {
  RegularFile on_disk(path);
  const bool sealed = has_trailer(on_disk, data_file);
  if (sealed) verify_trailer(on_disk, data_file);
  auto file = std::make_shared<Hdf5Reader>(Hdf5Reader::open(std::move(on_disk)));
  if (!file->has_attribute("/", "format") ||
      file->attribute("/", "format") != AttributeValue("longhand-data"))
    return file;
  const auto version = file->attribute_as<int64_t>("/", "version");
  check<DataError>(version >= 1 && version <= data_file.version, path, ": format version ", version,
                   ", expected 1 to ", data_file.version);
  check<DataError>(
      version == 1 || sealed, path,
      " has changed since Longhand wrote it: it does not end with its digest; restore "
      "or regenerate the file, or delete its attribute \"format\" if the change is yours");
  if (version == 1 && has_file_guard()) file->allow_new_style_groups();
  return file;
}

/// Rejects misspelt names in a group; `what` names its contents. Attributes are listed only behind
/// a guard, as in the program (see Hdf5Reader::attributes()).
void check_names(const Hdf5Reader& file, const std::string& group, const std::string& what,
                 const std::vector<std::string>& children,
                 const std::vector<std::string>& attributes) {
  const std::string where = file.name() + (group == "/" ? ": " : ": /" + group + ": ");
  check_spelling(file.children(group), children, where, what);
  if (has_file_guard()) check_spelling(file.attributes(group), attributes, where, "the attribute");
}

class StoredTokens final : public Dataset {
 public:
  // Checks shapes and lengths, but not yet tokens and targets.
  StoredTokens(File file, const std::string& group, TargetKind kind)
      : file_(std::move(file)),
        kind_(kind),
        group_(group),
        tokens_(group + "/tokens"),
        targets_(group + "/targets") {
    require_name("/", group);
    require_name(group, "tokens");
    require_name(group, "targets");
    check_names(*file_, group, "the dataset", {"tokens", "targets", "lengths"}, {"content_hash"});
    const Shape tokens = shape_of(tokens_), targets = shape_of(targets_);
    check<DataError>(tokens.rank() == 2 && tokens[0] >= 1 && tokens[1] >= 1, where(tokens_),
                     "shape ", tokens,
                     " is not (S, N) with at least one sequence of one token; pad sequences of "
                     "different lengths with 0 to N tokens, and add lengths (S)");
    size_ = tokens[0];
    width_ = tokens[1];
    if (kind_ != TargetKind::classes) {
      check<DataError>(
          (targets.rank() == 1 || (targets.rank() == 2 && targets[1] >= 1)) && targets[0] == size_,
          where(targets_), "shape ", targets, " is neither ", Shape{size_}, " nor (", size_,
          ", K), the shapes of numbers and labels for tokens ", tokens);
      columns_ = targets.rank() == 2 ? targets[1] : 1;
    } else {
      check<DataError>(targets == Shape{size_} || targets == tokens, where(targets_), "shape ",
                       targets, " is neither ", Shape{size_}, " nor ", tokens,
                       ", the shapes for tokens ", tokens);
      per_token_ = targets.rank() == 2;
    }

    const std::string lengths = group + "/lengths";
    if (!file_->has(lengths)) return;
    const Shape shape = shape_of(lengths);
    check<DataError>(shape == Shape{size_}, where(lengths), "shape ", shape, " is not ",
                     Shape{size_}, ", one length for each of the tokens ", tokens);
    lengths_ = file_->read_rows(lengths, 0, size_, DType::i32).to_vector<int32_t>();
    for (int64_t row = 0; row < size_; ++row)
      check<DataError>(lengths_[row] >= 1 && lengths_[row] <= width_, where(lengths), "row ", row,
                       ": length ", lengths_[row], " is not in 1 … ", width_);
  }

  int64_t size() const override { return size_; }
  int64_t length(int64_t row) const override { return lengths_.empty() ? width_ : lengths_[row]; }
  bool per_token() const { return per_token_; }
  int64_t columns() const { return columns_; }  // numbers or labels of an example
  int64_t max_length() const {
    return lengths_.empty() ? width_ : *std::ranges::max_element(lengths_);
  }

  struct Largest {
    int64_t token = -1, target = -1;
  };

  // Reads and checks everything once, and returns the largest values. They must be below the
  // limits, which are attributes of the file, and match the hash in the file, if it has one.
  Largest check_values(int64_t token_limit, int64_t target_limit) {
    Largest largest;
    ContentHasher hasher;
    const int64_t step = std::max<int64_t>((int64_t{1} << 20) / width_, 1);
    for (int64_t begin = 0; begin < size_; begin += step) {
      const int64_t end = std::min(begin + step, size_);
      Batch block{.tokens = file_->read_rows(tokens_, begin, end, DType::i32),
                  .targets = targets_of_rows(begin, end),
                  .lengths = {}};
      if (!lengths_.empty())
        block.lengths = Tensor::from(std::vector(lengths_.begin() + begin, lengths_.begin() + end),
                                     {end - begin});
      for (int64_t row = begin; row < end; ++row) {
        const int32_t* const tokens = block.tokens.data<int32_t>() + (row - begin) * width_;
        const int64_t n = length(row);
        for (int64_t i = 0; i < n; ++i) {
          if (tokens[i] < 0 || tokens[i] >= token_limit) [[unlikely]]
            out_of_range(tokens_, "token", row, i, tokens[i], token_limit, "vocabulary");
          largest.token = std::max<int64_t>(largest.token, tokens[i]);
        }
        if (kind_ != TargetKind::classes) continue;
        const int32_t* const targets =
            block.targets.data<int32_t>() + (row - begin) * (per_token_ ? width_ : 1);
        for (int64_t i = 0; i < (per_token_ ? n : 1); ++i) {
          if ((targets[i] < 0 && targets[i] != ignore_index) || targets[i] >= target_limit)
              [[unlikely]]
            out_of_range(targets_, "target", row, i, targets[i], target_limit, "classes");
          largest.target = std::max<int64_t>(largest.target, targets[i]);
        }
      }
      hasher.add(block);
    }
    check<DataError>(kind_ != TargetKind::classes || largest.target >= 0, where(targets_),
                     "no targets: every one is ", ignore_index);
    hash_ = hasher.hex();
    check_hash(hash_);
    return largest;
  }

  std::string fingerprint() const override { return hash_.empty() ? content_hash(*this) : hash_; }

  Batch collate(std::span<const int64_t> rows) const override {
    const int64_t count = static_cast<int64_t>(rows.size());
    for (const int64_t row : rows)
      check<DataError>(row >= 0 && row < size_, where(tokens_), "no row ", row, " of ", size_);
    Batch batch = blank_batch(*this, rows, per_token_);
    if (kind_ != TargetKind::classes)
      batch.targets =
          Tensor::empty({count, columns_}, kind_ == TargetKind::labels ? DType::u8 : DType::f32);
    const int64_t longest = batch.tokens.size(1);

    // In file order, adjacent rows together.
    std::vector<int64_t> order = indices_from(0, std::ssize(rows));
    std::ranges::sort(order, [&](int64_t a, int64_t b) { return rows[a] < rows[b]; });
    for (int64_t i = 0; i < count;) {
      int64_t run = 1;
      while (i + run < count && rows[order[i + run]] == rows[order[i]] + run) ++run;
      const int64_t first = rows[order[i]];
      const Tensor tokens = file_->read_rows(tokens_, first, first + run, DType::i32);
      const Tensor targets = targets_of_rows(first, first + run);
      for (int64_t r = 0; r < run; ++r) {
        const int64_t b = order[i + r], n = length(first + r);
        std::copy_n(tokens.data<int32_t>() + r * width_, n,
                    batch.tokens.data<int32_t>() + b * longest);
        if (kind_ != TargetKind::classes)
          copy_into(batch.targets.slice(0, b, b + 1), targets.slice(0, r, r + 1));
        else if (per_token_)
          std::copy_n(targets.data<int32_t>() + r * width_, n,
                      batch.targets.data<int32_t>() + b * longest);
        else
          batch.targets.data<int32_t>()[b] = targets.data<int32_t>()[r];
      }
      i += run;
    }
    return batch;
  }

 private:
  std::string where(const std::string& dataset) const {
    return file_->name() + ": /" + dataset + ": ";
  }

  void require_name(const std::string& group, const std::string& name) const {
    const std::string path = group == "/" ? name : group + "/" + name;
    if (!file_->has(path))
      throw DataError(concat_message(where(path), "not found in the file",
                                     found_instead(name, file_->children(group), true)));
  }

  Shape shape_of(const std::string& dataset) const {
    const bool targets = dataset == targets_;
    check<DataError>(!is_float(type_of(dataset)) || (targets && kind_ == TargetKind::numbers),
                     where(dataset), "expected integers, got floating-point ",
                     "numbers; convert them, with NumPy by astype(\"int32\")",
                     targets ? ", or set data.targets = \"numbers\" if they are real numbers" : "");
    return file_->shape(dataset);
  }

  /// Targets of these rows as in a Batch. Numbers must be finite, labels 0 or 1.
  Tensor targets_of_rows(int64_t begin, int64_t end) const {
    if (kind_ == TargetKind::classes) return file_->read_rows(targets_, begin, end, DType::i32);
    Tensor out =
        file_->read_rows(targets_, begin, end, DType::f32).reshape({end - begin, columns_});
    const float* const value = out.data<float>();
    const bool labels = kind_ == TargetKind::labels;
    for (int64_t i = 0; i < out.numel(); ++i)
      check<DataError>(labels ? value[i] == 0 || value[i] == 1 : std::isfinite(value[i]),
                       where(targets_), "row ", begin + i / columns_, ", column ", i % columns_,
                       ": ", value[i],
                       labels ? " is not a label; with data.targets = \"labels\", expected 0 or 1"
                              : " is not a finite number; leave out examples without a target");
    return labels ? out.to(DType::u8) : out;
  }

  DType type_of(const std::string& dataset) const {
    try {
      return file_->dtype(dataset);
    } catch (const DataError& error) {
      throw DataError(concat_message(error.what(),
                                     "; expected integers of the shape (S, N), or (S) for targets: "
                                     "pad sequences of different lengths, and add lengths (S)"));
    }
  }

  [[noreturn]] void out_of_range(const std::string& dataset, const char* what, int64_t row,
                                 int64_t position, int32_t value, int64_t limit,
                                 const char* attribute) const {
    std::string text = concat_message(where(dataset), "row ", row);
    if (file_->shape(dataset).rank() == 2) text += concat_message(", position ", position);
    text += concat_message(": ", what, ' ', value, " is not ");
    text += limit > INT32_MAX ? "0 or more"
                              : concat_message("in 0 … ", limit - 1, ", as the file's attribute \"",
                                               attribute, "\" requires");
    throw DataError(text);
  }

  void check_hash(const std::string& found) const {
    constexpr const char* key = "content_hash";
    if (!file_->has_attribute(group_, key)) return;
    const auto expected = file_->attribute_as<std::string>(group_, key);
    check<DataError>(
        found == expected, where(group_), "its examples have the hash ", found,
        ", but the attribute \"", key, "\" states ", expected,
        ": they have changed since they were written; restore or regenerate the file, or "
        "delete the attribute if the change is yours");
  }

  File file_;
  TargetKind kind_;
  std::string group_, tokens_, targets_;  // paths
  int64_t size_ = 0, width_ = 0;
  bool per_token_ = false;
  int64_t columns_ = 0;
  std::vector<int32_t> lengths_;  // empty: every row is full
  std::string hash_;              // content_hash() once check_values() has read everything
};

// Returns an optional count from the file; 0 if it is missing.
int64_t stated(const Hdf5Reader& file, const std::string& key) {
  if (!file.has_attribute("/", key)) return 0;
  const auto count = file.attribute_as<int64_t>("/", key);
  check<DataError>(count >= 1 && count <= INT32_MAX, file.name(), ": attribute \"", key,
                   "\": ", count, " is not in 1 … ", INT32_MAX);
  return count;
}

bool flag(const Hdf5Reader& file, const std::string& key) {
  return file.has_attribute("/", key) && file.attribute_as<int64_t>("/", key) != 0;
}

/// The class names in the file, one per line; empty: it states none.
std::vector<std::string> labels_of(const Hdf5Reader& file) {
  if (!file.has_attribute("/", "labels")) return {};
  return split_at(file.attribute_as<std::string>("/", "labels"), '\n');
}

struct TokensOptions {
  std::string path;
  bool causal = false;
  TargetKind targets = TargetKind::classes;
  SplitFractions fractions;

  void describe(OptionVisitor& v) {
    v.text("path", path,
           "an HDF5 file with groups train, validation and test, each with tokens (S, N), targets "
           "(S) or (S, N), and optional lengths (S); or records with tokens and targets: a .csv or "
           ".jsonl file, which is split, or a folder with train, validation and test",
           "none: must be given");
    v.require(!path.empty(), "path",
              "expected the path of an HDF5 file with groups train, validation and test, or of CSV "
              "or JSON Lines");
    causal = attribute_of_file();
    v.boolean("causal", causal,
              "whether targets are future tokens, so that attention must be causal",
              "the file's attribute causal, else false");
    v.choice("targets", targets,
             {{"classes", TargetKind::classes},
              {"numbers", TargetKind::numbers},
              {"labels", TargetKind::labels}},
             "what targets are: one class; real numbers, one or several for each sequence "
             "(regression); or labels, 0 or 1, several for each sequence, of which any may be 1");
    v.when(has_token_lines(path) && !is_folder(path), "path of a CSV or JSON Lines file",
           [&] { fractions.describe(v); });
  }

  // Examples are read when they are used.
  DataMemory memory() const { return {}; }

  // False for an unreadable file, which make_tokens() will report.
  bool attribute_of_file() const {
    if (path.empty() || has_token_lines(path)) return false;
    try {
      return flag(*open_verified(path), "causal");
    } catch (const DataError&) {
      return false;
    }
  }
};

Task make_tokens(const TokensOptions& options, uint64_t seed, const Splits& splits) {
  const std::string& path = options.path;
  if (has_token_lines(path)) {
    Task task = read_token_lines(path, options.fractions, seed, splits, options.targets);
    task.info.causal = options.causal;
    return task;
  }
  check<DataError>(
      !is_folder(path), path,
      ": is a folder; expected an HDF5 file, or a folder with train.csv or train.jsonl "
      "and files for validation and test");
  const File file = open_verified(path);
  check_names(*file, "/", "the group", {"train", "validation", "test"},
              {"format", "version", "task", "vocabulary", "classes", "per_token", "causal", "bytes",
               "labels", "seed"});

  Task task;
  TaskInfo& info = task.info;
  if (file->has_attribute("/", "task")) info.name = file->attribute_as<std::string>("/", "task");
  info.bytes = flag(*file, "bytes");
  info.causal = options.causal;
  info.vocabulary = stated(*file, "vocabulary");
  info.classes = stated(*file, "classes");
  info.targets = options.targets;
  const bool classes = info.targets == TargetKind::classes;

  constexpr int64_t no_limit = int64_t{INT32_MAX} + 1;
  const int64_t token_limit = info.vocabulary ? info.vocabulary : no_limit;
  const int64_t target_limit = info.classes ? info.classes : no_limit;
  std::optional<bool> per_token;
  std::string first;  // the split that determined per_token
  const auto load = [&](const std::string& split) {
    auto dataset = std::make_unique<StoredTokens>(file, split, info.targets);
    info.per_token = per_token.value_or(dataset->per_token());
    check<DataError>(dataset->per_token() == info.per_token, path, ": /", split,
                     "/targets: are of ", dataset->per_token() ? "tokens" : "sequences",
                     ", but those of ", first, " are not");
    per_token = info.per_token;
    check<DataError>(classes || info.classes == 0 || info.classes == dataset->columns(), path,
                     ": /", split, "/targets: ", dataset->columns(), " columns; expected ",
                     info.classes,
                     first.empty() ? ", as the attribute \"classes\" states"
                                   : ", as /" + first + "/targets has");
    if (!classes) info.classes = dataset->columns();
    if (first.empty()) first = split;
    const auto largest = dataset->check_values(token_limit, target_limit);
    info.vocabulary = std::max(info.vocabulary, 1 + largest.token);
    if (classes) info.classes = std::max(info.classes, 1 + largest.target);
    info.max_length = std::max(info.max_length, dataset->max_length());
    return dataset;
  };
  if (splits.train) task.train = load("train");
  if (splits.validation) task.validation = load("validation");
  const bool only_test = !splits.train && !splits.validation;
  if (splits.test && (only_test || file->has("test"))) task.test = load("test");
  info.labels = labels_of(*file);
  check<DataError>(static_cast<int64_t>(info.labels.size()) <= info.classes, path,
                   ": the attribute \"labels\" names ", info.labels.size(),
                   " classes, but there are ", info.classes, "; expected one line for each");
  return task;
}

}  // namespace

TaskSpec register_tokens() {
  return make_spec<TokensOptions>("your own data: HDF5, CSV or JSON Lines", nullptr, make_tokens);
}

}  // namespace longhand::data
