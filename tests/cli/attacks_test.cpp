// Files made by attackers, given to the program: each is refused with one message that names it. Nothing
// outside of the file is read, nothing is written, and time and memory stay small.
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>

#include "longhand/data/file.h"
#include "longhand/data/trailer.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/damage.h"
#include "tests/support/forge.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

constexpr data::FileKind checkpoint_kind{"Longhand checkpoint", "LHCK", 2};
const std::string secret = "the secret of another file";

/// The checkpoint of a run, which everything is changed in.
const train::Checkpoint& whole_checkpoint() {
  static const train::Checkpoint checkpoint = [] {
    const TinyFolder folder;
    succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", "train.steps=1"},
            folder.path());
    return train::load(folder / "run/checkpoints/last.h5");
  }();
  return checkpoint;
}

void seal(const fs::path& path, Bytes image) {
  data::append_trailer(image, checkpoint_kind);
  data::write_file_durably(path, image);
}

/// Writes a.h5: that checkpoint after change(file), with a valid digest.
template <class F>
void forge_checkpoint(const TinyFolder& folder, F change) {
  Bytes image = train::to_bytes(whole_checkpoint());
  image.resize(image.size() - data::trailer_size);
  data::write_file_durably(folder / "a.h5", image);
  forge_file(folder / "a.h5", change, true);
  seal(folder / "a.h5", data::read_file(folder / "a.h5"));
}

/// The same with the changed fields.
void write_checkpoint(const TinyFolder& folder,
                      const std::function<void(train::Checkpoint&)>& change) {
  train::Checkpoint checkpoint = whole_checkpoint();
  change(checkpoint);
  train::save(folder / "a.h5", checkpoint);
}

/// Replaces each `from` in a.h5, as a number of 4 bytes, by `to`, and makes the digest valid again.
void replace_number(const TinyFolder& folder, uint32_t from, uint32_t to) {
  Bytes bytes = data::read_file(folder / "a.h5");
  Bytes wanted(4);
  put(wanted, 0, from, 4);
  int found = 0;
  for (auto it = bytes.begin();
       (it = std::search(it, bytes.end(), wanted.begin(), wanted.end())) != bytes.end(); ++found)
    put(bytes, static_cast<size_t>(it - bytes.begin()), to, 4);
  REQUIRE(found > 0);
  if (data::has_trailer(data::RegularFile(folder / "a.h5"), checkpoint_kind)) write_digest(bytes);
  data::write_file_durably(folder / "a.h5", bytes);
}

