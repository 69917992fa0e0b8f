#include "longhand/data/hdf5.h"

#include <hdf5.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/data/file_guard.h"

namespace longhand::data {
namespace {

// Whether a file contains HDF5: from its first byte, or after a user block of 512, 1024, … bytes.
bool has_signature(const RegularFile& file) {
  constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";
  std::string found(signature.size(), '\0');
  for (uint64_t at = 0; at + found.size() <= file.size(); at = at == 0 ? 512 : 2 * at) {
    file.read(at, std::as_writable_bytes(std::span(found)));
    if (found == signature) return true;
  }
  return false;
}

// --- access to libhdf5 ---------------------------------------------------------------------------

// During its lifetime this thread owns libhdf5, whose error output is disabled. Meanwhile, do not
// call anything that may run other tasks on this thread (parallel_for): they might need it as well.
class Session {
 public:
  Session() : lock_(mutex()) {
    [[maybe_unused]] static const bool prepared = prepare();
    H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  static bool prepare() {
    // At exit, libhdf5 would close everything it has open, and crash if memory ran out earlier.
    // There is nothing to write.
    H5dont_atexit();
    return H5PLset_loading_state(0) >= 0;  // no filter plug-ins
  }
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;  // leaked: files may be closed by static objects
    return *mutex;
  }

  std::scoped_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// The innermost reason that libhdf5 reports for its last failure, and whether it lacked memory.
struct Failure {
  std::string reason = "unknown reason";
  bool lacked_memory = false;
};
Failure last_failure() {
  Failure failure;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        if (depth > 0) return 0;
        auto& to = *static_cast<Failure*>(out);
        to.lacked_memory = error->maj_num == H5E_RESOURCE_g;
        try {
          if (error->desc && *error->desc) to.reason = error->desc;
        } catch (const std::bad_alloc&) {  // no reason
        }
        return 0;
      },
      &failure);
  return failure;
}

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw DataError(concat_message(parts...));
}

// Whether memory ran out in a callback of this thread's last libhdf5 call: callbacks must not
// throw.
thread_local bool out_of_memory = false;

// Returns the result of a libhdf5 call; if it is negative, throws the parts, then the reason.
template <class Result, class... Parts>
Result must(Result result, const Parts&... parts) {
  if (std::exchange(out_of_memory, false)) throw std::bad_alloc();
  if (result >= 0) return result;
  const Failure failure = last_failure();
  if (failure.lacked_memory) throw std::bad_alloc();
  refuse(parts..., ": HDF5: ", failure.reason);
}

// A libhdf5 identifier that is closed with this object.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
    return *this;
  }

  operator hid_t() const { return id_; }
  void reset() {
    if (id_ >= 0) close_(std::exchange(id_, -1));
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

template <class... Parts>
Handle own(hid_t id, Handle::Close close, const Parts&... parts) {
  return Handle(must(id, parts...), close);
}

// Deletes a state that has handles.
template <class State>
void destroy(State* state) {
  const Session session;
  delete state;
}

// In memory, never on disk. Numbered, since libhdf5 treats files of equal name as the same file.
std::string unique_name() {
  static std::atomic<uint64_t> count = 0;
  return concat_message("longhand-image-", count++);
}

Handle in_memory_access() {
  Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "memory image");
  must(H5Pset_fapl_core(access, size_t{1} << 20, false), "memory image");
  // Otherwise each dataset that has been read would keep a buffer of 64 KB.
  must(H5Pset_sieve_buf_size(access, 0), "memory image");
  // Images with newer superblocks cannot be reopened (1.10.8).
  must(H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST), "memory image");
  return access;
}

// Opens the image held by an access property list in memory.
Handle open_image(hid_t access, const std::string& name) {
  return own(H5Fopen(unique_name().c_str(), H5F_ACC_RDONLY, access), H5Fclose, name,
             ": not a readable HDF5 file");
}

std::array<hsize_t, Shape::max_rank> sizes_of(const Shape& shape) {
  std::array<hsize_t, Shape::max_rank> sizes{};
  std::ranges::transform(shape, sizes.begin(),
                         [](int64_t size) { return static_cast<hsize_t>(size); });
  return sizes;
}

Handle space_of(const Shape& shape, const std::string& what) {
  if (shape.rank() == 0) return own(H5Screate(H5S_SCALAR), H5Sclose, what);
  return own(H5Screate_simple(shape.rank(), sizes_of(shape).data(), nullptr), H5Sclose, what);
}

hid_t memory_type(DType dtype) {
  const hid_t types[] = {H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT32, H5T_NATIVE_INT64,
                         H5T_NATIVE_UINT8};  // in the order of DType
  return types[static_cast<size_t>(dtype)];
}

