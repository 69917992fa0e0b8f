// HDF5 files as other programs and attackers make them, by calls of libhdf5.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <vector>

#include "tests/support/catch.h"

namespace longhand::test {

/// Calls make(file) for a new file, or for one that exists if `change`.
template <class F>
void forge_file(const std::filesystem::path& path, F make, bool change = false) {
  const hid_t file = change ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                            : H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  make(file);
  REQUIRE(H5Fclose(file) >= 0);
}

/// A dataset, by default "x", that is not written to.
inline hid_t make_dataset(hid_t file, hid_t type, std::vector<hsize_t> sizes, hid_t properties,
                          const char* name = "x") {
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  H5Sclose(space);
  return dataset;
}

}  // namespace longhand::test