/// Properties of a dataset.
class Properties {
 public:
  Properties() : id_(H5Pcreate(H5P_DATASET_CREATE)) {}
  ~Properties() { H5Pclose(id_); }
  Properties(const Properties&) = delete;
  Properties& operator=(const Properties&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
};

void add(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& sizes,
         hid_t properties = H5P_DEFAULT) {
  H5Dclose(make_dataset(file, type, sizes, properties, name));
}

void text_attribute(hid_t file, const char* name, size_t size, bool variable) {
  if (H5Aexists(file, name) > 0) H5Adelete(file, name);
  const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(type, variable ? H5T_VARIABLE : size);
  const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  const std::string text(size, 'x');
  const char* const pointer = text.c_str();
  REQUIRE(H5Awrite(attribute, type, variable ? static_cast<const void*>(&pointer) : pointer) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// A compressed IDX file of images that claims these sizes and holds so many elements, all 0.
void write_idx(const TinyFolder& folder, const std::vector<uint32_t>& sizes, size_t elements) {
  std::string head("\0\0\x08\x03", 4);
  for (const uint32_t size : sizes)
    for (const int shift : {24, 16, 8, 0}) head += static_cast<char>(size >> shift);
  fs::create_directory(folder / "idx");
  const gzFile file = gzopen((folder / "idx/train-images-idx3-ubyte.gz").c_str(), "wb1");
  gzwrite(file, head.data(), static_cast<unsigned>(head.size()));
  const std::string zeros(1 << 20, '\0');
  for (size_t n = 0; n < elements; n += zeros.size()) gzwrite(file, zeros.data(), 1 << 20);
  gzclose(file);
}

void link_to_zeros(const TinyFolder& folder, const std::string& name) {
  fs::create_symlink("/dev/zero", folder / name);
}

void copy_of_run(const TinyFolder& folder) {
  fs::create_directories(folder / "run/checkpoints");
  train::save(folder / "run/checkpoints/last.h5", whole_checkpoint());
  write_text(folder / "run/config.toml", whole_checkpoint().config);
  write_text(folder / "run/metrics.jsonl", "{\"step\":1,\"split\":\"train\",\"loss\":1}\n");
}

struct Attack {
  std::string name;
  std::function<void(const TinyFolder&)> make;
  std::vector<std::string> command;
  std::string file, message;  // both in what is printed
};

using Words = std::vector<std::string>;
const Words inspect = {"checkpoint", "inspect", "a.h5"}, evaluate = {"evaluate", "a.h5"},
            use_data = {"data", "hash", "tokens", "--set", "data.path=a.h5"};

const std::vector<Attack>& attacks() {
  static const hsize_t huge = hsize_t{1} << 40;
  static const std::vector<Attack> list = {
      // References out of a file.
      {"a link to another file",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [&](hid_t file) {
           H5Lcreate_external((folder / "secret").c_str(), "/x", file, "model/x", H5P_DEFAULT,
                              H5P_DEFAULT);
         });
       },
       inspect, "a.h5", "a group of the new style"},
      {"values in another file",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [&](hid_t file) {
           const Properties properties;
           H5Pset_external(properties, (folder / "secret").c_str(), 0, 16);
           add(file, "model/x", H5T_NATIVE_INT, {4}, properties);
         });
       },
       inspect, "a.h5", "are stored in another file"},
      {"values in another file, as data",
       [](const TinyFolder& folder) {
         forge_file(folder / "a.h5", [&](hid_t file) {
           const Properties properties;
           H5Pset_external(properties, "/etc/passwd", 0, 64);
           H5Gclose(H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
           add(file, "train/targets", H5T_NATIVE_UCHAR, {8});
           add(file, "train/tokens", H5T_NATIVE_UCHAR, {8, 8}, properties);
         });
       },
       use_data, "a.h5", "are stored in another file"},
      {"a virtual dataset",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [&](hid_t file) {
           const Properties properties;
           const hsize_t size = 4;
           const hid_t space = H5Screate_simple(1, &size, nullptr);
           H5Pset_virtual(properties, space, (folder / "secret").c_str(), "x", space);
           add(file, "model/x", H5T_NATIVE_INT, {4}, properties);
           H5Sclose(space);
         });
       },
       inspect, "a.h5", "virtual"},
      {"a filter that is a plug-in",
       [](const TinyFolder& folder) {
         // Whoever looks for plug-ins waits for this pipe.
         fs::create_directory(folder / "plugins");
         REQUIRE(mkfifo((folder / "plugins/libfilter.so").c_str(), 0600) == 0);
         forge_file(folder / "a.h5", [](hid_t file) {
           const Properties properties;
           const std::array<hsize_t, 2> chunk = {4, 4};
           H5Pset_chunk(properties, 2, chunk.data());
           H5Pset_filter(properties, 32015, H5Z_FLAG_OPTIONAL, 0, nullptr);
           H5Gclose(H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
           add(file, "train/targets", H5T_NATIVE_UCHAR, {8});
           add(file, "train/tokens", H5T_NATIVE_UCHAR, {8, 8}, properties);
         });
       },
       use_data, "a.h5", "is packed by filter 32015"},

      // Structures without an end.
      {"links that lead to each other",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           H5Lcreate_soft("/model/y", file, "model/x", H5P_DEFAULT, H5P_DEFAULT);
           H5Lcreate_soft("/model/x", file, "model/y", H5P_DEFAULT, H5P_DEFAULT);
         });
       },
       inspect, "a.h5", "external link"},
      {"a group that contains itself",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           H5Lcreate_hard(file, "model", file, "model/x", H5P_DEFAULT, H5P_DEFAULT);
         });
       },
       inspect, "a.h5", "expected a dataset, got a group"},
      {"groups nested deep",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           const hid_t properties = H5Pcreate(H5P_GROUP_CREATE);
           H5Pset_local_heap_size_hint(properties, 16);
           hid_t group = H5Gopen2(file, "model", H5P_DEFAULT);
           for (int i = 0; i < 5000; ++i) {
             const hid_t inner = H5Gcreate2(group, "x", H5P_DEFAULT, properties, H5P_DEFAULT);
             H5Gclose(group);
             group = inner;
           }
           H5Gclose(group);
           H5Pclose(properties);
         });
       },
       inspect, "a.h5", "expected a dataset, got a group"},

      // Sizes.
      {"a packed tensor of 2^40 numbers",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           const Properties properties;
           const hsize_t chunk = 1 << 20;
           H5Pset_chunk(properties, 1, &chunk);
           H5Pset_deflate(properties, 9);
           add(file, "model/x", H5T_NATIVE_FLOAT, {huge}, properties);
         });
       },
       inspect, "a.h5", "takes 4398046511104 bytes"},
      {"packed data of 2^40 numbers",
       [](const TinyFolder& folder) {
         forge_file(folder / "a.h5", [](hid_t file) {
           const Properties properties;
           const std::array<hsize_t, 2> chunk = {1 << 10, 1 << 10};
           H5Pset_chunk(properties, 2, chunk.data());
           H5Pset_deflate(properties, 9);
           H5Gclose(H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
           add(file, "train/targets", H5T_NATIVE_UCHAR, {8});
           add(file, "train/tokens", H5T_NATIVE_UCHAR, {1 << 20, 1 << 20}, properties);
         });
       },
       use_data, "a.h5", "too few even if packed"},
      {"a tensor that claims more than the file",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder,
                          [](hid_t file) { add(file, "model/x", H5T_NATIVE_FLOAT, {huge}); });
       },
       inspect, "a.h5", "but only 0 are in the file"},
      {"a shape whose product overflows",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           add(file, "model/x", H5T_NATIVE_FLOAT, {huge, huge, 0});
         });
       },
       inspect, "a.h5", "is too large"},
      {"8,000 tensors of the same bytes",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           const hid_t dataset =
               make_dataset(file, H5T_NATIVE_FLOAT, {1000}, H5P_DEFAULT, "model/x");
           const std::vector<float> values(1000);
           H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
           const hid_t group = H5Gopen2(file, "model", H5P_DEFAULT);
           for (int i = 0; i < 8'000; ++i)
             H5Lcreate_hard(file, "model/x", group, ("y" + std::to_string(i)).c_str(), H5P_DEFAULT,
                            H5P_DEFAULT);
           H5Gclose(group);
           H5Dclose(dataset);
         });
       },
       inspect, "a.h5", "its tensors take more bytes than"},
      {"2,000 tensors without elements",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           add(file, "model/x", H5T_NATIVE_FLOAT, {0});
           const hid_t group = H5Gopen2(file, "model", H5P_DEFAULT);
           for (int i = 0; i < 2'000; ++i)
             H5Lcreate_hard(file, "model/x", group, ("y" + std::to_string(i)).c_str(), H5P_DEFAULT,
                            H5P_DEFAULT);
           H5Gclose(group);
         });
       },
       evaluate, "a.h5", "y10 is unexpected"},
      {"text of 2 GiB",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) { text_attribute(file, "config", 54321, false); });
         replace_number(folder, 54321, 0x7fffffff);
       },
       inspect, "a.h5", ""},
      {"text of variable length",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) { text_attribute(file, "config", 54321, true); });
         replace_number(folder, 54321, 1 << 20);
       },
       inspect, "a.h5", ""},
      // libhdf5 1.10 crashes on the next two, in the process that reads first; 1.14 refuses the first.
      {"data with text of variable length that claims more than the file",
       [](const TinyFolder& folder) {
         forge_file(folder / "a.h5", [](hid_t file) { text_attribute(file, "task", 54321, true); });
         replace_number(folder, 54321, 1 << 24);
       },
       use_data, "a.h5", ""},
      {"data with text of variable length that claims more than there is memory",
       [](const TinyFolder& folder) {
         forge_file(folder / "a.h5", [](hid_t file) { text_attribute(file, "task", 54321, true); });
         replace_number(folder, 54321, 0xfffffff0);
       },
       use_data, "a.h5", ""},
      {"a trailer that claims more than the file",
       [](const TinyFolder& folder) {
         Bytes bytes = train::to_bytes(whole_checkpoint());
         put(bytes, bytes.size() - 24, ~uint64_t{0}, 8);
         write_digest(bytes);
         data::write_file_durably(folder / "a.h5", bytes);
       },
       inspect, "a.h5", ""},
      {"an end of file that lies beyond it",
       [](const TinyFolder& folder) {
         Bytes bytes = train::to_bytes(whole_checkpoint());
         put(bytes, 40, huge, 8);  // of the superblock, version 0
         write_digest(bytes);
         data::write_file_durably(folder / "a.h5", bytes);
       },
       inspect, "a.h5", ""},

      // Contents that are not those of a model.
      {"text instead of numbers",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) {
           const hid_t type = H5Tcopy(H5T_C_S1);
           H5Tset_size(type, H5T_VARIABLE);
           add(file, "model/x", type, {2});
           H5Tclose(type);
         });
       },
       inspect, "a.h5", "neither integers of up to 64 bits nor floats"},
      {"references instead of numbers",
       [](const TinyFolder& folder) {
         forge_checkpoint(folder, [](hid_t file) { add(file, "model/x", H5T_STD_REF_OBJ, {2}); });
       },
       inspect, "a.h5", "neither integers of up to 64 bits nor floats"},
      {"a name of 1 MB with control characters",
       [](const TinyFolder& folder) {
         write_checkpoint(folder, [](train::Checkpoint& c) {
           c.model["\x1b[31m" + std::string(1 << 20, 'x')] = Tensor::scalar(1);
         });
       },
       evaluate, "a.h5", "\\x1b[31mxxx"},
      {"names of folders",
       [](const TinyFolder& folder) {
         write_checkpoint(folder, [](train::Checkpoint& c) { c.model[".."] = Tensor::scalar(1); });
       },
       evaluate, "a.h5", ".. is unexpected"},
      {"tensors of another model",
       [](const TinyFolder& folder) {
         write_checkpoint(folder, [](train::Checkpoint& c) {
           nn::StateDict other;
           for (const auto& [name, tensor] : c.model) other["other." + name] = tensor;
           c.model = other;
         });
       },
       evaluate, "a.h5", "is missing"},
      {"a configuration in a checkpoint, with a section of 30,000 parts",
       [](const TinyFolder& folder) {
         write_checkpoint(folder, [](train::Checkpoint& c) {
           c.config = "[a" + repeated(".a", 30'000) + "]\n";
         });
       },
       evaluate, "a.h5: config:1", "a key of more than 16 parts"},

      // Configurations.
      {"100,000 brackets in a configuration",
       [](const TinyFolder& folder) {
         write_text(folder / "a.toml",
                    "[model]\nd_model = " + repeated("[", 100'000) + repeated("]", 100'000));
       },
       {"config", "dump", "a.toml"},
       "a.toml",
       "depth"},
      {"a key of 100,000 parts",
       [](const TinyFolder& folder) {
         write_text(folder / "a.toml", "[model]\n\"a\"" + repeated(".a", 100'000) + " = 1\n");
       },
       {"config", "dump", "a.toml"},
       "a.toml:2",
       "a key of more than 16 parts"},
      {"a section of 100,000 parts",
       [](const TinyFolder& folder) {
         write_text(folder / "a.toml", "# '\n[a" + repeated(".a", 100'000) + "]\nx = 1\n");
       },
       {"config", "dump", "a.toml"},
       "a.toml:2",
       "a key of more than 16 parts"},
      {"a section of 100,000 parts after text that ends with a quote",
       [](const TinyFolder& folder) {
         write_text(folder / "a.toml",
                    "[model]\nx = \"\"\"a\"\"\"\"\n[a" + repeated(".a", 100'000) + "]\n");
       },
       {"config", "dump", "a.toml"},
       "a.toml:3",
       "a key of more than 16 parts"},
      {"a configuration without an end",
       [](const TinyFolder& folder) { link_to_zeros(folder, "a.toml"); },
       {"config", "dump", "a.toml"},
       "a.toml",
       "at most 16 MiB"},

      // Records of runs and sweeps.
      {"100,000 brackets in a summary",
       [](const TinyFolder& folder) {
         copy_of_run(folder);
         write_text(folder / "run/summary.json",
                    "{\"options\":" + repeated("[", 100'000) + repeated("]", 100'000) + "}");
       },
       {"report", "run", "-o", "report.html"},
       "run/summary.json",
       ""},
      {"100,000 brackets in a record",
       [](const TinyFolder& folder) {
         copy_of_run(folder);
         write_text(folder / "run/metrics.jsonl", "{\"step\":1,\"loss\":" + repeated("[", 100'000) +
                                                      repeated("]", 100'000) + "}\n");
       },
       {"report", "run", "-o", "report.html"},
       "run/metrics.jsonl:1",
       ""},
      {"100,000 brackets in results",
       [](const TinyFolder& folder) {
         write_text(folder / "results.json",
                    repeated("{\"kind\":", 100'000) + "1" + repeated("}", 100'000));
       },
       {"report", "results.json", "-o", "report.html"},
       "results.json",
       ""},
      {"records without an end",
       [](const TinyFolder& folder) {
         copy_of_run(folder);
         fs::remove(folder / "run/metrics.jsonl");
         link_to_zeros(folder, "run/metrics.jsonl");
       },
       {"report", "run", "-o", "report.html"},
       "run/metrics.jsonl",
       "not a regular file"},

      // Data.
      {"an image file that unpacks to more than it says",
       [](const TinyFolder& folder) {
         write_idx(folder, {1, 2, 3}, size_t{16} << 20);
       },
       {"data", "hash", "pixels", "--set", "data.path=idx"},
       "train-images-idx3-ubyte.gz",
       "has 7 or more bytes of elements"},
      {"an image file of 2^93 images",
       [](const TinyFolder& folder) {
         write_idx(folder, {1u << 31, 1u << 31, 1u << 31}, 1 << 20);
       },
       {"data", "hash", "pixels", "--set", "data.path=idx"},
       "train-images-idx3-ubyte.gz",
       "expected 2147483648 x 2147483648 x 2147483648"},
      {"an expression of 1,000,000 brackets",
       [](const TinyFolder& folder) {
         write_text(folder / "a.tsv", "Source\tTarget\n" + repeated("[MAX ", 1'000'000) + "\t1\n");
       },
       {"data", "check", "listops", "a.tsv"},
       "a.tsv:2",
       ""},
      {"an expression of the Long Range Arena of 1,000,000 brackets",
       [](const TinyFolder& folder) {
         write_text(folder / "a.tsv", "Source\tTarget\n" + repeated("( ", 1'000'000) + "\t1\n");
       },
       {"data", "check", "listops", "a.tsv"},
       "a.tsv:2",
       ""},

      // What is not a file.
      {"a checkpoint without an end",
       [](const TinyFolder& folder) { link_to_zeros(folder, "a.h5"); }, inspect, "a.h5",
       "not a regular file"},
      {"data without an end", [](const TinyFolder& folder) { link_to_zeros(folder, "a.h5"); },
       use_data, "a.h5", "not a regular file"},
      {"text without an end",
       [](const TinyFolder& folder) { link_to_zeros(folder, "a.txt"); },
       {"data", "hash", "text_lm", "--set", "data.path=a.txt"},
       "a.txt",
       "not a regular file"},
      {"lines without an end",
       [](const TinyFolder& folder) { link_to_zeros(folder, "a.tsv"); },
       {"data", "hash", "text_classification", "--set", "data.path=a.tsv"},
       "a.tsv",
       "not a regular file"},
      {"a pipe instead of text",
       [](const TinyFolder& folder) { REQUIRE(mkfifo((folder / "a.txt").c_str(), 0600) == 0); },
       {"data", "hash", "text_lm", "--set", "data.path=a.txt"},
       "a.txt",
       "not a regular file"},
      {"a pipe instead of a run's configuration",
       [](const TinyFolder& folder) {
         fs::create_directories(folder / "run/checkpoints");
         REQUIRE(mkfifo((folder / "run/config.toml").c_str(), 0600) == 0);
       },
       {"train", "--resume", "run"},
       "run/config.toml",
       "not a regular file"},
      {"a folder instead of a checkpoint",
       [](const TinyFolder& folder) { fs::create_directory(folder / "a.h5"); }, inspect, "a.h5",
       ""},
      {"a link to itself",
       [](const TinyFolder& folder) { fs::create_symlink("a.h5", folder / "a.h5"); }, inspect,
       "a.h5", ""},
  };
  return list;
}

/// Every file below a folder.
std::set<std::string> files_below(const fs::path& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.insert(entry.path());
  return files;
}

}  // namespace

TEST_CASE("attacks by files are refused") {
  for (const Attack& attack : attacks()) {
    INFO(attack.name);
    const TinyFolder folder;
    write_text(folder / "secret", secret);
    attack.make(folder);
    const auto before = files_below(folder.path());
    Program program(attack.command, folder.path(),
                    {{"HDF5_PLUGIN_PATH", (folder / "plugins").string()}});
    if (!eventually([&] { return program.over(); })) {
      CHECK(attack.name == "over in a minute");
      continue;
    }
    const Outcome outcome = program.wait();
    INFO(outcome.err.substr(0, 1000));
    CHECK((outcome.code == 2 || outcome.code == 3));
    CHECK(outcome.peak_memory < memory_to_refuse);
    CHECK_THAT(outcome.err, Catch::StartsWith("longhand: ") && Contains(attack.file) &&
                                Contains(attack.message));
    CHECK(outcome.err.size() < 4200);
    CHECK(std::none_of(outcome.err.begin(), outcome.err.end(),
                       [](char c) { return c != '\n' && static_cast<unsigned char>(c) < 0x20; }));
    for (const std::string& text : {outcome.out, outcome.err}) {
      CHECK(text.find(secret) == std::string::npos);
      CHECK(text.find("root:") == std::string::npos);
    }
    CHECK(files_below(folder.path()) == before);
  }
}

TEST_CASE("what is written does not go through links") {
  const TinyFolder folder;
  write_text(folder / "victim", secret);
  fs::create_symlink("victim", folder / "data.h5");
  succeed({"data", "make", "copy", "--set", "data.length=16", "data.count=4", "data.train_size=8",
           "data.validation_size=8", "data.test_size=8", "-o", "data.h5", "--force", "--quiet"},
          folder.path());
  CHECK(fs::is_regular_file(fs::symlink_status(folder / "data.h5")));

  // A run of others, from its step 4 on.
  succeed({"train", "config.toml", "--quiet", "--out", "run", "--set", "train.steps=8",
           "train.checkpoint_every=4"},
          folder.path());
  const fs::path checkpoints = folder / "run/checkpoints";
  fs::copy_file(checkpoints / "previous.h5", checkpoints / "last.h5",
                fs::copy_options::overwrite_existing);
  const std::vector<fs::path> names = {folder / "run/metrics.jsonl", checkpoints / "previous.h5",
                                       checkpoints / "best.h5"};
  for (const fs::path& name : names) {
    fs::remove(name);
    fs::create_symlink(folder / "victim", name);
  }
  succeed({"train", "--resume", "run", "--quiet"}, folder.path());
  CHECK(data::read_text_file(folder / "victim") == secret);
  CHECK(fs::is_regular_file(fs::symlink_status(folder / "run/metrics.jsonl")));
}
