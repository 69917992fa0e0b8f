// The folders of train/: which may include which, as README.md draws it; and the code that it quotes.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace {

namespace fs = std::filesystem;

const fs::path train_folder = fs::path(LONGHAND_SOURCE) / "train";

/// By folder, those that it includes, or may include. The files of train/ itself are "trainer".
using Edges = std::map<std::string, std::set<std::string>>;

/// The lines "folder -> folder, folder" of the drawing in README.md.
Edges drawn_edges() {
  Edges out;
  std::ifstream file(train_folder / "README.md");
  std::string line;
  while (std::getline(file, line) && line != "```text folders") {
  }
  while (std::getline(file, line) && line != "```") {
    const size_t arrow = line.find("->");
    REQUIRE(arrow != std::string::npos);
    std::string from;
    std::istringstream(line.substr(0, arrow)) >> from;
    std::istringstream names(line.substr(arrow + 2));
    std::set<std::string>& to = out[from];
    for (std::string name; std::getline(names >> std::ws, name, ',');) to.insert(name);
  }
  return out;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? "trainer" : path.substr(0, slash);
}

/// The includes of all files.
Edges found_edges() {
  Edges out;
  const std::regex include("#include \"longhand/train/([^\"]+)\"");
  for (const auto& entry : fs::recursive_directory_iterator(train_folder)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".h" && path.extension() != ".cpp") continue;
    const std::string from = folder_of(fs::relative(path, train_folder).generic_string());
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      const std::string to = folder_of(match[1]);
      if (to != from) out[from].insert(to);
    }
  }
  return out;
}

/// All that can be reached.
Edges closure(Edges edges) {
  for (bool grown = true; grown;) {
    grown = false;
    for (auto& [from, to] : edges)
      for (const std::string& name : std::set<std::string>(to))
        for (const std::string& next : edges[name]) grown |= to.insert(next).second;
  }
  return edges;
}

}  // namespace

TEST_CASE("train: folders include each other as README.md draws them, without cycles") {
  const Edges may = drawn_edges(), does = found_edges();
  REQUIRE(may.size() >= 10);
  for (const auto& [from, to] : does)
    for (const std::string& name : to) {
      INFO(from << " includes " << name);
      REQUIRE(may.contains(from));
      CHECK(may.at(from).contains(name));
    }
  for (const auto& [from, to] : may)
    for (const std::string& name : to) {
      INFO("the drawing has " << from << " -> " << name << ", which no file needs");
      REQUIRE(does.contains(from));
      CHECK(does.at(from).contains(name));
    }
  for (const auto& [from, to] : closure(may)) {
    INFO(from << " leads to itself");
    CHECK_FALSE(to.contains(from));
  }
}

TEST_CASE("folders have at most 40 files, except those with one per item") {
  const std::set<std::string> one_per_item{"attention/variants", "attention/ops", "autograd/ops",
                                           "tests/data/golden"};
  std::map<std::string, int> files;
  for (const std::string top :
       {"core", "autograd", "nn", "attention", "train", "data", "tests", "examples"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(LONGHAND_SOURCE) / top))
      if (entry.is_regular_file())
        ++files[fs::relative(entry.path().parent_path(), LONGHAND_SOURCE).generic_string()];
  for (const auto& [folder, count] : files) {
    INFO(folder);
    if (!one_per_item.contains(folder)) CHECK(count <= 40);
  }
}

// A block "```cpp FILE" of README.md has lines of train/FILE, in their order.
TEST_CASE("train: README quotes the code as it is") {
  std::ifstream readme(train_folder / "README.md");
  const std::string fence = "```cpp ";
  int blocks = 0;
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with(fence)) continue;
    ++blocks;
    INFO(line);
    std::ifstream quoted(train_folder / line.substr(fence.size()));
    REQUIRE(quoted);
    const auto trimmed = [](const std::string& text) {
      return text.substr(std::min(text.find_first_not_of(' '), text.size()));
    };
    std::string code;
    while (std::getline(readme, line) && line != "```") {
      INFO(line);
      while (std::getline(quoted, code) && trimmed(code) != trimmed(line)) {
      }
      REQUIRE(quoted);
    }
  }
  CHECK(blocks == 2);
}
