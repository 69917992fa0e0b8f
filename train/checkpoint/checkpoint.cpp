#include "longhand/train/checkpoint/checkpoint.h"

#include <array>
#include <bit>
#include <sstream>

#include "longhand/core/gemm.h"
#include "longhand/core/options.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/trailer.h"
#include "longhand/train/results/table.h"

namespace longhand::train {
namespace {

constexpr data::FileKind checkpoint_file{"Longhand checkpoint", "LHCK", 2};

void put(data::Hdf5Writer& out, const std::string& group, const nn::StateDict& state) {
  out.create_group(group);
  for (const auto& [name, tensor] : state) {
    check<DataError>(!name.empty() && name != "." &&
                         name.find_first_of(std::string("/\0", 2)) == std::string::npos,
                     "checkpoint: \"", name, "\" cannot name a dataset");
    out.put(group + "/" + name, tensor);
  }
}

constexpr std::array groups = {"model", "optimizer", "ema"};

/// Throws unless all tensors together fit into the file, before allocating any of them: several may
/// claim the same bytes, and compressed ones a thousand times as many as exist.
void check_sizes(const data::Hdf5Reader& in, uint64_t file_bytes) {
  uint64_t sum = 0;
  for (const std::string group : groups)
    for (const std::string& name : in.children(group)) {
      const std::string path = group + "/" + name;
      check<DataError>(!in.is_chunked(path), in.name(), ": /", path,
                       ": is stored in chunks, expected contiguous values");
      sum += static_cast<uint64_t>(in.shape(path).numel()) * size_of(in.dtype(path));
      check<DataError>(sum <= file_bytes, in.name(), ": its tensors take more bytes than the ",
                       file_bytes, " of the file");
    }
}

nn::StateDict get(const data::Hdf5Reader& in, const std::string& group) {
  nn::StateDict out;
  for (const std::string& name : in.children(group)) out[name] = in.read(group + "/" + name);
  return out;
}

/// Writes or reads the training state, from one list of names.
template <class State, class Visit>
void visit(State& s, Visit&& f) {
  f("step", s.step);
  f("seed", s.seed);
  f("cursor_epoch", s.cursor.epoch);
  f("cursor_batch", s.cursor.batch);
  f("interval_steps", s.interval.steps);
  f("interval_loss", s.interval.loss);
  f("interval_correct", s.interval.correct);
  f("interval_targets", s.interval.targets);
  f("interval_terms", s.interval.terms);
  f("evaluated_step", s.evaluated_step);
  f("best", s.best);
  f("best_step", s.best_step);
  f("evaluations_since_best", s.evaluations_since_best);
  f("last_accuracy", s.last_accuracy);
  // Zeros, as in most runs, are not stored.
  f.filled("guard.skipped", s.guard.skipped);
  f.filled("guard.skipped_in_turn", s.guard.skipped_in_turn);
  f.filled("guard.skipped_interval", s.guard.skipped_interval);
  f.filled("guard.loss_count", s.guard.loss.count);
  f.filled("guard.loss_mean", s.guard.loss.mean);
  f.filled("guard.loss_variance", s.guard.loss.variance);
  f.filled("guard.gradient_count", s.guard.gradient_norm.count);
  f.filled("guard.gradient_mean", s.guard.gradient_norm.mean);
  f.filled("guard.gradient_variance", s.guard.gradient_norm.variance);
}

struct Put {
  data::Hdf5Writer& out;
  void operator()(const char* key, int64_t x) const { out.attribute("training", key, x); }
  void operator()(const char* key, double x) const { out.attribute("training", key, x); }
  void operator()(const char* key, uint64_t x) const { (*this)(key, std::bit_cast<int64_t>(x)); }
  void operator()(const char* key, const std::optional<double>& x) const {
    if (x) (*this)(key, *x);
  }
  void operator()(const char* key, const std::map<std::string, double>& values) const {
    std::string names;
    for (const auto& [name, x] : values) {
      check<DataError>(name.find_first_of(std::string("\n\0", 2)) == std::string::npos,
                       "checkpoint: \"", name, "\" cannot name a term of the loss");
      out.attribute("training", key + ("." + name), x);
      names += name + '\n';
    }
    if (!names.empty()) out.attribute("training", key, names);
  }
  void filled(const char* key, auto x) const {
    if (x != 0) (*this)(key, x);
  }
};

struct Get {
  const data::Hdf5Reader& in;
  uint32_t version;  // format version
  template <class T>
  void operator()(const char* key, T& x) const {
    x = in.attribute_as<T>("training", key);
  }
  void operator()(const char* key, uint64_t& x) const {
    x = std::bit_cast<uint64_t>(in.attribute_as<int64_t>("training", key));
  }
  void operator()(const char* key, std::optional<double>& x) const {
    if (in.has_attribute("training", key)) (*this)(key, x.emplace());
  }
  void operator()(const char* key, std::map<std::string, double>& values) const {
    const std::string prefix = std::string(key) + ".";
    if (version == 1) {  // version 1 had no list of names
      for (const std::string& name : in.attributes("training"))
        if (name.starts_with(prefix))
          values[name.substr(prefix.size())] = in.attribute_as<double>("training", name);
    } else if (in.has_attribute("training", key)) {
      for (const std::string& name : split_at(in.attribute_as<std::string>("training", key), '\n'))
        values[name] = in.attribute_as<double>("training", prefix + name);
    }
  }
  void filled(const char* key, auto& x) const {
    if (in.has_attribute("training", key)) (*this)(key, x);
  }
};

/// Returns one line per split: its name, a space and its hash.
std::string to_text(const std::map<std::string, std::string>& data) {
  std::string out;
  for (const auto& [split, hash] : data) out += split + ' ' + hash + '\n';
  return out;
}

std::map<std::string, std::string> data_in(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream lines(text);
  for (std::string split, hash; lines >> split >> hash;) out[split] = hash;
  return out;
}

/// Returns the part of machine_description() that decides the last bits: AVX2 and AVX-512 agree.
std::string without_width(std::string machine) {
  const std::string avx512 = ", " + std::string(name_of(Isa::avx512));
  if (machine.ends_with(avx512))
    machine.replace(machine.size() - avx512.size(), avx512.size(),
                    ", " + std::string(name_of(Isa::avx2)));
  return machine;
}

/// `guarded`: a guard has already read the file in another process.
Checkpoint parse(std::span<const std::byte> bytes, const std::string& name, bool guarded) {
  const data::Trailer trailer = data::verify_trailer(bytes, checkpoint_file, name);
  auto in = data::Hdf5Reader::from_image(bytes.first(trailer.length), name);
  if (trailer.version == 1) {
    check<DataError>(
        guarded, name,
        " is a checkpoint of format version 1, whose groups libhdf5 may crash on if they "
        "are malicious: read it with the program longhand, or with a file guard "
        "(data::set_file_guard)");
    in.allow_new_style_groups();
  }
  check<DataError>(in.has_attribute("/", "format") &&
                       in.attribute_as<std::string>("/", "format") == "longhand-checkpoint",
                   name, " is not a Longhand checkpoint: unexpected value of attribute \"format\"");
  check_sizes(in, bytes.size());
  Checkpoint out;
  out.version = in.attribute_as<std::string>("/", "longhand");
  out.machine = in.attribute_as<std::string>("/", "machine");
  out.config = in.attribute_as<std::string>("/", "config");
  if (in.has_attribute("/", "data")) out.data = data_in(in.attribute_as<std::string>("/", "data"));
  if (in.has_attribute("/", "plugins"))
    out.plugins = plugin_records(in.attribute_as<std::string>("/", "plugins"), name);
  visit(out.training, Get{in, trailer.version});
  out.model = get(in, "model");
  out.optimizer = get(in, "optimizer");
  out.ema = get(in, "ema");
  return out;
}

}  // namespace

std::string machine_description() {
  return blas_description() + ", " + std::string(name_of(isa()));
}

std::string machine_and_threads() {
  return concat_message(machine_description(), ", ", counted(threads(), "thread"));
}

nn::StateDict Checkpoint::weights() const {
  nn::StateDict out = model;
  for (const auto& [name, tensor] : ema) out[name] = tensor;
  return out;
}

std::vector<std::byte> to_bytes(const Checkpoint& checkpoint) {
  data::Hdf5Writer out;
  out.attribute("/", "format", "longhand-checkpoint");
  out.attribute("/", "longhand", checkpoint.version);
  out.attribute("/", "machine", checkpoint.machine);
  out.attribute("/", "config", checkpoint.config);
  if (!checkpoint.data.empty()) out.attribute("/", "data", to_text(checkpoint.data));
  if (!checkpoint.plugins.empty()) out.attribute("/", "plugins", to_text(checkpoint.plugins));
  out.create_group("training");
  visit(checkpoint.training, Put{out});
  put(out, "model", checkpoint.model);
  put(out, "optimizer", checkpoint.optimizer);
  put(out, "ema", checkpoint.ema);

  std::vector<std::byte> bytes = out.image();
  data::append_trailer(bytes, checkpoint_file);
  return bytes;
}

Checkpoint from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return parse(bytes, name, false);
}