// A stored type in files, with the lowest and highest value of integers.
struct Format {
  hid_t type;
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
};
template <class T>
Format integers(hid_t type) {
  return {type, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}
Format format_of(StoredType type) {
  const Format formats[] = {{H5T_IEEE_F32LE},  // in the order of StoredType
                            {H5T_IEEE_F64LE},
                            integers<int32_t>(H5T_STD_I32LE),
                            {H5T_STD_I64LE},
                            integers<uint8_t>(H5T_STD_U8LE),
                            integers<int8_t>(H5T_STD_I8LE),
                            integers<uint16_t>(H5T_STD_U16LE),
                            integers<int16_t>(H5T_STD_I16LE)};
  return formats[static_cast<size_t>(type)];
}

/// The dtypes of tensors come first among the stored types, in the same order.
StoredType stored_as(DType dtype) { return static_cast<StoredType>(dtype); }
static_assert(static_cast<int>(StoredType::u8) == static_cast<int>(DType::u8));

// Path parts without empty ones: "/a//b" is a, b.
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts = split_at(path, '/');
  std::erase(parts, "");
  return parts;
}

std::string absolute(const std::string& path) { return path.starts_with('/') ? path : '/' + path; }

// Selects rows begin … begin+count-1 in a space of the given shape.
void select_rows(hid_t space, const Shape& shape, int64_t begin, int64_t count,
                 const std::string& what) {
  std::array<hsize_t, Shape::max_rank> start{}, sizes = sizes_of(shape);
  start[0] = static_cast<hsize_t>(begin);
  sizes[0] = static_cast<hsize_t>(count);
  must(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, sizes.data(), nullptr),
       what);
}

Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

StoredType narrowest(int64_t low, int64_t high) {
  using enum StoredType;
  for (const StoredType type : {u8, i8, u16, i16, i32}) {
    const Format format = format_of(type);
    if (format.low <= low && high <= format.high) return type;
  }
  return i64;
}

// --- writer --------------------------------------------------------------------------------------

struct Hdf5Writer::State {
  struct Rows {
    Handle dataset;
    StoredType type;
    Shape shape;
  };
  Handle file, links, plain;         // properties of links, and of datasets without chunks
  std::map<std::string, Rows> rows;  // datasets in progress

  Handle create(const std::string& path, StoredType type, const Shape& shape, hid_t properties) {
    const Handle space = space_of(shape, path);
    return own(H5Dcreate2(file, absolute(path).c_str(), format_of(type).type, space, links,
                          properties, H5P_DEFAULT),
               H5Dclose, path, ": cannot create the dataset");
  }
};

Hdf5Writer::Hdf5Writer() : state_(new State, destroy<State>) {
  const Session session;
  state_->file =
      own(H5Fcreate(unique_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, in_memory_access()),
          H5Fclose, "cannot create an image in memory");
  // Links keep the default encoding, ASCII: with another one, libhdf5 writes groups of the new
  // style, which Hdf5Reader refuses.
  state_->links = own(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "properties");
  must(H5Pset_create_intermediate_group(state_->links, 1), "properties");
  // no timestamps: files with the same contents must be bitwise identical
  state_->plain = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "properties");
  must(H5Pset_obj_track_times(state_->plain, false), "properties");
}

void Hdf5Writer::create_group(const std::string& path) {
  const Session session;
  own(H5Gcreate2(state_->file, absolute(path).c_str(), state_->links, H5P_DEFAULT, H5P_DEFAULT),
      H5Gclose, path, ": cannot create the group");
}

void Hdf5Writer::put(const std::string& path, const Tensor& value) {
  check<DataError>(value.defined(), path, ": an undefined tensor cannot be stored");
  const Tensor dense = value.contiguous();
  const Session session;
  const Handle dataset =
      state_->create(path, stored_as(value.dtype()), value.shape(), state_->plain);
  if (value.numel() == 0) return;
  must(
      H5Dwrite(dataset, memory_type(value.dtype()), H5S_ALL, H5S_ALL, H5P_DEFAULT, dense.address()),
      path, ": cannot store the values");
}

void Hdf5Writer::create_rows(const std::string& path, StoredType type, const Shape& shape) {
  check<DataError>(shape.rank() >= 1, path,
                   ": expected at least one axis for a dataset of rows, got a scalar");
  const Session session;
  const Handle properties = own(H5Pcopy(state_->plain), H5Pclose, path);
  if (shape.numel() > 0) {
    // Small chunks of whole rows, because reading one row decompresses its chunk.
    constexpr int64_t chunk_bytes = 1 << 14;
    const int64_t element = static_cast<int64_t>(H5Tget_size(format_of(type).type));
    const int64_t row_bytes = shape.numel() / shape[0] * element;
    const int64_t chunk_rows = std::clamp<int64_t>(chunk_bytes / row_bytes, 1, shape[0]);
    must(H5Pset_chunk(properties, shape.rank(), sizes_of(with_rows(shape, chunk_rows)).data()),
         path);
    if (element > 1) must(H5Pset_shuffle(properties), path);
    must(H5Pset_deflate(properties, 4), path);  // with its own checksum
  }
  Handle dataset = state_->create(path, type, shape, properties);
  state_->rows[absolute(path)] = {std::move(dataset), type, shape};
}

