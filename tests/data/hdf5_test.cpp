#include "longhand/data/hdf5.h"

#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "longhand/core/error.h"
#include "longhand/core/random.h"
#include "longhand/data/file.h"
#include "tests/support/files.h"
#include "tests/support/forge.h"
#include "tests/support/guard_remover.h"

using namespace longhand;
using namespace longhand::data;
using Catch::Contains;
using longhand::test::make_dataset;
using longhand::test::message_of;
using longhand::test::TemporaryDirectory;

namespace {

template <class F>
Hdf5Reader written(F write) {
  Hdf5Writer file;
  write(file);
  return Hdf5Reader::from_image(file.image(), "test.h5");
}

// A file made by calls of libhdf5.
template <class F>
std::filesystem::path forge(const TemporaryDirectory& dir, F make) {
  const auto path = dir / "forged.h5";
  test::forge_file(path, make);
  return path;
}

template <class T>
void put(hid_t file, hid_t type, hid_t memory, const std::vector<T>& values) {
  const hid_t dataset = make_dataset(file, type, {values.size()}, H5P_DEFAULT);
  REQUIRE(H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  H5Dclose(dataset);
}

std::string refusal(const std::filesystem::path& path) {
  return message_of<DataError>([&] { Hdf5Reader::open(path).read("x"); });
}

}  // namespace

TEST_CASE("tensors of every dtype and shape come back bit for bit") {
  const auto dtype = GENERATE(DType::f32, DType::f64, DType::i32, DType::i64, DType::u8);
  const auto shape =
      GENERATE(Shape{}, Shape{1}, Shape{0}, Shape{3, 0, 2}, Shape{5, 7}, Shape{1, 2, 3, 1, 2, 2});
  INFO(dtype << ' ' << shape);
  Tensor noise = Tensor::empty(shape, DType::f64);
  fill_uniform(noise, Generator(3), 0, 200);
  const Tensor value = noise.to(dtype);

  const auto file = written([&](Hdf5Writer& w) { w.put("a/b.c/d", value); });
  CHECK(identical(file.read("a/b.c/d"), value));
  CHECK(file.shape("/a/b.c/d") == shape);
  CHECK(file.dtype("a/b.c/d") == dtype);
}

TEST_CASE("strided tensors are stored in row-major order") {
  const Tensor t = Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 5}, {2, 3}).transpose(0, 1);
  const auto file = written([&](Hdf5Writer& w) { w.put("t", t); });
  CHECK(file.read("t").to_vector<int32_t>() == std::vector<int32_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("special floating-point values survive") {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor t = Tensor::from(std::vector<double>{inf, -inf, std::nan(""), -0.0, 5e-324}, {5});
  CHECK(identical(written([&](Hdf5Writer& w) { w.put("t", t); }).read("t"), t));
}

TEST_CASE("rows are stored in narrow types and read in blocks") {
  const auto type = GENERATE(StoredType::u8, StoredType::i8, StoredType::u16, StoredType::i16,
                             StoredType::i32, StoredType::i64);
  const int64_t rows = 1000, width = 70;  // several chunks
  std::vector<int32_t> values(rows * width);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * i % 128);
  const Tensor all = Tensor::from(values, {rows, width});

  const auto file = written([&](Hdf5Writer& w) {
    w.create_rows("t", type, all.shape());
    for (int64_t begin = 0; begin < rows; begin += 333)
      w.put_rows("t", begin, all.slice(0, begin, std::min(begin + 333, rows)));
  });
  for (const auto& [begin, end] : {std::pair{0, 1000}, {999, 1000}, {5, 5}, {100, 617}})
    CHECK(identical(file.read_rows("t", begin, end, DType::i32), all.slice(0, begin, end).clone()));
  CHECK(identical(file.read("t").to(DType::i32), all));
  CHECK_THROWS_AS(file.read_rows("t", 0, 1001, DType::i32), DataError);
  CHECK_THROWS_AS(file.read_rows("t", -1, 3, DType::i32), DataError);
  CHECK_THROWS_AS(file.read_rows("t", 3, 2, DType::i32), DataError);
}