void save(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  data::write_file_durably(path, to_bytes(checkpoint));
}

Checkpoint load(const std::filesystem::path& path) { return load(data::RegularFile(path)); }

Checkpoint load(data::RegularFile file) {
  // Before parsing anything, and before allocating memory for all of it.
  data::verify_trailer(file, checkpoint_file);
  const bool guarded = data::has_file_guard();
  const std::string name = file.path().string();
  std::vector<std::byte> bytes;
  {  // Nobody can change the file between the guard and the parser.
    const data::RegularFile sealed =
        guarded ? data::RegularFile::sealed(std::move(file)) : std::move(file);
    data::pass_file_guard(sealed);
    bytes = sealed.read_all();
  }
  return parse(bytes, name, guarded);
}

std::string stored_digest(const std::filesystem::path& path) {
  return data::hex(data::read_trailer(data::RegularFile(path), checkpoint_file).digest);
}

std::string resume_warning(const Checkpoint& checkpoint) {
  std::string out;
  const auto compare = [&](const std::string& then, const std::string& now) {
    if (without_width(then) == without_width(now)) return;
    out += (out.empty() ? "" : "; ") +
           concat_message("the checkpoint was computed by ", then, ", this is ", now);
  };
  compare(checkpoint.machine, machine_description());
  compare("Longhand " + checkpoint.version, std::string("Longhand ") + longhand::version());
  return out.empty()
             ? out
             : "results may differ from those of an uninterrupted run in their last bits: " + out;
}

}  // namespace longhand::train
