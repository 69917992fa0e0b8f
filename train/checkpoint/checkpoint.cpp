#include "longhand/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <span>

#include "longhand/core/gemm.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"

namespace longhand::train {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view magic = "LHCK";
constexpr std::string_view hdf5_signature = "\x89HDF\r\n\x1a\n";
constexpr uint32_t format_version = 1;
constexpr size_t digest_size = 16, trailer_size = 32;

bool starts_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  for (size_t i = 0; i < sizeof value; ++i) bytes.push_back(std::byte(value >> (8 * i)));
}

template <class T>
T little_endian(Bytes bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= std::to_integer<T>(bytes[i]) << (8 * i);
  return value;
}

/// Returns the HDF5 image in a file; throws unless every byte of the file is as written.
Bytes checked_image(Bytes file, const std::string& name) {
  const bool is_hdf5 = starts_with(file, hdf5_signature);
  check<DataError>(is_hdf5, name,
                   " is not a Longhand checkpoint: it does not begin with an HDF5 image");
  const bool has_trailer =
      file.size() >= trailer_size && starts_with(file.last(trailer_size), magic);
  check<DataError>(has_trailer, name,
                   " is cut off, or not a Longhand checkpoint: no checkpoint trailer in the last ",
                   trailer_size, " of its ", file.size(), " bytes");
  const Bytes trailer = file.last(trailer_size), image = file.first(file.size() - trailer_size);
  const data::Digest digest = data::digest(file.first(file.size() - digest_size));
  check<DataError>(std::equal(digest.begin(), digest.end(), trailer.last(digest_size).begin()),
                   name, " is damaged: its contents do not match the stored digest");
  const uint32_t version = little_endian<uint32_t>(trailer.subspan(4));
  check<DataError>(version <= format_version, name, " is a checkpoint of format version ", version,
                   "; this is Longhand ", longhand::version(), ", which reads versions up to ",
                   format_version);
  const uint64_t length = little_endian<uint64_t>(trailer.subspan(8));
  check<DataError>(length == image.size(), name, " is damaged: it holds an image of ", image.size(),
                   " bytes, expected ", length);
  return image;
}

void put(data::Hdf5Writer& out, const std::string& group, const nn::StateDict& state) {
  out.create_group(group);
  for (const auto& [name, tensor] : state) {
    check<DataError>(name.find('/') == std::string::npos, "checkpoint: \"", name,
                     "\" cannot name a dataset");
    out.put(group + "/" + name, tensor);
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
  f("guard", s.guard);
}

/// The numbers of the guard. Those that are 0, as in most runs, are not stored.
template <class State, class Visit>
void visit_guard(State& s, Visit&& f) {
  f("skipped", s.skipped);
  f("skipped_in_turn", s.skipped_in_turn);
  f("skipped_interval", s.skipped_interval);
  f("loss_count", s.loss.count);
  f("loss_mean", s.loss.mean);
  f("loss_variance", s.loss.variance);
  f("gradient_count", s.gradient_norm.count);
  f("gradient_mean", s.gradient_norm.mean);
  f("gradient_variance", s.gradient_norm.variance);
}

struct Put {
  data::Hdf5Writer& out;
  void operator()(const char* key, int64_t x) const { out.attribute("training", key, x); }
  void operator()(const char* key, uint64_t x) const { (*this)(key, std::bit_cast<int64_t>(x)); }
  void operator()(const char* key, double x) const { out.attribute("training", key, x); }
  void operator()(const char* key, const std::optional<double>& x) const {
    if (x) (*this)(key, *x);
  }
  void operator()(const char* key, const std::map<std::string, double>& values) const {
    for (const auto& [name, x] : values) out.attribute("training", key + ("." + name), x);
  }
  void operator()(const char* key, const GuardState& guard) const {
    visit_guard(guard, [&](const char* name, auto x) {
      if (x != 0) out.attribute("training", key + (std::string(".") + name), x);
    });
  }
};

struct Get {
  const data::Hdf5Reader& in;
  void operator()(const char* key, int64_t& x) const {
    x = in.attribute_as<int64_t>("training", key);
  }
  void operator()(const char* key, uint64_t& x) const {
    x = std::bit_cast<uint64_t>(in.attribute_as<int64_t>("training", key));
  }
  void operator()(const char* key, double& x) const {
    x = in.attribute_as<double>("training", key);
  }
  void operator()(const char* key, std::optional<double>& x) const {
    if (in.has_attribute("training", key)) x = in.attribute_as<double>("training", key);
  }
  void operator()(const char* key, std::map<std::string, double>& values) const {
    const std::string prefix = std::string(key) + ".";
    for (const std::string& name : in.attributes("training"))
      if (name.starts_with(prefix))
        values[name.substr(prefix.size())] = in.attribute_as<double>("training", name);
  }
  void operator()(const char* key, GuardState& guard) const {
    visit_guard(guard, [&]<class T>(const char* name, T& x) {
      const std::string attribute = key + (std::string(".") + name);
      if (in.has_attribute("training", attribute)) x = in.attribute_as<T>("training", attribute);
    });
  }
};

/// What of machine_description() decides the last bits: they are the same with AVX2 and AVX-512.
std::string without_width(std::string machine) {
  const std::string avx512 = ", " + std::string(name_of(Isa::avx512));
  if (machine.ends_with(avx512))
    machine.replace(machine.size() - avx512.size(), avx512.size(),
                    ", " + std::string(name_of(Isa::avx2)));
  return machine;
}

}  // namespace

