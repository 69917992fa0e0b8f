// A folder with a short run, used by most tests of the program.
#pragma once

#include <string>

#include "tests/support/files.h"

namespace longhand::test {

/// The contents of config.toml, which trains a tiny model to copy.
inline const std::string tiny_config = read_text(LONGHAND_SOURCE "/tests/cli/tiny.toml");

class TinyFolder : public TemporaryDirectory {
 public:
  TinyFolder() { write_text(*this / "config.toml", tiny_config); }
};

}  // namespace longhand::test