void Hdf5Writer::put_rows(const std::string& path, int64_t begin, const Tensor& rows) {
  const Tensor dense = rows.contiguous();
  const Session session;
  const auto found = state_->rows.find(absolute(path));
  check<DataError>(found != state_->rows.end(), path, ": expected a dataset made by create_rows()");
  const auto& [dataset, type, shape] = found->second;
  check<ShapeError>(rows.rank() == shape.rank() && begin >= 0 && begin + rows.size(0) <= shape[0] &&
                        rows.shape() == with_rows(shape, rows.size(0)),
                    path, ": rows of shape ", rows.shape(), " from row ", begin,
                    " do not fit a dataset of shape ", shape);
  if (rows.numel() == 0) return;

  const Handle space = own(H5Dget_space(dataset), H5Sclose, path);
  select_rows(space, shape, begin, rows.size(0), path);
  const Handle memory_space = space_of(rows.shape(), path);
  dispatch_any(rows.dtype(), [&, type = type, &dataset = dataset]<class T>() {
    const T* const p = dense.data<T>();
    if constexpr (std::is_integral_v<T>) {
      const auto [unused, low, high] = format_of(type);
      for (int64_t i = 0; i < rows.numel(); ++i)
        check<DataError>(low <= p[i] && p[i] <= high, path, ": row ",
                         begin + i / (rows.numel() / rows.size(0)), ": ", int64_t{p[i]},
                         " is not in ", low, " … ", high);
    }
    must(H5Dwrite(dataset, memory_type(rows.dtype()), memory_space, space, H5P_DEFAULT, p), path,
         ": cannot store the values");
  });
}

void Hdf5Writer::attribute(const std::string& path, const std::string& key,
                           const AttributeValue& value) {
  const Session session;
  const std::string what = concat_message(absolute(path), ": attribute \"", key, "\"");
  const Handle object =
      own(H5Oopen(state_->file, absolute(path).c_str(), H5P_DEFAULT), H5Oclose, what);
  const Handle space = space_of({}, what);
  const auto write = [&](hid_t stored, hid_t memory, const void* data) {
    const Handle attribute = own(
        H5Acreate2(object, key.c_str(), stored, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
    must(H5Awrite(attribute, memory, data), what);
  };
  if (const auto* const number = std::get_if<int64_t>(&value)) {
    write(H5T_STD_I64LE, H5T_NATIVE_INT64, number);
  } else if (const auto* const real = std::get_if<double>(&value)) {
    write(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, real);
  } else {
    const auto& text = std::get<std::string>(value);
    check<DataError>(text.find('\0') == std::string::npos, what,
                     ": text with NUL cannot be stored");
    const Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, what);
    // libhdf5 does not support strings of size 0; the NUL padding is not part of the text
    must(H5Tset_size(type, std::max<size_t>(text.size(), 1)), what);
    must(H5Tset_strpad(type, H5T_STR_NULLPAD), what);
    must(H5Tset_cset(type, H5T_CSET_UTF8), what);
    write(type, type, text.c_str());
  }
}

std::vector<std::byte> Hdf5Writer::image() const {
  const Session session;
  const std::string what = "cannot get the image of a file in memory";
  must(H5Fflush(state_->file, H5F_SCOPE_GLOBAL), what);
  const ssize_t size = must(H5Fget_file_image(state_->file, nullptr, 0), what);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(size) + 64);  // a trailer is appended without a copy
  bytes.resize(static_cast<size_t>(size));
  must(H5Fget_file_image(state_->file, bytes.data(), bytes.size()), what);
  return bytes;
}

// --- reader --------------------------------------------------------------------------------------

namespace {

// A dataset that has been validated and may be read.
struct Stored {
  Handle dataset;
  Shape shape;
  bool is_integer = false, is_signed = false, is_enum = false, is_chunked = false;
  size_t size = 0;  // bytes of an element

  // Whether T can represent every value of the stored integer type.
  template <class T>
  bool fits() const {
    if (is_signed) return std::is_signed_v<T> && size <= sizeof(T);
    return std::is_signed_v<T> ? size < sizeof(T) : size <= sizeof(T);
  }