std::string machine_description() {
  return blas_description() + ", " + std::string(name_of(isa()));
}

std::string machine_and_threads() {
  return concat_message(machine_description(), ", ", threads(), " threads");
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
  out.create_group("training");
  visit(checkpoint.training, Put{out});
  put(out, "model", checkpoint.model);
  put(out, "optimizer", checkpoint.optimizer);
  put(out, "ema", checkpoint.ema);

  std::vector<std::byte> bytes = out.image();
  const uint64_t length = bytes.size();
  for (const char c : magic) bytes.push_back(std::byte(c));
  append(bytes, format_version);
  append(bytes, length);
  const data::Digest digest = data::digest(bytes);
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

Checkpoint from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  const auto in = data::Hdf5Reader::from_image(checked_image(bytes, name), name);
  check<DataError>(in.has_attribute("/", "format") &&
                       in.attribute_as<std::string>("/", "format") == "longhand-checkpoint",
                   name, " is not a Longhand checkpoint: unexpected value of attribute \"format\"");
  Checkpoint out;
  out.version = in.attribute_as<std::string>("/", "longhand");
  out.machine = in.attribute_as<std::string>("/", "machine");
  out.config = in.attribute_as<std::string>("/", "config");
  visit(out.training, Get{in});
  out.model = get(in, "model");
  out.optimizer = get(in, "optimizer");
  out.ema = get(in, "ema");
  return out;
}

void save(const std::filesystem::path& path, const Checkpoint& checkpoint,
          const std::filesystem::path& keep_old_as) {
  data::write_file_durably(path, to_bytes(checkpoint), keep_old_as);
}

Checkpoint load(const std::filesystem::path& path) {
  return from_bytes(data::read_file(path), path.string());
}

std::string stored_digest(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, trailer_size> chars{};
  in.seekg(-static_cast<std::streamoff>(trailer_size), std::ios::end);
  in.read(chars.data(), chars.size());
  const Bytes trailer = std::as_bytes(std::span(chars));
  check<DataError>(in.good() && starts_with(trailer, magic), path.string(),
                   " is cut off, or not a Longhand checkpoint: no checkpoint trailer");
  data::Digest digest;
  std::copy_n(trailer.last(digest_size).begin(), digest_size, digest.begin());
  return data::hex(digest);
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
