// Files of tensors for other programs: safetensors and npz.
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "longhand/core/random.h"
#include "longhand/data/bytes.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/compare.h"
#include "longhand/train/transfer/weights.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using data::Bytes, data::ByteView, data::get, data::put, data::text_of;
using longhand::test::message_of;

namespace {

/// One of everything that a tensor can be, with any bits: also NaN with payloads and subnormal numbers.
TensorFile everything() {
  TensorFile out;
  uint64_t seed = 0;
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8})
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{0}, Shape{3, 0, 2}, Shape{5, 7}, Shape{1, 2, 3, 4, 5, 6}}) {
      Tensor t = Tensor::empty(shape, dtype);
      dispatch_any(dtype, [&]<class T>() {
        for (int64_t i = 0; i < t.numel(); ++i) {
          const uint64_t bits = Generator(1).fork(seed).bits(static_cast<uint64_t>(i));
          std::memcpy(t.data<T>() + i, &bits, sizeof(T));
        }
      });
      out.tensors[concat_message("t", seed++, ".", dtype, " é\"\\")] = t;
    }
  // Not in row-major order.
  out.tensors["transposed"] =
      Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}).transpose(0, 1);
  out.metadata = {{"config", "[model]\nd_model = 8\n"}, {"é", "\"\n"}};
  return out;
}

struct Format {
  const char* name;
  Bytes (*write)(const TensorFile&);
  TensorFile (*read)(ByteView, const std::string&);
};
const Format formats[] = {{"safetensors", to_safetensors, from_safetensors},
                          {"npz", to_npz, from_npz}};

/// A safetensors file with this header and values.
Bytes safetensors(const std::string& header, const std::string& values) {
  Bytes out;
  put(out, uint64_t{header.size()});
  put(out, header);
  put(out, values);
  return out;
}

TensorFile read(const std::string& header, const std::string& values) {
  return from_safetensors(safetensors(header, values), "file");
}

std::string refusal(const std::string& header, const std::string& values) {
  return message_of<DataError>([&] { read(header, values); });
}

/// The place of a text in a file.
size_t find(const Bytes& bytes, const std::string& text, size_t begin = 0) {
  const size_t found = text_of(bytes).find(text, begin);
  REQUIRE(found != std::string::npos);
  return found;
}

void replace(Bytes& bytes, size_t at, const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) bytes[at + i] = static_cast<std::byte>(text[i]);
}

/// An archive with one array, whose header is `from` with `to` in place of it, and a valid CRC.
Bytes npz_with(const std::string& from, const std::string& to) {
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Bytes out = to_npz({.tensors = {{"a", tensor}}});
  const size_t begin = find(out, "\x93NUMPY");
  replace(out, find(out, from), to);
  const auto crc = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(out.data()) + begin, 128 + 24));
  const std::string text(reinterpret_cast<const char*>(&crc), 4);
  replace(out, find(out, std::string("PK\3\4", 4)) + 14, text);
  replace(out, find(out, std::string("PK\1\2", 4)) + 16, text);
  return out;
}

}  // namespace

TEST_CASE("tensors survive safetensors and npz with all their bits, and give the same bytes") {
  const TensorFile file = everything();
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const Bytes bytes = format.write(file);
    const TensorFile again = format.read(bytes, "file");
    CHECK(again.metadata == file.metadata);
    REQUIRE(again.tensors.size() == file.tensors.size());
    for (const auto& [name, tensor] : file.tensors) {
      CAPTURE(name);
      CHECK(identical(again.tensors.at(name), tensor.contiguous()));
    }
    CHECK(format.write(again) == bytes);
    CHECK(format.read(format.write({}), "empty").tensors.empty());
  }
  // In safetensors, all numbers are aligned.
  const Bytes aligned = to_safetensors(
      {.tensors = {{"a", Tensor::zeros({1}, DType::u8)}, {"b", Tensor::zeros({1}, DType::f64)}}});
  CHECK_THAT(std::string(text_of(aligned)), Contains(R"("b":{"data_offsets":[0,8],"dtype":"F64")"));
  CHECK(get<uint64_t>(aligned, 0, "file", "length") % 8 == 0);
  // Numbers of one size are in the order of their names.
  const Bytes ordered = to_safetensors(
      {.tensors = {{"a", Tensor::zeros({1}, DType::f32)}, {"b", Tensor::zeros({2}, DType::i32)}}});
  CHECK_THAT(std::string(text_of(ordered)),
             Contains(R"("a":{"data_offsets":[0,4])") && Contains(R"("b":{"data_offsets":[4,12])"));
}