  DType natural() const {
    if (!is_integer) return size <= 4 ? DType::f32 : DType::f64;
    if (is_enum && size == 1) return DType::u8;  // booleans as stored by h5py
    if (fits<uint8_t>()) return DType::u8;
    return fits<int32_t>() ? DType::i32 : DType::i64;
  }
};

// The number of bytes of the decompressed dataset, rounded up to whole chunks; throws if the layout
// or the filters, given by the dataset's properties, are not supported.
uint64_t unpacked_bytes(hid_t properties, const Shape& shape, size_t element,
                        const std::string& what) {
  check<DataError>(must(H5Pget_external_count(properties), what) == 0, what,
                   ": its values are stored in another file, which is not supported");
  uint64_t bytes = element;
  const auto times = [&](uint64_t n) {
    check<DataError>(!__builtin_mul_overflow(bytes, n, &bytes), what, ": shape ", shape,
                     " is too large");
  };

  if (must(H5Pget_layout(properties), what) != H5D_CHUNKED) {
    for (const int64_t size : shape) times(static_cast<uint64_t>(size));
    return bytes;
  }
  for (unsigned i = 0, n = must(H5Pget_nfilters(properties), what); i < n; ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    const auto filter =
        must(H5Pget_filter2(properties, i, &flags, &values, nullptr, 0, nullptr, &config), what);
    check<DataError>(filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE ||
                         filter == H5Z_FILTER_FLETCHER32,
                     what, ": is packed by filter ", static_cast<int>(filter),
                     "; deflate (gzip), shuffle and fletcher32 are supported");
  }
  std::array<hsize_t, Shape::max_rank> chunk{};
  check<DataError>(
      must(H5Pget_chunk(properties, Shape::max_rank, chunk.data()), what) == shape.rank(), what,
      ": chunks of another rank than the dataset");
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const uint64_t size = static_cast<uint64_t>(shape[axis]), step = chunk[axis];
    check<DataError>(step > 0, what, ": chunks of size 0");
    times(size / step + (size % step != 0));
    times(step);
  }
  return bytes;
}

// Opens a dataset and validates its type, its shape, and that the file is large enough to hold it.
Stored look_over(Handle object, uint64_t file_bytes, const std::string& what) {
  Stored stored;
  stored.dataset = std::move(object);
  const hid_t dataset = stored.dataset;

  // Before any call that would follow its external sources.
  const Handle properties = own(H5Dget_create_plist(dataset), H5Pclose, what);
  const H5D_layout_t layout = must(H5Pget_layout(properties), what);
  check<DataError>(layout != H5D_VIRTUAL, what,
                   ": virtual datasets, whose values are stored elsewhere, are not supported");
  stored.is_chunked = layout == H5D_CHUNKED;

  const Handle type = own(H5Dget_type(dataset), H5Tclose, what);
  const H5T_class_t kind = H5Tget_class(type);
  stored.size = H5Tget_size(type);
  stored.is_enum = kind == H5T_ENUM;
  stored.is_integer = kind == H5T_INTEGER || stored.is_enum;
  check<DataError>((stored.is_integer || kind == H5T_FLOAT) && stored.size >= 1 &&
                       stored.size <= 16 && (!stored.is_integer || stored.size <= 8),
                   what, ": its elements are neither integers of up to 64 bits nor floats");
  if (stored.is_integer) {
    const Handle base = stored.is_enum ? own(H5Tget_super(type), H5Tclose, what)
                                       : own(H5Tcopy(type), H5Tclose, what);
    check<DataError>(H5Tget_class(base) == H5T_INTEGER, what, ": its elements are not integers");
    stored.is_signed = H5Tget_sign(base) == H5T_SGN_2;
  }

  const Handle space = own(H5Dget_space(dataset), H5Sclose, what);
  check<DataError>(H5Sget_simple_extent_type(space) != H5S_NULL, what, ": has no elements");
  const int rank = must(H5Sget_simple_extent_ndims(space), what);
  check<DataError>(rank <= Shape::max_rank, what, ": ", rank, " axes, at most ", Shape::max_rank,
                   " are supported");
  std::array<hsize_t, Shape::max_rank> sizes{};
  must(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), what);
  for (int axis = 0; axis < rank; ++axis) {
    check<DataError>(std::in_range<int64_t>(sizes[axis]), what, ": axis ", axis, " is too long");
    stored.shape.push_back(static_cast<int64_t>(sizes[axis]));
  }

  const uint64_t unpacked = unpacked_bytes(properties, stored.shape, stored.size, what);
  const uint64_t held = H5Dget_storage_size(dataset);
  check<DataError>(held <= file_bytes, what, ": claims ", held, " bytes of a file of ", file_bytes);
  const bool packed = must(H5Pget_nfilters(properties), what) > 0;
  // deflate compresses at most 1032 bytes into one
  const uint64_t most = packed ? held * 1032 : held;
  check<DataError>(unpacked <= most, what, ": shape ", stored.shape, " takes ", unpacked,
                   " bytes, but only ", held, " are in the file",
                   packed ? ", too few even if packed" : "", ": values were never written");
  return stored;
}

// Reads `count` rows from `begin` on (all of a scalar) as elements of a libhdf5 type.
void read_rows_as(const Stored& stored, hid_t type, int64_t begin, int64_t count, void* to,
                  const std::string& what) {
  const bool scalar = stored.shape.rank() == 0;
  const Handle space = own(H5Dget_space(stored.dataset), H5Sclose, what);
  if (!scalar) select_rows(space, stored.shape, begin, count, what);
  const Handle memory = space_of(scalar ? Shape{} : with_rows(stored.shape, count), what);
  must(H5Dread(stored.dataset, type, memory, space, H5P_DEFAULT, to), what,
       ": cannot read the values");
}

