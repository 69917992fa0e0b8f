// Every golden case of the folder, and of the folders inside it, is read: a file without a reader is a
// failure.
#include "tests/golden/readers.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <set>

#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;

namespace {

namespace fs = std::filesystem;
using Reader = void (*)(const Golden&);

const std::map<std::string, Reader> readers_of_types = {
    {"retnet", read_scan},
    {"mamba2", read_scan},
    {"gla", read_scan},
    {"log_linear", read_fenwick_scan},
    {"deltanet", read_delta_scan},
    {"gated_deltanet", read_delta_scan},
    {"deltaproduct", read_delta_scan},
    {"kda", read_delta_scan},
    {"rwkv7", read_delta_scan},
    {"mesa", read_ridge_scan},
    {"forgetting", read_forgetting},
    {"path", read_path},
    {"bigbird", read_bigbird},
    {"scatterbrain", read_scatterbrain},
};

/// Types without a line above, and cases with tokens x, are variants that read_core() makes; it throws for a type
/// it does not know.
Reader reader_of(const Golden& golden) {
  if (golden.kind == "model") return read_model;
  if (golden.has("x")) return read_core;
  const auto* const type = golden.config.find("type");
  REQUIRE(type);
  const auto found = readers_of_types.find(std::get<std::string>(type->value));
  return found == readers_of_types.end() ? read_core : found->second;
}

/// An empty folder that is removed at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("longhand-golden-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("golden cases agree") {
  const fs::path folder = golden_folder();
  for (const auto& path : golden_files(folder))
    DYNAMIC_SECTION(path.lexically_relative(folder).string()) {
      const Golden golden = read_golden(path);
      INFO(golden.kind << ", source: " << golden.source);
      reader_of(golden)(golden);
    }
}

TEST_CASE("golden: the cases of the tests need every reader") {
  std::set<Reader> used;
  for (const auto& path : golden_files(LONGHAND_GOLDEN_DEFAULT_DIR))
    used.insert(reader_of(read_golden(path)));
  for (const auto& [type, reader] : readers_of_types) {
    INFO(type);
    CHECK(used.contains(reader));
  }
  CHECK(used.contains(read_core));
  CHECK(used.contains(read_model));
}

TEST_CASE("golden cases with unknown or missing contents fail") {
  Golden golden =
      read_golden(fs::path(LONGHAND_GOLDEN_DEFAULT_DIR) / "attention_softmax_causal.h5");
  SECTION("another option") {
    golden.config.set("wiggle", int64_t{3});
    CHECK_THROWS_WITH(check_core(golden, DType::f64, 1e-9), Catch::Contains("wiggle"));
  }
  SECTION("another variant") {
    golden.config.set("type", std::string("wiggle"));
    CHECK_THROWS_WITH(reader_of(golden)(golden), Catch::Contains("wiggle"));
  }
  SECTION("no result") {
    golden.tensors.erase("out");
    CHECK_THROWS_WITH(check_core(golden, DType::f64, 1e-9), Catch::Contains("out"));
  }
}

TEST_CASE("golden files are found in folders inside the folder, too") {
  const Folder folder;
  CHECK_THROWS_AS(golden_files(folder.path / "missing"), DataError);
  CHECK_THROWS_AS(golden_files(folder.path), DataError);
  fs::create_directories(folder.path / "gated/more");
  for (const char* name : {"a.h5", "gated/b.h5", "gated/more/c.h5", "gated/notes.md"})
    std::ofstream(folder.path / name) << "not HDF5";
  const auto files = golden_files(folder.path);
  REQUIRE(files.size() == 3);
  CHECK(files[2] == folder.path / "gated/more/c.h5");
  CHECK_THROWS_AS(read_golden(files[0]), DataError);
  fs::create_directory(folder.path / "linking");
  fs::create_directory_symlink(folder.path / "gated", folder.path / "linking/linked");
  CHECK(golden_files(folder.path / "linking").size() == 2);
  std::ofstream(folder.path / "gated/x.H5") << "not read";
  CHECK_THROWS_WITH(golden_files(folder.path), Catch::Contains("x.H5"));
}

TEST_CASE("golden comparisons can fail") {
  const Tensor a = Tensor::from(std::vector<double>{1, -4, 2}, {3});
  CHECK(relative_error(a, a) == 0);
  CHECK(relative_error(Tensor::from(std::vector<double>{1, -4, 2.5}, {3}), a) ==
        Approx(0.125).epsilon(1e-12));
  const Tensor nan = Tensor::from(std::vector<double>{1, NAN, 2}, {3});
  CHECK_FALSE(relative_error(nan, a) <= 1e9);
  CHECK_FALSE(relative_error(a, nan) <= 1e9);
  CHECK_THROWS_AS(lengths_of(Tensor::from(std::vector<uint8_t>{1, 0, 1}, {1, 3})), DataError);
}