TEST_CASE(
    "any flipped bit and any cut of an npz file, and every cut of a safetensors file, are seen") {
  TensorFile file;
  file.tensors["a"] = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  file.tensors["b"] = Tensor::from(std::vector<int64_t>{4}, {});
  file.metadata["k"] = "v";
  const auto same = [&](const TensorFile& read) {
    return read.tensors.size() == 2 && identical(read.tensors.at("a"), file.tensors.at("a")) &&
           identical(read.tensors.at("b"), file.tensors.at("b")) && read.metadata == file.metadata;
  };
  for (const Format& format : formats) {
    const Bytes bytes = format.write(file);
    for (size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(format.read(ByteView(bytes).first(size), "file"), DataError);
  }
  Bytes bytes = to_npz(file);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    bool seen = true;
    try {
      seen = same(from_npz(bytes, "file"));  // else a field that does not matter, such as a date
    } catch (const DataError&) {
    }
    if (!seen) FAIL("bit " << bit);
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

TEST_CASE("numbers of 16 bits become f32, small integers i32") {
  // 1, -2, 65504, the smallest number, infinity; NaN
  const std::string half{"\x00\x3c\x00\xc0\xff\x7b\x01\x00\x00\x7c\x01\x7e", 12};
  const TensorFile f16 = read(R"({"a":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})", half);
  const float* const a = f16.tensors.at("a").data<float>();
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK((a[0] == 1 && a[1] == -2 && a[2] == 65504 && a[3] == std::ldexp(1.0f, -24) &&
         a[4] == infinity && std::isnan(a[5])));
  // 1, -0.5, the smallest number (subnormal), -infinity
  const std::string brain{"\x80\x3f\x00\xbf\x01\x00\x80\xff", 8};
  const TensorFile bf16 =
      read(R"({"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})", brain);
  const float* const b = bf16.tensors.at("a").data<float>();
  CHECK((b[0] == 1 && b[1] == -0.5f && b[2] == std::ldexp(1.0f, -133) && b[3] == -infinity));
  const TensorFile i8 =
      read(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "\x80\x7f");
  CHECK(i8.tensors.at("a").to_vector<int32_t>() == std::vector<int32_t>{-128, 127});
}

TEST_CASE("safetensors files that contradict themselves are refused") {
  const std::string four(4, '\0');
  CHECK_THAT(refusal("x", ""), Contains("the header would have 1 bytes"));
  CHECK_THAT(refusal("[1]", ""), Contains("does not begin with {"));
  CHECK_THAT(refusal("{\"a\":", ""), Contains("file: the header is no JSON"));
  CHECK_THAT(refusal("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", ""),
             Contains("nested too deeply"));
  CHECK_THAT(refusal(R"({"a":1})", ""), Contains("tensor a: expected an object"));
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
           "}}";
  };
  CHECK(read(entry("\"F32\"", "[1]", "[0,4]"), four).tensors.size() == 1);
  CHECK_THAT(refusal(entry("\"F8\"", "[1]", "[0,4]"), four), Contains("dtype F8 is not supported"));
  CHECK_THAT(refusal(entry("1", "[1]", "[0,4]"), four), Contains("expected a text \"dtype\""));
  CHECK_THAT(refusal(entry("\"F32\"", "[-1]", "[0,4]"), four),
             Contains("is not an integer of at least 0"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1.0]", "[0,4]"), four),
             Contains("is not an integer of at least 0"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]"), four), Contains("has 7 axes"));
  CHECK_THAT(refusal(entry("\"F32\"", "[2]", "[0,4]"), four), Contains("would take 8 bytes"));
  CHECK_THAT(refusal(entry("\"F32\"", "[4294967296,4294967296]", "[0,0]"), four),
             Contains("more than 2^48 elements"));
  CHECK_THAT(refusal(entry("\"F32\"", "[0,9223372036854775807]", "[0,0]"), four),
             Contains("more than 2^48 elements"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1]", "[0,3]"), four),
             Contains("its shape takes 4 bytes, but its data_offsets are 0 and 3"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1]", "[4,0]"), four), Contains("data_offsets are 4 and 0"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1]", "[0,4,8]"), four),
             Contains("expected 2 data_offsets"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1]", "[0,4]"), four + four), Contains("there are 8 after"));
  CHECK_THAT(refusal(entry("\"F32\"", "[1]", "[4,8]"), four + four),
             Contains("tensor a begins at byte 4, expected 0"));
  const std::string one = R"({"dtype":"U8","shape":[2],"data_offsets":)";
  CHECK_THAT(refusal("{\"a\":" + one + "[0,2]},\"b\":" + one + "[1,3]}}", "xyz"),
             Contains("tensor b begins at byte 1, expected 2"));
  CHECK_THAT(refusal(R"({"__metadata__":{"a":1}})", ""), Contains("a: expected a text"));
  CHECK_THAT(refusal(R"({"__metadata__":"a"})", ""), Contains("expected an object"));
  Bytes huge;
  put(huge, uint64_t{1} << 40);
  CHECK_THAT(message_of<DataError>([&] { from_safetensors(huge, "file"); }),
             Contains("expected 2 to 16777216"));
}