// Reads rows of wide integers in blocks and narrows them, if they fit.
template <class T, class Wide>
void read_narrowing(const Stored& stored, int64_t begin, int64_t end, T* out, hid_t wide,
                    const std::string& what) {
  const int64_t width =
      stored.shape.rank() ? stored.shape.numel() / std::max<int64_t>(stored.shape[0], 1) : 1;
  const int64_t step = std::max<int64_t>((int64_t{1} << 17) / std::max<int64_t>(width, 1), 1);
  std::vector<Wide> piece;
  for (int64_t row = begin; row < end; row += step) {
    const int64_t count = std::min(step, end - row);
    piece.resize(static_cast<size_t>(count * width));
    read_rows_as(stored, wide, row, count, piece.data(), what);
    for (size_t i = 0; i < piece.size(); ++i) {
      check<DataError>(std::in_range<T>(piece[i]), what, ": row ",
                       row + static_cast<int64_t>(i) / width, " holds ", piece[i],
                       ", which does not fit ", dtype_of<T>);
      *out++ = static_cast<T>(piece[i]);
    }
  }
}

// Reads rows begin … end-1 (all of a scalar) as `out`'s dtype.
void read_into(const Stored& stored, int64_t begin, int64_t end, Tensor& out,
               const std::string& what) {
  dispatch_any(out.dtype(), [&]<class T>() {
    T* const p = out.data<T>();
    if constexpr (std::is_integral_v<T>) {
      check<DataError>(stored.is_integer, what, ": expected integers, got floating-point numbers");
      if (!stored.fits<T>()) {
        if (!stored.is_signed && stored.size == 8)
          return read_narrowing<T, uint64_t>(stored, begin, end, p, H5T_NATIVE_UINT64, what);
        return read_narrowing<T, int64_t>(stored, begin, end, p, H5T_NATIVE_INT64, what);
      }
    }
    read_rows_as(stored, memory_type(out.dtype()), begin, end - begin, p, what);
  });
}

// For libhdf5 iterations over links or attributes, described by Info: adds a name. Failing to do so
// ends the iteration.
template <class Info>
herr_t add_name(hid_t, const char* name, const Info*, void* names) {
  try {
    static_cast<std::vector<std::string>*>(names)->push_back(name);
    return 0;
  } catch (const std::bad_alloc&) {
    out_of_memory = true;
    return -1;
  }
}

// Identifies an object in its file, regardless of its path.
std::string identity_of(hid_t object, const std::string& what) {
  const auto bytes = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info;
  must(H5Oget_info3(object, &info, H5O_INFO_BASIC), what);
  return bytes(info.token);
#else
  H5O_info_t info;
  must(H5Oget_info2(object, &info, H5O_INFO_BASIC), what);
  return bytes(info.addr);
#endif
}

std::vector<std::string> names_in(hid_t group, const std::string& what) {
  std::vector<std::string> names;
  must(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name<H5L_info_t>, &names), what,
       ": cannot list the group");
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> attribute_names(hid_t object, const std::string& what) {
  std::vector<std::string> names;
  must(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name<H5A_info_t>, &names), what,
       ": cannot list the attributes");
  std::ranges::sort(names);
  return names;
}

// libhdf5 crashes if a variable-length text claims more bytes than there are.
AttributeValue value_of(hid_t attribute, uint64_t file_bytes, bool any_length,
                        const std::string& what) {
  const Handle space = own(H5Aget_space(attribute), H5Sclose, what);
  check<DataError>(must(H5Sget_simple_extent_npoints(space), what) == 1, what,
                   ": expected a single value");
  const Handle type = own(H5Aget_type(attribute), H5Tclose, what);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM: {
      int64_t value = 0;
      must(H5Aread(attribute, H5T_NATIVE_INT64, &value), what);
      return value;
    }
    case H5T_FLOAT: {
      double value = 0;
      must(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), what);
      return value;
    }
    case H5T_STRING: {
      if (must(H5Tis_variable_str(type), what) > 0) {
        check<DataError>(any_length, what, ": text of variable length, expected a fixed one");
        char* text = nullptr;
        must(H5Aread(attribute, type, &text), what);
        std::string value = text ? text : "";
        H5free_memory(text);
        return value;
      }
      const size_t size = H5Tget_size(type);
      check<DataError>(size <= file_bytes, what, ": longer than the file");
      std::string value(size, '\0');
      must(H5Aread(attribute, type, value.data()), what);
      value.resize(std::min(value.find('\0'), value.size()));
      if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) value.resize(value.find_last_not_of(' ') + 1);
      return value;
    }
    default:
      refuse(what, ": is neither a number nor text");
  }
}

