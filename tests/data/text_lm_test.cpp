#include <filesystem>
#include <numeric>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// Bytes 0, 1, 2, … 250, 0, 1, …, which identify their positions.
std::string counting(int n) {
  std::string text(n, '\0');
  for (int i = 0; i < n; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

}  // namespace

TEST_CASE("text_lm: windows do not overlap, and targets are the next bytes") {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", counting(1000));
  const Task task = make("text_lm", {{"path", (folder / "a.txt").string()},
                                     {"length", 10},
                                     {"validation_fraction", 0.25},
                                     {"test_fraction", 0.125}});
  CHECK(task.info.vocabulary == 256);
  CHECK(task.info.classes == 256);
  CHECK(task.info.max_length == 10);
  CHECK(task.info.per_token);
  CHECK(task.info.causal);
  CHECK(task.info.bytes);
  // 625 bytes hold 62 windows and the byte after each; 250 bytes hold 24, not 25; 125 hold 12.
  CHECK(task.train->size() == 62);
  CHECK(task.validation->size() == 24);
  CHECK(task.test->size() == 12);
  int begin = 0;
  for (const auto& [split, size] :
       {std::pair(&task.train, 625), {&task.validation, 250}, {&task.test, 125}}) {
    for (int64_t w = 0; w < (*split)->size(); ++w) {
      const Example e = example(**split, w);
      for (int i = 0; i < 10; ++i) {
        const int at = begin + 10 * static_cast<int>(w) + i;
        CHECK(at + 1 < begin + size);
        CHECK(e.tokens[i] == at % 251);
        CHECK(e.targets[i] == (at + 1) % 251);
      }
    }
    begin += size;
  }
}

TEST_CASE("text_lm: stride affects only training windows, and sizes limit splits") {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", counting(1000));
  const std::string path = (folder / "a.txt").string();
  const Task task = make("text_lm", {{"path", path}, {"length", 20}, {"stride", 3}});
  CHECK(task.train->size() == (900 - 21) / 3 + 1);
  CHECK(task.validation->size() == 2);
  CHECK(example(*task.train, 5).tokens[0] == 15);
  const Task few = make("text_lm", {{"path", path},
                                    {"length", 20},
                                    {"train_size", 7},
                                    {"validation_size", 100},
                                    {"test_size", 1}});
  CHECK(few.train->size() == 7);
  CHECK(few.validation->size() == 2);
  CHECK(few.test->size() == 1);

  // The fingerprint is of the text and of the windows.
  std::string text = counting(1000);
  text[500] = '?';
  write_text(folder / "b.txt", text);
  const auto fingerprint = [&](const char* file, int64_t stride) {
    return make("text_lm", {{"path", (folder / file).string()}, {"length", 20}, {"stride", stride}})
        .train->fingerprint();
  };
  CHECK(fingerprint("a.txt", 3) == task.train->fingerprint());
  CHECK(fingerprint("b.txt", 3) != task.train->fingerprint());
  const auto of_two = [&](int64_t length, int64_t stride) {  // windows, in 31 bytes
    return make("text_lm",
                {{"path", path}, {"length", length}, {"stride", stride}, {"train_size", 2}})
        .train->fingerprint();
  };
  CHECK(of_two(20, 10) != of_two(10, 20));
}

TEST_CASE("text_lm: bytes above 127 are tokens above 127") {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", std::string(100, '\xe9'));
  const Task task = make("text_lm", {{"path", (folder / "a.txt").string()}, {"length", 2}});
  CHECK(example(*task.train, 0).tokens == Row{0xe9, 0xe9});
}

TEST_CASE("text_lm: a folder is read as its files, in the order of their paths") {
  const TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "b/deep");
  write_text(folder / "c.txt", std::string(30, 'c'));
  write_text(folder / "b/deep/x", std::string(30, 'x'));
  write_text(folder / "b/a", std::string(30, 'b'));
  write_text(folder / ".hidden", std::string(30, '.'));
  write_text(folder / "empty", "");
  const Task task = make("text_lm", {{"path", folder.path().string()},
                                     {"length", 1},
                                     {"validation_fraction", 0.02},
                                     {"test_fraction", 0.02}});
  REQUIRE(task.train->size() == 115);
  std::string text;
  for (int i = 0; i < 115; ++i) text += static_cast<char>(example(*task.train, i).tokens[0]);
  CHECK(text ==
        std::string(30, '.') + std::string(30, 'b') + std::string(30, 'x') + std::string(25, 'c'));

  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  CHECK_THAT(message_of<DataError>([&] {
               make("text_lm", {{"path", folder.path().string()}});
             }),
             Contains("link: not a regular file"));
}

TEST_CASE("text_lm: errors name what is missing") {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", counting(1000));
  const std::string path = (folder / "a.txt").string();
  CHECK_THAT(message_of<ConfigError>([] { make("text_lm", {}); }),
             Contains("data.path") && Contains("a folder of files"));
  CHECK_THAT(message_of<DataError>([&] {
               make("text_lm", {{"path", path + "x"}});
             }),
             Contains("a.txtx"));
  CHECK_THAT(message_of<DataError>([&] {
               make("text_lm", {{"path", path}});
             }),
             Contains("1000 bytes leave 900 for training") && Contains("data.length = 1024"));
  CHECK_THAT(message_of<DataError>([&] {
               make("text_lm", {{"path", path}, {"length", 50}});
             }),
             Contains("leave 50 for validation"));
  CHECK_NOTHROW(make("text_lm", {{"path", path}, {"length", 49}}));
  CHECK_THAT(message_of<ConfigError>([&] {
               make("text_lm", {{"path", path}, {"length", 0}});
             }),
             Contains("data.length"));
  CHECK_THAT(
      message_of<ConfigError>([&] {
        make("text_lm", {{"path", path}, {"validation_fraction", 0.5}, {"test_fraction", 0.5}});
      }),
      Contains("data.test_fraction"));
  std::filesystem::create_directory(folder / "empty");
  CHECK_THAT(message_of<DataError>([&] {
               make("text_lm", {{"path", (folder / "empty").string()}});
             }),
             Contains("contains no file"));
}

TEST_CASE("text_lm: examples are fixed, for any number of threads") {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", counting(5000));
  CHECK(hashes("text_lm", {{"path", (folder / "a.txt").string()}, {"length", 16}}, 0) ==
        std::vector<std::string>{"b53ef27142aa9b2134a6ad462efa6a4e",
                                 "b393cb9db92e94800748d020415fc050",
                                 "75b789cf8758ddf43080130f448c5d2f"});
}