TEST_CASE("npz files that are compressed, of other types or contradict themselves are refused") {
  const auto refused = [](const Bytes& bytes) {
    return message_of<DataError>([&] { from_npz(bytes, "file"); });
  };
  // The array in Fortran's order.
  const Tensor columns = from_npz(npz_with("False, ", " True, "), "file").tensors.at("a");
  CHECK(columns.to_vector<float>() == std::vector<float>{1, 3, 5, 2, 4, 6});
  CHECK(from_npz(npz_with("(2, 3, )", "( 3 ,2 )"), "file").tensors.at("a").shape() == Shape{3, 2});
  CHECK_THAT(refused(npz_with("<f4", ">f4")), Contains("file: a.npy: values of type '>f4'"));
  CHECK_THAT(refused(npz_with("'<f4'", "'|O' ")), Contains("values of type '|O'"));
  CHECK_THAT(refused(npz_with("'<f4'", "[('a']")), Contains("the header of the array is not"));
  CHECK_THAT(refused(npz_with("(2, 3, )", "(2, -3,)")), Contains("the header of the array is not"));
  CHECK_THAT(refused(npz_with("(2, 3, )", "(2, 4, )")), Contains("a.npy would take 32 bytes"));
  CHECK_THAT(refused(npz_with("(2, 3, )", "(2, 2, )")),
             Contains("takes 16 bytes, but there are 24"));
  CHECK_THAT(refused(npz_with("\x93NUMPY\1", "\x93NUMPY\4")), Contains("version 4"));
  CHECK_THAT(refused(npz_with("\x93NUMPY\1", "\x93NUMPX\1")), Contains("is not a NumPy array"));

  const Bytes valid = to_npz({.tensors = {{"a", Tensor::zeros({2})}, {"b", Tensor::zeros({2})}}});
  const auto changed = [&](size_t at, const std::string& text) {
    Bytes out = valid;
    replace(out, at, text);
    return refused(out);
  };
  const std::string central("PK\1\2", 4);
  const size_t first = find(valid, central), second = find(valid, central, first + 1);
  // Versions of libzip from 1.10 on find that an encrypted entry is longer.
  CHECK_THAT(changed(first + 8, "\x01"),
             Contains("is encrypted") || Contains("compressed and uncompressed sizes"));
  CHECK_THAT(changed(find(valid, "NUMPY"), "n"), Contains("a.npy is damaged"));
  Bytes compressed = valid;
  for (const size_t method : {size_t{8}, first + 10}) replace(compressed, method, "\x08");
  CHECK_THAT(refused(compressed), Contains("numpy.savez_compressed"));
  // Both headers of an entry must agree, and two entries have two names.
  for (const size_t at : {first, first + 10, first + 16, find(valid, "a.npy", first)})
    CHECK_THAT(changed(at, std::string(1, static_cast<char>(~std::to_integer<int>(valid[at])))),
               Contains("file is not a zip archive, or is damaged"));
  Bytes both = valid;
  replace(both, find(valid, "b.npy", second), "a");
  replace(both, second + 42, std::string(4, '\0'));
  CHECK_THAT(refused(both), Contains("is damaged"));
  CHECK_THAT(message_of<DataError>([] { from_npz(Bytes(100), "file"); }),
             Contains("is not a zip archive"));
  CHECK_THAT(message_of<DataError>([] { from_npz({}, "file"); }), Contains("file is empty"));
}

TEST_CASE("tensors are written and read by the end of the file's name, regular files only") {
  const test::TemporaryDirectory dir;
  const TensorFile file{.tensors = {{"a", Tensor::zeros({2})}}};
  for (const char* const name : {"a.safetensors", "a.npz"}) {
    write_tensor_file(dir / name, file);
    CHECK(read_tensor_file(dir / name).tensors.size() == 1);
  }
  CHECK_THROWS_AS(write_tensor_file(dir / "a.pt", file), ConfigError);
  std::filesystem::create_directories(dir / "b.npz");
  CHECK_THAT(message_of<DataError>([&] { read_tensor_file(dir / "b.npz"); }), Contains("b.npz"));
}

