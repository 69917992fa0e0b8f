#include "longhand/data/contents.h"

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;

TEST_CASE("contents: examples, lengths, tokens, classes, and what splits share") {
  const TemporaryDirectory folder;
  write_text(folder / "train.csv", "tokens,targets\n1 2 3,0\n7,1\n1 2 3,1\n4 4,-100\n9 1,1\n");
  write_text(folder / "validation.csv", "tokens,targets\n9 1,0\n2 2,0\n");
  const Task task = make("tokens", {{"path", folder.path().string()}});
  const Contents train = contents_of(*task.train), validation = contents_of(*task.validation);
  CHECK(train.examples == 5);
  CHECK(train.shortest == 1);
  CHECK(train.median == 2);
  CHECK(train.longest == 3);
  CHECK(train.tokens == 11);
  CHECK(train.different_tokens == 6);
  CHECK(train.largest_token == 9);
  CHECK(train.classes == std::map<int32_t, int64_t>{{0, 1}, {1, 3}});
  CHECK(train.ignored == 1);
  CHECK(train.repeated == 1);
  CHECK(train.hash == content_hash(*task.train));
  CHECK(validation.repeated == 0);
  CHECK(shared_examples(train, validation) == 1);

  std::string many = "tokens,targets\n";
  for (int i = 0; i < 256; ++i) many += "1 2,0\n";
  write_text(folder / "train.csv", many);
  const Contents full = contents_of(*make("tokens", {{"path", folder.path().string()}}).train);
  CHECK(full.examples == 256);
  CHECK(full.tokens == 512);
  CHECK(full.repeated == 255);
}