// The contents of an object's header, read without following any address in it.
struct Header {
  unsigned version;
  uint64_t messages;  // bit i: a message of type i is present
};

Header header_of(hid_t object, const std::string& what) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_native_info_t info;
  must(H5Oget_native_info(object, &info, H5O_NATIVE_INFO_HDR), what);
#else
  H5O_info_t info;
  must(H5Oget_info2(object, &info, H5O_INFO_HDR), what);
#endif
  return {info.hdr.version, info.hdr.mesg.present};
}

// Throws for what libver='latest' writes, such as attributes in heaps that are indexed by B-trees.
void check_format(hid_t object, const std::string& what) {
  const unsigned version = header_of(object, what).version;
  check<DataError>(version == 1, what, ": object header version ", version,
                   ", expected version 1; write the file with libver=\"earliest\", the default of "
                   "h5py, and without track_order");
}

// Throws unless the links of a group are a table of symbols. Must precede every search of a group.
void check_links(hid_t group, const std::string& what) {
  constexpr uint64_t link_info = 1 << 2, link = 1 << 6, symbol_table = 1 << 17;
  const uint64_t messages = header_of(group, what).messages;
  check<DataError>((messages & symbol_table) != 0 && (messages & (link_info | link)) == 0, what,
                   ": a group of the new style of HDF5, expected a table of symbols; write the "
                   "file with names in ASCII, libver=\"earliest\" and without track_order");
}

constexpr size_t max_depth = 100;  // of groups

}  // namespace

struct Hdf5Reader::State {
  std::optional<RegularFile> on_disk;
  std::string name;
  uint64_t bytes = 0;
  bool any_style = false;   // also new-style groups
  bool any_length = false;  // also variable-length texts
  Handle file;
  std::map<std::string, Stored> open;  // kept open: validating one may take as long as reading it

  std::string what(const std::string& path) const { return name + ": " + absolute(path); }

  // Returns the object, or an empty handle if there is none. Throws for links out of the file.
  Handle find(const std::string& path) const {
    Handle object = own(H5Oopen(file, "/", H5P_DEFAULT), H5Oclose, name);
    for (const std::string& part : parts_of(path)) {
      if (H5Iget_type(object) != H5I_GROUP) return {};
      check_searchable(object, what(path));
      if (must(H5Lexists(object, part.c_str(), H5P_DEFAULT), what(path)) == 0) return {};
      H5L_info_t info;
      must(H5Lget_info(object, part.c_str(), &info, H5P_DEFAULT), what(path));
      check<DataError>(info.type == H5L_TYPE_HARD, what(path), ": \"", part,
                       "\" is an external link, which is not followed");
      object = own(H5Oopen(object, part.c_str(), H5P_DEFAULT), H5Oclose, what(path));
    }
    if (!any_style) check_format(object, what(path));
    return object;
  }

  void check_searchable(hid_t group, const std::string& where) const {
    if (!any_style) check_links(group, where);
  }

  std::vector<std::string> children(hid_t group, const std::string& path) const {
    check<DataError>(H5Iget_type(group) == H5I_GROUP, what(path),
                     ": expected a group, got a dataset");
    check_searchable(group, what(path));
    return names_in(group, what(path));
  }

  Handle get(const std::string& path) const {
    Handle object = find(path);
    check<DataError>(object >= 0, what(path), ": not found in the file");
    return object;
  }

  const Stored& dataset(const std::string& path) {
    const auto found = open.find(path);
    if (found != open.end()) return found->second;
    Handle object = get(path);
    check<DataError>(H5Iget_type(object) == H5I_DATASET, what(path),
                     ": expected a dataset, got a group");
    return open.emplace(path, look_over(std::move(object), bytes, what(path))).first->second;
  }
};

namespace {

/// Opens a file that the guard has read, by its descriptor: its path may now name another file.
Handle open_file(const RegularFile& regular) {
  const std::filesystem::path& name = regular.path();
  std::filesystem::path path = concat_message("/proc/self/fd/", regular.descriptor());
  if (access(path.c_str(), R_OK) != 0) path = name;
  const Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, name.string());
  // a reader needs no locks, and they fail on some network file systems
  must(H5Pset_file_locking(access, false, true), name.string());
  // Up to 32 MB of decompressed chunks are cached for each dataset, so that those of a small one
  // are decompressed once. 32 random rows of 1 KB: 1.0 ms, and 3.6 ms with 64 KB chunks and 1 MB.
  must(H5Pset_cache(access, 0, 8209, size_t{32} << 20, 0.75), name.string());
  return own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, name.string(),
             ": not a readable HDF5 file");
}

/// The bytes of a file as an image that libhdf5 reads where they are mapped: it opens no file.
class MappedImage {
 public:
  explicit MappedImage(const RegularFile& file) : size_(file.size()) {
    check<DataError>(size_ > 0, file.path().string(), ": expected an HDF5 file, got an empty one");
    begin_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    check<DataError>(begin_ != MAP_FAILED, file.path().string(), ": cannot be mapped");
  }
  ~MappedImage() { munmap(begin_, size_); }
  MappedImage(const MappedImage&) = delete;
  MappedImage& operator=(const MappedImage&) = delete;