TEST_CASE("differences name what differs, and by how much") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](std::vector<float> values) {
    const auto size = static_cast<int64_t>(values.size());
    return Tensor::from(values, {size});
  };
  const nn::StateDict a{{"equal", of({1, nan})}, {"far", of({3, 4})},   {"gone", of({1})},
                        {"nan", of({1, 2})},     {"shape", of({1, 2})}, {"type", of({1})}};
  const nn::StateDict b{{"equal", of({1, nan})}, {"far", of({3, 4.5})},
                        {"nan", of({1, nan})},   {"new", of({1})},
                        {"shape", of({1})},      {"type", Tensor::full({1}, 1, DType::f64)}};
  std::map<std::string, TensorDifference> found;
  for (const auto& each : differences(a, b)) found[each.name] = each;
  REQUIRE(found.size() == 7);
  CHECK(found["equal"].is_within(0));
  CHECK_FALSE(found["far"].is_within(0));
  CHECK(found["far"].differing == 1);
  CHECK(found["far"].largest == 0.5);
  CHECK(found["far"].relative == Approx(0.1));
  CHECK_FALSE(found["gone"].second.defined());
  CHECK_FALSE(found["new"].first.defined());
  CHECK(std::isnan(found["nan"].largest));
  CHECK_FALSE(found["shape"].same_shape());
  CHECK(found["type"].differing == 0);
  CHECK_FALSE(found["type"].is_within(0));
  const nn::StateDict large{{"n", Tensor::from(std::vector<int64_t>{(int64_t{1} << 53) + 1}, {1})}};
  const nn::StateDict even{{"n", Tensor::from(std::vector<int64_t>{int64_t{1} << 53}, {1})}};
  CHECK_FALSE(differences(large, even)[0].is_within(0));
}

TEST_CASE("weights are imported whole, or as far as they fit") {
  Config config = test::tiny_run();
  const auto task = read_task_info(config);
  REQUIRE(task.has_value());
  config = Config::parse(effective_config(config, &*task), "effective");
  attention::Transformer model(nn::root(DType::f32, 7), read_model(config, nullptr));
  Checkpoint checkpoint;
  checkpoint.model = model.state_dict();
  checkpoint.ema = {{"head.bias", Tensor::full(model.state_dict().at("head.bias").shape(), 3)}};
  checkpoint.config = effective_config(config, nullptr);
  checkpoint.training.step = 5;

  const TensorFile file = export_part(checkpoint, "weights");
  CHECK(file.metadata.at("step") == "5");
  CHECK(file.tensors.at("head.bias").at({0}) == 3);
  CHECK(export_part(checkpoint, "model").tensors.at("head.bias").at({0}) == 0);
  CHECK(export_part(checkpoint, "ema").tensors.size() == 1);
  CHECK_THROWS_AS(export_part(checkpoint, "optimizer"), ConfigError);
  CHECK_THROWS_AS(export_part(checkpoint, "weight"), ConfigError);

  const Imported all = import_weights(file, config, "file");
  CHECK(all.checkpoint.training.step == 5);
  CHECK(all.parameters == model.parameter_count());
  for (const auto& [name, tensor] : checkpoint.weights())
    CHECK(identical(all.checkpoint.model.at(name), tensor));

  TensorFile part;
  for (const auto& [name, tensor] : file.tensors)
    if (name != "head.bias") part.tensors["module." + name] = tensor;
  part.tensors["module.more"] = Tensor::zeros({1});
  CHECK_THAT(
      message_of<ConfigError>([&] { import_weights(part, config, "file", {.prefix = "x"}); }),
      Contains("--prefix x: none of the") && Contains("the first is module."));
  const std::string missing =
      message_of<DataError>([&] { import_weights(part, config, "file", {.prefix = "module."}); });
  CHECK_THAT(missing, Contains("file: ") && Contains("head.bias") && Contains("more"));
  const Imported some =
      import_weights(part, config, "file", {.prefix = "module.", .partial = true});
  CHECK(some.tensors.initialised == std::vector<std::string>{"head.bias"});
  CHECK(some.tensors.unused == std::vector<std::string>{"more"});
  CHECK_THAT(
      message_of<DataError>([&] { import_weights(part, config, "file", {.partial = true}); }),
      Contains("none of its tensors has the name and the shape"));
}
