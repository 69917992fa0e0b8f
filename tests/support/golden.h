// Golden cases: results computed by independent implementations, one HDF5 file per case.
//
// Root attributes: format = "attention-golden", version = 1, kind, config (JSON), source. Datasets
// depend on the kind. kind = "attention", one attention core, all of f64:
//
//   q, k, v, out, grad_out, grad_q, grad_k, grad_v (B, H, N, D);  key_keep (B, N), optional, 1 =
//   not padding; params/NAME, grad_params/NAME: parameters and buffers, and gradients if they exist;
//   x, grad_x (B, N, H D): the tokens, for variants that read them
//
// kind = "model", a Transformer's training trajectory: see golden/model.cpp.
//
// golden/golden_test.cpp passes every file to its reader; a file without one is a failure.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "longhand/attention/registry.h"
#include "longhand/core/options.h"

namespace longhand::test {

struct Golden {
  std::string name;  // name of the file, without its extension
  std::string kind;
  std::string source;  // the implementation or formula that the numbers come from
  /// The values of the configuration. Lists of numbers with fractions become "key.0", "key.1", ….
  /// Tests must read all of them, so that none is without effect.
  Options config;
  /// Nested objects of the configuration, by key.
  std::map<std::string, Options> sections;
  /// All datasets by path.
  std::map<std::string, Tensor> tensors;

  bool has(const std::string& path) const { return tensors.count(path) > 0; }
  /// Returns a dataset. Throws DataError if it is missing.
  const Tensor& at(const std::string& path) const;
  /// Returns the datasets of a group, by their path inside it.
  std::map<std::string, Tensor> group(const std::string& name) const;
};

/// The folder LONGHAND_GOLDEN_DIR, by default tests/data/golden.
std::filesystem::path golden_folder();
/// Returns every *.h5 file in a folder and in the folders inside it, in alphabetical order. Throws
/// DataError if the folder is missing or contains no such file.
std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder);

/// Reads a golden case. Throws DataError if the file is not one, or is of an unknown kind.
Golden read_golden(const std::filesystem::path& path);

/// Returns the lengths, (B) i32, of key_keep (B, N). Throws DataError if a real token follows
/// padding.
Tensor lengths_of(const Tensor& key_keep);

/// Returns the largest |got - expected| relative to the largest |expected|; NaN if any element is.
double relative_error(const Tensor& got, const Tensor& expected);

/// Checks that relative_error() is at most `tolerance`. Where every expected number is 0, |got| must be
/// at most 1e-12 in f64, and 1e-5 in f32, whose gradients of 0 are differences of rounded sums.
void compare(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance);

}  // namespace longhand::test