  Handle open(const std::string& name) const {
    const Handle access = in_memory_access();
    // "Copies" are the image itself, and are not freed.
    H5FD_file_image_callbacks_t in_place{
        [](size_t, H5FD_file_image_op_t, void* image) { return image; },
        [](void* to, const void*, size_t, H5FD_file_image_op_t, void*) { return to; },
        [](void*, size_t, H5FD_file_image_op_t, void*) -> void* { return nullptr; },
        [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; },
        [](void* image) { return image; },
        [](void*) -> herr_t { return 0; },
        begin_};
    must(H5Pset_file_image_callbacks(access, &in_place), name);
    must(H5Pset_file_image(access, begin_, size_), name);
    return open_image(access, name);
  }

 private:
  size_t size_;
  void* begin_;
};

}  // namespace

Hdf5Reader::Hdf5Reader() : state_(new State, destroy<State>) {}

Hdf5Reader Hdf5Reader::from_image(std::span<const std::byte> image, const std::string& name) {
  check<DataError>(!image.empty(), name, ": expected an HDF5 file, got an empty one");
  Hdf5Reader reader;
  State* const state = reader.state_.get();
  state->name = name;
  state->bytes = image.size();
  const Session session;
  const Handle access = in_memory_access();
  // libhdf5 takes a pointer to non-const, but copies the image
  must(H5Pset_file_image(access, const_cast<std::byte*>(image.data()), image.size()), name);
  state->file = open_image(access, name);
  return reader;
}

Hdf5Reader Hdf5Reader::open(const std::filesystem::path& path) { return open(RegularFile(path)); }

Hdf5Reader Hdf5Reader::open(RegularFile file) {
  check<DataError>(has_signature(file), file.path().string(), ": expected an HDF5 file, got ",
                   file.size() == 0 ? "an empty one" : "one that does not begin like HDF5");
  Hdf5Reader reader;
  State* const state = reader.state_.get();
  state->name = file.path().string();
  state->bytes = file.size();
  state->any_length = true;  // h5py writes them
  pass_file_guard(file);
  state->on_disk.emplace(std::move(file));
  const Session session;
  state->file = open_file(*state->on_disk);
  return reader;
}

const std::string& Hdf5Reader::name() const { return state_->name; }

void Hdf5Reader::allow_new_style_groups() { state_->any_style = true; }

bool Hdf5Reader::has(const std::string& path) const {
  const Session session;
  return state_->find(path) >= 0;
}

std::vector<std::string> Hdf5Reader::children(const std::string& path) const {
  const Session session;
  return state_->children(state_->get(path), path);
}

std::vector<std::string> Hdf5Reader::datasets(const std::string& path) const {
  const Session session;
  std::vector<std::string> found;
  std::set<std::string> seen;  // otherwise a group that contains itself would never end
  const auto walk = [&](const auto& self, const std::string& group,
                        const std::string& prefix) -> void {
    const Handle object = state_->get(group);
    check<DataError>(seen.insert(identity_of(object, state_->what(group))).second,
                     state_->what(group), ": a group with two paths");
    check<DataError>(parts_of(group).size() <= max_depth, state_->what(group),
                     ": groups are nested more than ", max_depth, " deep");
    for (const std::string& name : state_->children(object, group)) {
      const std::string child = group + '/' + name;
      if (H5Iget_type(state_->get(child)) == H5I_GROUP)
        self(self, child, prefix + name + '/');
      else
        found.push_back(prefix + name);
    }
  };
  walk(walk, path, "");
  return found;
}

bool Hdf5Reader::is_chunked(const std::string& path) const {
  const Session session;
  return state_->dataset(path).is_chunked;
}

Shape Hdf5Reader::shape(const std::string& path) const {
  const Session session;
  return state_->dataset(path).shape;
}

DType Hdf5Reader::dtype(const std::string& path) const {
  const Session session;
  return state_->dataset(path).natural();
}

Tensor Hdf5Reader::read(const std::string& path) const {
  const Session session;
  const Stored& stored = state_->dataset(path);
  Tensor out = Tensor::empty(stored.shape, stored.natural());
  if (out.numel() > 0)
    read_into(stored, 0, stored.shape.rank() ? stored.shape[0] : 1, out, state_->what(path));
  return out;
}

Tensor Hdf5Reader::read_rows(const std::string& path, int64_t begin, int64_t end,
                             DType dtype) const {
  const Session session;
  const Stored& stored = state_->dataset(path);
  check<DataError>(stored.shape.rank() >= 1 && 0 <= begin && begin <= end && end <= stored.shape[0],
                   state_->what(path), ": rows ", begin, " … ", end, " of shape ", stored.shape);
  Tensor out = Tensor::empty(with_rows(stored.shape, end - begin), dtype);
  if (out.numel() > 0) read_into(stored, begin, end, out, state_->what(path));
  return out;
}