TEST_CASE("compressed rows take less space") {
  Hdf5Writer plain, packed;
  const Tensor zeros = Tensor::zeros({100, 1000}, DType::i32);
  plain.put("t", zeros);
  packed.create_rows("t", StoredType::i32, zeros.shape());
  packed.put_rows("t", 0, zeros);
  CHECK(packed.image().size() * 20 < plain.image().size());
}

TEST_CASE("the narrowest type holds the range and nothing narrower does") {
  CHECK(narrowest(0, 255) == StoredType::u8);
  CHECK(narrowest(-1, 127) == StoredType::i8);
  CHECK(narrowest(-100, 128) == StoredType::i16);
  CHECK(narrowest(0, 65535) == StoredType::u16);
  CHECK(narrowest(0, 65536) == StoredType::i32);
  CHECK(narrowest(INT32_MIN, INT32_MAX) == StoredType::i32);
  CHECK(narrowest(0, int64_t{INT32_MAX} + 1) == StoredType::i64);
}

TEST_CASE("values that a narrow type cannot hold are refused when written") {
  Hdf5Writer file;
  file.create_rows("t", StoredType::u8, {2, 2});
  CHECK_THAT(message_of<DataError>([&] {
               file.put_rows("t", 0, Tensor::from(std::vector<int32_t>{1, 2, 3, 256}, {2, 2}));
             }),
             Contains("t: row 1: 256 is not in 0 … 255"));
  CHECK_THROWS_AS(file.put_rows("t", 1, Tensor::zeros({2, 2}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(file.put_rows("t", 0, Tensor::zeros({1, 3}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(file.put_rows("other", 0, Tensor::zeros({1, 3}, DType::i32)), DataError);
}

TEST_CASE("text is stored as UTF-8") {
  const TemporaryDirectory dir;
  Hdf5Writer writer;
  writer.attribute("/", "name", std::string("Nystr\u00f6m"));
  write_file_durably(dir / "a.h5", writer.image());
  const hid_t file = H5Fopen((dir / "a.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(file, "name", H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  CHECK(H5Tget_cset(type) == H5T_CSET_UTF8);
  CHECK(H5Tget_size(type) == 8);
  CHECK(H5Tget_strpad(type) == H5T_STR_NULLPAD);
  H5Tclose(type);
  H5Aclose(attribute);
  H5Fclose(file);
}

TEST_CASE("wide integers are narrowed if they fit, else named") {
  const TemporaryDirectory dir;
  const auto wide = forge(dir, [](hid_t file) {
    put<int64_t>(file, H5T_STD_I64BE, H5T_NATIVE_INT64, {1, -2, INT32_MAX, int64_t{1} << 40});
  });
  const auto reader = Hdf5Reader::open(wide);
  CHECK(reader.dtype("x") == DType::i64);
  CHECK(reader.read("x").to_vector<int64_t>() ==
        std::vector<int64_t>{1, -2, INT32_MAX, int64_t{1} << 40});
  CHECK(reader.read_rows("x", 0, 3, DType::i32).to_vector<int32_t>() ==
        std::vector<int32_t>{1, -2, INT32_MAX});
  CHECK_THAT(message_of<DataError>([&] { reader.read_rows("x", 1, 4, DType::i32); }),
             Contains("forged.h5: /x: row 3 holds 1099511627776, which does not fit i32"));
  CHECK_THAT(message_of<DataError>([&] { reader.read_rows("x", 0, 2, DType::u8); }),
             Contains("row 1 holds -2"));
}

TEST_CASE("the row of a number that does not fit is named, in a dataset of any width") {
  std::vector<int64_t> values(300'000);  // several blocks
  values[3 * 99'991 + 2] = -1;
  const auto file = written([&](Hdf5Writer& w) { w.put("x", Tensor::from(values, {100'000, 3})); });
  CHECK_THAT(message_of<DataError>([&] { file.read_rows("x", 7, 100'000, DType::u8); }),
             Contains("row 99991 holds -1"));
}

TEST_CASE("unsigned integers beyond int64 are refused, not wrapped") {
  const TemporaryDirectory dir;
  const auto path = forge(dir, [](hid_t file) {
    put<uint64_t>(file, H5T_STD_U64LE, H5T_NATIVE_UINT64, {7, uint64_t{1} << 63});
  });
  const auto reader = Hdf5Reader::open(path);
  CHECK(reader.read_rows("x", 0, 1, DType::i32).item() == 7);
  CHECK_THAT(message_of<DataError>([&] { reader.read("x"); }), Contains("9223372036854775808"));
}

TEST_CASE("types of other programs are read as the nearest supported type") {
  const TemporaryDirectory dir;
  const auto read = [&](hid_t type, hid_t memory, auto values) {
    return Hdf5Reader::open(forge(dir, [&](hid_t file) { put(file, type, memory, values); }))
        .read("x");
  };
  const auto bytes = read(H5T_STD_I8LE, H5T_NATIVE_INT, std::vector<int>{-128, 127});
  CHECK(bytes.dtype() == DType::i32);
  CHECK(bytes.to_vector<int32_t>() == std::vector<int32_t>{-128, 127});
  const auto words = read(H5T_STD_U16BE, H5T_NATIVE_INT, std::vector<int>{0, 65535});
  CHECK(words.dtype() == DType::i32);
  CHECK(words.to_vector<int32_t>() == std::vector<int32_t>{0, 65535});
  const auto unsigned_words =
      read(H5T_STD_U32LE, H5T_NATIVE_UINT, std::vector<unsigned>{4'000'000'000u});
  CHECK(unsigned_words.dtype() == DType::i64);
  CHECK(unsigned_words.item() == 4e9);

  // h5py's booleans
  const hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
  const int8_t no = 0, yes = 1;
  H5Tenum_insert(boolean, "FALSE", &no);
  H5Tenum_insert(boolean, "TRUE", &yes);
  const auto flags = read(boolean, boolean, std::vector<int8_t>{1, 0, 1});
  CHECK(flags.dtype() == DType::u8);
  CHECK(flags.to_vector<uint8_t>() == std::vector<uint8_t>{1, 0, 1});
  H5Tclose(boolean);

  // half precision
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(half, 15, 10, 5, 0, 10);
  H5Tset_size(half, 2);
  H5Tset_ebias(half, 15);
  const auto halves = read(half, H5T_NATIVE_DOUBLE, std::vector<double>{0.5, -1024});
  CHECK(halves.dtype() == DType::f32);
  CHECK(halves.to_vector<float>() == std::vector<float>{0.5, -1024});
  H5Tclose(half);

  const auto path =
      forge(dir, [&](hid_t file) { put<float>(file, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {1}); });
  CHECK(Hdf5Reader::open(path).read_rows("x", 0, 1, DType::f64).item() == 1);
  CHECK_THAT(
      message_of<DataError>([&] { Hdf5Reader::open(path).read_rows("x", 0, 1, DType::i32); }),
      Contains("expected integers, got floating-point numbers"));
}

TEST_CASE("attributes come back as they were") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "a", "Nyström: \"λ\"\nline 2", std::string(60000, 'x'));
  const auto file = written([&](Hdf5Writer& w) {
    w.create_group("g");
    w.put("t", Tensor::scalar(1));
    w.attribute("/", "text", text);
    w.attribute("g", "count", int64_t{-5});
    w.attribute("t", "real", 0.1);
  });
  CHECK(file.attribute_as<std::string>("/", "text") == text);
  CHECK(file.attribute_as<int64_t>("g", "count") == -5);
  CHECK(file.attribute_as<double>("g", "count") == -5.0);
  CHECK(file.attribute_as<double>("t", "real") == 0.1);
  CHECK(file.has_attribute("t", "real"));
  CHECK(!file.has_attribute("t", "text"));
  CHECK(file.attributes("g") == std::vector<std::string>{"count"});
  CHECK(file.attributes("/") == std::vector<std::string>{"text"});
  CHECK_THAT(message_of<DataError>([&] { file.attribute("t", "none"); }),
             Contains("test.h5: /t: has no attribute \"none\""));
  CHECK_THAT(message_of<DataError>([&] { file.attribute_as<int64_t>("t", "real"); }),
             Contains("expected an integer, got a number"));
}

TEST_CASE("attributes of other programs are read") {
  const TemporaryDirectory dir;
  const auto path = forge(dir, [](hid_t file) {
    const hid_t scalar = H5Screate(H5S_SCALAR);
    const auto attribute = [&](const char* name, hid_t type, const void* value) {
      const hid_t a = H5Acreate2(file, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT);
      REQUIRE(H5Awrite(a, type, value) >= 0);
      H5Aclose(a);
    };
    const hid_t variable = H5Tcopy(H5T_C_S1), padded = H5Tcopy(H5T_C_S1);
    H5Tset_size(variable, H5T_VARIABLE);
    H5Tset_cset(variable, H5T_CSET_UTF8);
    H5Tset_size(padded, 6);
    H5Tset_strpad(padded, H5T_STR_SPACEPAD);
    const char* const text = "of any length: λ";
    attribute("variable", variable, &text);
    attribute("padded", padded, "ab c  ");
    const uint16_t number = 500;
    attribute("number", H5T_NATIVE_UINT16, &number);
    const hid_t pair = H5Screate_simple(1, std::array<hsize_t, 1>{2}.data(), nullptr);
    H5Aclose(H5Acreate2(file, "pair", H5T_NATIVE_INT, pair, H5P_DEFAULT, H5P_DEFAULT));
    for (const hid_t type : {variable, padded}) H5Tclose(type);
    for (const hid_t space : {scalar, pair}) H5Sclose(space);
  });
  const auto reader = Hdf5Reader::open(path);
  CHECK(reader.attribute_as<std::string>("/", "variable") == "of any length: λ");
  CHECK(reader.attribute_as<std::string>("/", "padded") == "ab c");
  CHECK(reader.attribute_as<int64_t>("/", "number") == 500);
  CHECK_THAT(message_of<DataError>([&] { reader.attribute("/", "pair"); }),
             Contains("a single value"));
}

TEST_CASE("groups list what is in them") {
  const auto file = written([](Hdf5Writer& w) {
    for (const char* path : {"b/y", "b/x/z", "a", "b/x.w"}) w.put(path, Tensor::scalar(0));
    w.create_group("c/empty");
  });
  CHECK(file.children("/") == std::vector<std::string>{"a", "b", "c"});
  CHECK(file.children("b") == std::vector<std::string>{"x", "x.w", "y"});
  CHECK(file.datasets("b") == std::vector<std::string>{"x/z", "x.w", "y"});
  CHECK(file.datasets("/") == std::vector<std::string>{"a", "b/x/z", "b/x.w", "b/y"});
  CHECK(file.has("c/empty"));
  CHECK(file.children("c/empty").empty());
  CHECK(!file.has("b/none"));
  CHECK(!file.has("a/below/a/dataset"));
  CHECK_THROWS_AS(file.children("a"), DataError);
  CHECK_THAT(message_of<DataError>([&] { file.read("b/none"); }),
             Contains("test.h5: /b/none: not found in the file"));
  CHECK_THAT(message_of<DataError>([&] { file.read("b"); }),
             Contains("/b: expected a dataset, got a group"));
}

TEST_CASE("a path is written once") {
  Hdf5Writer file;
  file.put("a", Tensor::scalar(0));
  CHECK_THAT(message_of<DataError>([&] { file.put("a", Tensor::scalar(1)); }),
             Contains("a: cannot create the dataset: HDF5: "));
  CHECK_THROWS_AS(file.put("a/b", Tensor::scalar(1)), DataError);
  CHECK_THROWS_AS(file.put("c", Tensor()), DataError);
}

TEST_CASE("the same calls give the same bytes") {
  const auto image = [] {
    Hdf5Writer file;
    file.put("a/b", Tensor::full({10, 10}, 3));
    file.create_rows("c", StoredType::u16, {100, 100});
    file.put_rows("c", 0, Tensor::full({100, 100}, 9, DType::i32));
    file.attribute("/", "text", "x");
    return file.image();
  };
  const auto first = image();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // libhdf5 counts in seconds
  CHECK(image() == first);
}

TEST_CASE("images that are open at the same time are kept apart") {
  const auto one = written([](Hdf5Writer& w) { w.put("t", Tensor::scalar(1)); });
  const auto two = written([](Hdf5Writer& w) { w.put("t", Tensor::scalar(2)); });
  CHECK(one.read("t").item() == 1);
  CHECK(two.read("t").item() == 2);
}

TEST_CASE("images are files that can be opened from disk, and nothing else touches the disk") {
  const TemporaryDirectory dir;
  const auto old = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  Hdf5Writer file;
  file.put("t", Tensor::scalar(4));
  const auto image = file.image();
  CHECK(Hdf5Reader::from_image(image, "x").read("t").item() == 4);
  std::filesystem::current_path(old);
  CHECK(dir.names().empty());
  write_file_durably(dir / "t.h5", image);
  CHECK(Hdf5Reader::open(dir / "t.h5").read("t").item() == 4);
}

TEST_CASE("many threads may read one file") {
  const Tensor t = Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, {8});
  const auto file = written([&](Hdf5Writer& w) {
    w.create_rows("t", StoredType::u8, {8});
    w.put_rows("t", 0, t);
  });
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int64_t n = 0; n < 200; ++n)
        wrong[i] +=
            file.read_rows("t", n % 8, n % 8 + 1, DType::i32).item() != static_cast<double>(n % 8);
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("an HDF5 file that the guard has not read is not opened, although it takes the name") {
  const test::GuardRemover remover;
  const TemporaryDirectory dir;
  const auto image = [](double value) {
    Hdf5Writer out;
    out.put("x", Tensor::scalar(value));
    return out.image();
  };
  write_file_durably(dir / "a.h5", image(1));
  int calls = 0;
  set_file_guard([&](const RegularFile&) {
    if (calls++ == 0) write_file_durably(dir / "a.h5", image(2));
  });
  // libhdf5 asks for the name of what it opens, which the file has no more.
  CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(dir / "a.h5"); }),
             Contains("a.h5: not a readable HDF5 file"));
  CHECK(calls == 1);
  CHECK(Hdf5Reader::open(dir / "a.h5").read("x").item() == 2);
  CHECK(calls == 2);
}

TEST_CASE("what is not an HDF5 file is refused") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(dir / "none.h5"); }),
             Contains("none.h5: cannot open the file: No such file"));
  CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(dir.path()); }),
             Contains("not a regular file"));
  for (const auto& [text, reason] :
       {std::pair<std::string, std::string>{"", "expected an HDF5 file, got an empty one"},
        {"tokens\ttargets\n", "expected an HDF5 file, got one that does not begin like HDF5"},
        {"\x89HDF\r\n\x1a\n", "not a readable HDF5 file: HDF5: "}}) {
    test::write_text(dir / "text.h5", text);
    CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(dir / "text.h5"); }),
               Contains("text.h5: " + reason));
    CHECK_THROWS_AS(Hdf5Reader::from_image(read_file(dir / "text.h5"), "text"), DataError);
  }
}

TEST_CASE("groups are tables of symbols, whatever they hold") {
  const TemporaryDirectory dir;
  Hdf5Writer file;
  for (int i = 0; i < 100; ++i) file.put(concat_message("g/t", i), Tensor::scalar(i));
  file.put("\u03bb", Tensor::scalar(0));  // a name that is not ASCII
  file.attribute("g", "\u03bb", int64_t{1});
  file.create_group("empty");
  write_file_durably(dir / "t.h5", file.image());
  CHECK(Hdf5Reader::open(dir / "t.h5").children("/") ==
        std::vector<std::string>{"empty", "g", "\u03bb"});
  const hid_t id = H5Fopen((dir / "t.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  for (const char* const group : {"/", "g", "empty"}) {
    H5G_info_t info;
    REQUIRE(H5Gget_info_by_name(id, group, &info, H5P_DEFAULT) >= 0);
    CHECK(info.storage_type == H5G_STORAGE_TYPE_SYMBOL_TABLE);
  }
  H5Fclose(id);
}

TEST_CASE("groups and objects in newer formats are refused before they are searched") {
  const TemporaryDirectory dir;
  const auto with_names = [&](int count, bool utf8) {
    return forge(dir, [&](hid_t file) {
      const hid_t links = H5Pcreate(H5P_LINK_CREATE);
      if (utf8) H5Pset_char_encoding(links, H5T_CSET_UTF8);
      for (int i = 0; i < count; ++i) {
        const hid_t group =
            H5Gcreate2(file, concat_message("x", i).c_str(), links, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(group);
      }
      H5Pclose(links);
    });
  };
  CHECK(Hdf5Reader::open(with_names(20, false)).children("/").size() == 20);
  for (const int count : {2, 20}) {  // compact and dense
    auto file = Hdf5Reader::open(with_names(count, true));
    const std::string expected = "forged.h5: /: a group of the new style of HDF5, expected a table";
    CHECK_THAT(message_of<DataError>([&] { file.children("/"); }), Contains(expected));
    CHECK_THAT(message_of<DataError>([&] { file.datasets("/"); }), Contains(expected));
    CHECK_THAT(message_of<DataError>([&] { file.has("x1"); }),
               Contains("a group of the new style"));
    CHECK(file.attributes("/").empty());  // needs no search of the group
    file.allow_new_style_groups();
    CHECK(file.children("/").size() == static_cast<size_t>(count));
  }

  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
  const hid_t latest = H5Fcreate((dir / "latest.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  put<int>(latest, H5T_STD_I32LE, H5T_NATIVE_INT, {1});
  H5Fclose(latest);
  CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(dir / "latest.h5").read("x"); }),
             Contains("a group of the new style"));

  // A dataset in a new format, in a group that is a table of symbols.
  H5Fclose(H5Fcreate((dir / "mixed.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const hid_t mixed = H5Fopen((dir / "mixed.h5").c_str(), H5F_ACC_RDWR, access);
  put<int>(mixed, H5T_STD_I32LE, H5T_NATIVE_INT, {1});
  H5Fclose(mixed);
  H5Pclose(access);
  CHECK_THAT(refusal(dir / "mixed.h5"), Contains("object header version 2, expected version 1"));
}

TEST_CASE("a survey reads everything and counts what cannot be read") {
  const TemporaryDirectory dir;
  Hdf5Writer file;
  file.create_rows("a/rows", StoredType::u8, {5, 3});
  file.put_rows("a/rows", 0, Tensor::full({5, 3}, 7, DType::i32));
  file.put("a/b/c/t", Tensor::scalar(1));
  file.attribute("a", "n", int64_t{1});
  file.attribute("a/rows", "text", "x");
  auto bytes = file.image();
  write_file_durably(dir / "t.h5", bytes);
  const Survey whole = survey(RegularFile(dir / "t.h5"));
  CHECK(whole.groups == 4);
  CHECK(whole.datasets == 2);
  CHECK(whole.attributes == 2);
  CHECK(whole.refused == 0);

  const auto damaged = forge(dir, [](hid_t id) {
    put<int>(id, H5T_STD_I32LE, H5T_NATIVE_INT, {1});
    H5Lcreate_external("other.h5", "/x", id, "out", H5P_DEFAULT, H5P_DEFAULT);
  });
  const Survey part = survey(RegularFile(damaged));
  CHECK(part.datasets == 1);
  CHECK(part.refused == 1);
  CHECK_THAT(part.first_refusal, Contains("out: is an external link"));

  const auto refuses = [&](const char* reason) {
    const Survey found = survey(RegularFile(dir / "t.h5"));
    CHECK(found.refused == 1);
    CHECK_THAT(found.first_refusal, Contains(reason));
  };
  // Compressed values, which lie at the end of the file, and an attribute of two values.
  Tensor noise = Tensor::empty({64, 64}, DType::f32);
  fill_uniform(noise, Generator(3), 0, 1);
  Hdf5Writer packed;
  packed.create_rows("r", StoredType::f32, noise.shape());
  packed.put_rows("r", 0, noise);
  bytes = packed.image();
  bytes[bytes.size() - 300] ^= std::byte{16};
  write_file_durably(dir / "t.h5", bytes);
  refuses("r: cannot read the values");
  std::filesystem::rename(
      forge(dir,
            [](hid_t id) {
              const hsize_t two = 2;
              const hid_t space = H5Screate_simple(1, &two, nullptr);
              H5Aclose(H5Acreate2(id, "pair", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT));
              H5Sclose(space);
            }),
      dir / "t.h5");
  refuses("attribute \"pair\": expected a single value");
}

TEST_CASE("every truncation is detected") {
  Hdf5Writer file;
  file.put("t", Tensor::full({200}, 1));
  file.create_rows("r", StoredType::u8, {50, 10});
  file.put_rows("r", 0, Tensor::full({50, 10}, 3, DType::i32));
  const auto image = file.image();
  const TemporaryDirectory dir;
  for (size_t size = 0; size < image.size(); size += 1 + size / 16) {
    INFO(size << " of " << image.size());
    const auto part = std::span(image).first(size);
    CHECK_THROWS_AS(Hdf5Reader::from_image(part, "part"), DataError);
    write_file_durably(dir / "part.h5", part);
    CHECK_THROWS_AS(Hdf5Reader::open(dir / "part.h5"), DataError);
  }
}

TEST_CASE("a flipped bit in compressed rows is detected") {
  std::vector<int32_t> numbers(64 * 64);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * i % 1009);
  const Tensor values = Tensor::from(numbers, {64, 64});
  Hdf5Writer file;
  file.create_rows("r", StoredType::i32, values.shape());
  file.put_rows("r", 0, values);
  const auto image = file.image();
  CHECK(identical(Hdf5Reader::from_image(image, "x").read("r"), values));

  // The values lie at the end of the file.
  auto damaged = image;
  damaged[image.size() - 300] ^= std::byte{16};
  const auto reader = Hdf5Reader::from_image(damaged, "damaged.h5");
  CHECK_THAT(message_of<DataError>([&] { reader.read("r"); }),
             Contains("damaged.h5: /r: cannot read the values: HDF5: "));
}

TEST_CASE("a small file that claims huge data is refused before memory is taken") {
  const TemporaryDirectory dir;
  const hsize_t huge = hsize_t{1} << 40;
  const auto contiguous = forge(dir, [&](hid_t file) {
    H5Dclose(make_dataset(file, H5T_NATIVE_FLOAT, {huge}, H5P_DEFAULT));
  });
  CHECK_THAT(refusal(contiguous),
             Contains("[1099511627776] takes 4398046511104 bytes, but only 0"));

  const auto chunked = forge(dir, [&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 1024;
    H5Pset_chunk(properties, 1, &chunk);
    H5Pset_deflate(properties, 9);
    H5Dclose(make_dataset(file, H5T_NATIVE_FLOAT, {huge}, properties));
    H5Pclose(properties);
  });
  CHECK_THAT(refusal(chunked), Contains("too few even if packed"));

  const auto overflowing = forge(dir, [&](hid_t file) {
    H5Dclose(make_dataset(file, H5T_NATIVE_FLOAT, {huge, huge, 0}, H5P_DEFAULT));
  });
  CHECK_THAT(refusal(overflowing), Contains("is too large"));
}

TEST_CASE("nothing outside the file is read") {
  const TemporaryDirectory dir;
  test::write_text(dir / "secret", "0123456789abcdef");
  const auto external = forge(dir, [&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(properties, (dir / "secret").c_str(), 0, 16);
    H5Dclose(make_dataset(file, H5T_NATIVE_INT, {4}, properties));
    H5Pclose(properties);
  });
  CHECK_THAT(refusal(external), Contains("are stored in another file"));

  const auto virtual_dataset = forge(dir, [&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t size = 4;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    REQUIRE(H5Pset_virtual(properties, space, (dir / "other.h5").c_str(), "x", space) >= 0);
    H5Dclose(make_dataset(file, H5T_NATIVE_INT, {4}, properties));
    H5Sclose(space);
    H5Pclose(properties);
  });
  CHECK_THAT(refusal(virtual_dataset), Contains("virtual"));

  const auto link = forge(dir, [&](hid_t file) {
    REQUIRE(H5Lcreate_external((dir / "other.h5").c_str(), "/x", file, "x", H5P_DEFAULT,
                               H5P_DEFAULT) >= 0);
  });
  // Only groups of the new style can hold such links.
  CHECK_THAT(refusal(link), Contains("a group of the new style"));
  CHECK_THAT(message_of<DataError>([&] {
               Hdf5Reader behind_guard = Hdf5Reader::open(link);
               behind_guard.allow_new_style_groups();
               behind_guard.read("x");
             }),
             Contains("external link"));
  const auto soft = forge(dir, [&](hid_t file) {
    REQUIRE(H5Lcreate_soft("/y", file, "x", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  });
  CHECK_THAT(refusal(soft), Contains("external link"));
}

TEST_CASE("unsupported types, filters and layouts are refused") {
  const TemporaryDirectory dir;
  const auto text = forge(dir, [](hid_t file) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Dclose(make_dataset(file, type, {2}, H5P_DEFAULT));
    H5Tclose(type);
  });
  CHECK_THAT(refusal(text), Contains("neither integers of up to 64 bits nor floats"));

  const auto packed = forge(dir, [](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 4;
    H5Pset_chunk(properties, 1, &chunk);
    H5Pset_scaleoffset(properties, H5Z_SO_INT, 0);
    H5Dclose(make_dataset(file, H5T_NATIVE_INT, {4}, properties));
    H5Pclose(properties);
  });
  CHECK_THAT(refusal(packed), Contains("is packed by filter 6; deflate"));

  const auto deep = forge(dir, [](hid_t file) {
    H5Dclose(make_dataset(file, H5T_NATIVE_INT, {1, 1, 1, 1, 1, 1, 1}, H5P_DEFAULT));
  });
  CHECK_THAT(refusal(deep), Contains("7 axes, at most 6"));
}

TEST_CASE("a group that contains itself does not run forever") {
  const TemporaryDirectory dir;
  const auto path = forge(dir, [](hid_t file) {
    const hid_t group = H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(H5Lcreate_hard(group, ".", group, "a", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    H5Gclose(group);
  });
  CHECK_THAT(message_of<DataError>([&] { Hdf5Reader::open(path).datasets("/"); }),
             Contains("a group with two paths"));
}
