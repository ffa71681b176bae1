#include "io/onnx/model.h"

#include <algorithm>
#include <array>
#include <bit>

#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "gradus/messages.h"
#include "gradus/onnx.h"
#include "io/onnx/narrow.h"

namespace gradus::onnx {

namespace pb = ::onnx;

static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

std::string read_whole_file(const std::string& path) {
  InputFile file(path);
  if (file.size() >= uint64_t{1} << 31)
    throw Error("{}: a model file is smaller than 2 GiB; keep weights in files of their own", path);
  std::string bytes(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::unique_ptr<pb::ModelProto> read_model(std::string_view bytes, const std::string& name) {
  auto model = std::make_unique<pb::ModelProto>();
  if (bytes.size() >= uint64_t{1} << 31 ||
      !model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    throw Error("{}: it is no ONNX model, or is cut short: protobuf cannot read it", name);
  if (!model->has_graph()) throw Error("{}: it is no ONNX model: it has no graph", name);
  return model;
}

namespace {

constexpr std::pair<int, DType> element_types[] = {
    {pb::TensorProto::FLOAT, DType::f32},    {pb::TensorProto::DOUBLE, DType::f64},
    {pb::TensorProto::FLOAT16, DType::f16},  {pb::TensorProto::BFLOAT16, DType::bf16},
    {pb::TensorProto::INT64, DType::i64},    {pb::TensorProto::INT32, DType::i32},
    {pb::TensorProto::INT8, DType::i8},      {pb::TensorProto::UINT8, DType::u8},
    {pb::TensorProto::BOOL, DType::boolean}, {pb::TensorProto::INT16, DType::i16},
    {pb::TensorProto::UINT16, DType::u16},   {pb::TensorProto::UINT32, DType::u32},
    {pb::TensorProto::UINT64, DType::u64}};
static_assert(std::size(element_types) == dtype_count);

// Those that came after libonnx 1.12, from FLOAT8E4M3FN = 17 on.
constexpr std::string_view later_element_types[] = {
    "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",
    "float4e2m1",   "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
constexpr int first_later_type = pb::TensorProto::BFLOAT16 + 1;

bool is_later_type(int element_type) {
  return element_type >= first_later_type &&
         element_type < first_later_type + static_cast<int>(std::size(later_element_types));
}

}  // namespace

std::string element_type_name(int element_type) {
  if (is_later_type(element_type))
    return std::string(later_element_types[element_type - first_later_type]);
  if (!pb::TensorProto::DataType_IsValid(element_type)) return std::to_string(element_type);
  std::string name =
      pb::TensorProto::DataType_Name(static_cast<pb::TensorProto::DataType>(element_type));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

DType dtype_of(int element_type, const std::string& what) {
  for (auto [number, dtype] : element_types)
    if (number == element_type) return dtype;
  if (element_type == pb::TensorProto::UNDEFINED ||
      (!pb::TensorProto::DataType_IsValid(element_type) && !is_later_type(element_type)))
    throw Error("{}: {} is no element type", what, element_type);
  std::string name = element_type_name(element_type);
  throw Unsupported(fmt::format("{}: there are no tensors of {} here", what, name),
                    "dtype " + name);
}

int element_type_of(DType dtype) {
  return std::ranges::find(element_types, dtype, &std::pair<int, DType>::second)->first;
}

Tensor tensor_with(DType dtype, const std::vector<double>& values) {
  return Tensor::from(dtype, std::array{static_cast<int64_t>(values.size())}, values);
}
Tensor tensor_with(std::span<const int64_t> values, std::span<const int64_t> shape) {
  Tensor t = Tensor::empty(DType::i64, shape);
  std::ranges::copy(values, t.mutable_data_as<int64_t>());
  return t;
}
Tensor tensor_with(std::span<const int64_t> values) {
  return tensor_with(values, std::array{static_cast<int64_t>(values.size())});
}

namespace {

// The field that has elements of that type, where they are no raw bytes.
template <class T>
const auto& field_of(const pb::TensorProto& t) {
  if constexpr (std::is_same_v<T, float>)
    return t.float_data();
  else if constexpr (std::is_same_v<T, double>)
    return t.double_data();
  else if constexpr (std::is_same_v<T, int64_t>)
    return t.int64_data();
  else if constexpr (std::is_same_v<T, uint64_t> || std::is_same_v<T, uint32_t>)
    return t.uint64_data();
  else
    return t.int32_data();
}

int64_t field_size(const pb::TensorProto& t, DType dtype) {
  int64_t size = 0;
  visit_dtype(dtype, [&](auto tag) { size = field_of<typename decltype(tag)::type>(t).size(); });
  return size;
}

void copy_field(const pb::TensorProto& t, Tensor& tensor) {
  visit_dtype(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = tensor.mutable_data_as<T>();
    for (auto element : field_of<T>(t)) {
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
        *out++ = std::bit_cast<T>(static_cast<uint16_t>(element));
      else
        *out++ = static_cast<T>(element);
    }
  });
}

Sizes sizes_of(const pb::TensorProto& t, const std::string& what, int64_t& elements) {
  Sizes shape;
  elements = 1;
  bool empty = false;
  for (int64_t n : t.dims()) {
    if (n < 0) throw Error("{}: a size is {}; sizes are not negative", what, n);
    shape.push_back(n);
    empty = empty || n == 0;
  }
  for (int64_t n : shape)
    if (!empty && __builtin_mul_overflow(elements, n, &elements))
      throw Error("{}: its number of elements cannot be counted", what);
  if (empty) elements = 0;
  return shape;
}

// Whatever byte a file has for a bool, in memory it is 0 or 1.
void settle_bools(Tensor& tensor) {
  if (tensor.dtype() != DType::boolean) return;
  auto* bytes = tensor.mutable_data_as<uint8_t>();
  for (int64_t i = 0; i < tensor.numel(); ++i) bytes[i] = bytes[i] != 0;
}

// The bytes with the codes, one after the other.
Tensor read_codes(const pb::TensorProto& t, const Folder& folder, int64_t bytes,
                  const std::string& what) {
  const Sizes size{bytes};
  if (t.data_location() == pb::TensorProto::EXTERNAL) {
    ExternalData place;
    for (const auto& entry : t.external_data()) place.set(entry.key(), entry.value(), what);
    return read_external(place, folder, DType::u8, size, bytes, what);
  }
  const bool raw = t.has_raw_data();
  const int64_t there =
      raw ? static_cast<int64_t>(t.raw_data().size()) : int64_t{t.int32_data_size()};
  if (there != bytes)
    throw Error("{}: {} of these sizes has {} bytes, the file brings {}", what,
                element_type_name(t.data_type()), bytes, there);
  Tensor codes = Tensor::empty(DType::u8, size);
  auto* out = codes.mutable_data_as<uint8_t>();
  if (raw)
    std::ranges::copy(t.raw_data(), out);
  else
    std::ranges::transform(t.int32_data(), out, [](int32_t x) { return static_cast<uint8_t>(x); });
  return codes;
}

Tensor read_narrow(const pb::TensorProto& t, const NarrowType& type, const Folder& folder,
                   const std::string& what) {
  int64_t elements, held;
  const Sizes shape = sizes_of(t, what, elements);
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(size_of(type.held)), &held))
    throw Error("{}: its bytes cannot be counted", what);
  const Tensor codes = read_codes(t, folder, narrow_bytes(type, elements), what);
  return decoded(type, {codes.data_as<uint8_t>(), static_cast<size_t>(codes.numel())}, shape);
}

}  // namespace

Tensor read_tensor(const pb::TensorProto& t, const Folder& folder, const std::string& what) {
  if (t.has_segment()) throw Unsupported(what + ": a tensor in segments", "tensor segments");
  if (const NarrowType* narrow = narrow_type(t.data_type()))
    return read_narrow(t, *narrow, folder, what);
  DType dtype = dtype_of(t.data_type(), what);
  int64_t elements, bytes;
  Sizes shape = sizes_of(t, what, elements);
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(size_of(dtype)), &bytes))
    throw Error("{}: its bytes cannot be counted", what);
  if (t.data_location() == pb::TensorProto::EXTERNAL) {
    ExternalData place;
    for (const auto& entry : t.external_data()) place.set(entry.key(), entry.value(), what);
    Tensor tensor = read_external(place, folder, dtype, shape, bytes, what);
    settle_bools(tensor);
    return tensor;
  }
  bool raw = t.has_raw_data();
  int64_t there = raw ? static_cast<int64_t>(t.raw_data().size()) : field_size(t, dtype);
  if (there != (raw ? bytes : elements))
    throw Error("{}: {} of these sizes has {} {}, the file brings {}", what, name_of(dtype),
                raw ? bytes : elements, raw ? "bytes" : "elements", there);
  Tensor tensor = Tensor::empty(dtype, shape);
  if (raw)
    std::memcpy(tensor.mutable_data(), t.raw_data().data(), static_cast<size_t>(bytes));
  else
    copy_field(t, tensor);
  settle_bools(tensor);
  return tensor;
}

}  // namespace gradus::onnx