bool Hdf5Reader::has_attribute(const std::string& path, const std::string& key) const {
  const Session session;
  return must(H5Aexists(state_->get(path), key.c_str()), state_->what(path)) > 0;
}

std::vector<std::string> Hdf5Reader::attributes(const std::string& path) const {
  const Session session;
  return attribute_names(state_->get(path), state_->what(path));
}

AttributeValue Hdf5Reader::attribute(const std::string& path, const std::string& key) const {
  const Session session;
  const Handle object = state_->get(path);
  const std::string what = state_->what(path);
  check<DataError>(must(H5Aexists(object, key.c_str()), what) > 0, what, ": has no attribute \"",
                   key, "\"");
  return value_of(own(H5Aopen(object, key.c_str(), H5P_DEFAULT), H5Aclose, what), state_->bytes,
                  state_->any_length, concat_message(what, ": attribute \"", key, "\""));
}

template <class T>
T Hdf5Reader::attribute_as(const std::string& path, const std::string& key) const {
  const AttributeValue value = attribute(path, key);
  if (const T* const wanted = std::get_if<T>(&value)) return *wanted;
  if constexpr (std::is_same_v<T, double>)
    if (const auto* const number = std::get_if<int64_t>(&value))
      return static_cast<double>(*number);
  constexpr std::string_view kinds[] = {"an integer", "a number", "text"};
  refuse(state_->what(path), ": attribute \"", key, "\": expected ",
         kinds[AttributeValue(T{}).index()], ", got ", kinds[value.index()]);
}

std::string hdf5_version() {  // libhdf5 rejects programs compiled with other headers
  return concat_message(H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE);
}

Survey survey(const RegularFile& regular) {
  const std::string name = regular.path().string();
  const uint64_t bytes = regular.size();
  const MappedImage image(regular);
  const Session session;
  const Handle file = image.open(name);
  Survey out;
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const DataError& error) {
      if (out.refused++ == 0) out.first_refusal = error.what();
    }
  };
  const auto read_attributes = [&](hid_t object, const std::string& what) {
    for (const std::string& key : attribute_names(object, what)) {
      ++out.attributes;
      attempt([&] {
        const std::string where = concat_message(what, ": attribute \"", key, "\"");
        value_of(own(H5Aopen(object, key.c_str(), H5P_DEFAULT), H5Aclose, where), bytes, true,
                 where);
      });
    }
  };
  const auto read_values = [&](Handle object, const std::string& what) {
    ++out.datasets;
    attempt([&] { read_attributes(object, what); });
    const Stored stored = look_over(std::move(object), bytes, what);
    // Contiguous values are read as they are; those in chunks pass through the filters.
    if (!stored.is_chunked || stored.shape.numel() == 0) return;
    const int64_t width = stored.shape.numel() / stored.shape[0];
    const int64_t step = std::max<int64_t>((int64_t{1} << 20) / width, 1);
    const Handle type = own(H5Dget_type(stored.dataset), H5Tclose, what);  // converts nothing
    std::vector<std::byte> values;
    for (int64_t row = 0; row < stored.shape[0]; row += step) {
      const int64_t count = std::min(step, stored.shape[0] - row);
      values.resize(static_cast<size_t>(count * width) * stored.size);
      read_rows_as(stored, type, row, count, values.data(), what);
    }
  };
  std::set<std::string> seen;
  const auto walk = [&](const auto& self, Handle group, const std::string& at,
                        size_t depth) -> void {
    if (depth > max_depth || !seen.insert(identity_of(group, at)).second) return;
    ++out.groups;
    attempt([&] { read_attributes(group, at); });
    for (const std::string& child : names_in(group, at))
      attempt([&] {
        const std::string what = at + '/' + child;
        H5L_info_t info;
        must(H5Lget_info(group, child.c_str(), &info, H5P_DEFAULT), what);
        check<DataError>(info.type == H5L_TYPE_HARD, what, ": is an external link");
        Handle object = own(H5Oopen(group, child.c_str(), H5P_DEFAULT), H5Oclose, what);
        const H5I_type_t type = H5Iget_type(object);
        if (type == H5I_GROUP) self(self, std::move(object), what, depth + 1);
        if (type == H5I_DATASET) read_values(std::move(object), what);
      });
  };
  attempt(
      [&] { walk(walk, own(H5Oopen(file, "/", H5P_DEFAULT), H5Oclose, name), name + ": ", 0); });
  return out;
}

template int64_t Hdf5Reader::attribute_as<int64_t>(const std::string&, const std::string&) const;
template double Hdf5Reader::attribute_as<double>(const std::string&, const std::string&) const;
template std::string Hdf5Reader::attribute_as<std::string>(const std::string&,
                                                           const std::string&) const;

}  // namespace longhand::data
