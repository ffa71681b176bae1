#include "io/onnx/model.h"

#include <bit>
#include <fstream>

#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "base/text.h"
#include "io/onnx/external.h"
#include "io/onnx/onnx.h"

namespace gradus::onnx {

namespace pb = ::onnx;

static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

std::string read_whole_file(const std::string& path) {
  uint64_t size = regular_file_size(path);
  if (size >= uint64_t{1} << 31)
    throw Error("{}: a model file is smaller than 2 GiB; keep weights in files of their own", path);
  std::string bytes(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (in.gcount() != static_cast<std::streamsize>(size))
    throw Error("{}: it could not be read to its end", path);
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

std::string element_type_name(int element_type) {
  if (!pb::TensorProto::DataType_IsValid(element_type)) return std::to_string(element_type);
  std::string name =
      pb::TensorProto::DataType_Name(static_cast<pb::TensorProto::DataType>(element_type));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

DType dtype_of(int element_type, const std::string& what) {
  switch (element_type) {
    case pb::TensorProto::FLOAT:
      return DType::f32;
    case pb::TensorProto::DOUBLE:
      return DType::f64;
    case pb::TensorProto::FLOAT16:
      return DType::f16;
    case pb::TensorProto::BFLOAT16:
      return DType::bf16;
    case pb::TensorProto::INT64:
      return DType::i64;
    case pb::TensorProto::INT32:
      return DType::i32;
    case pb::TensorProto::INT8:
      return DType::i8;
    case pb::TensorProto::UINT8:
      return DType::u8;
    case pb::TensorProto::BOOL:
      return DType::boolean;
    default:
      break;
  }
  if (element_type == pb::TensorProto::UNDEFINED ||
      !pb::TensorProto::DataType_IsValid(element_type))
    throw Error("{}: {} is no element type", what, element_type);
  std::string name = element_type_name(element_type);
  throw Unsupported(fmt::format("{}: there are no tensors of {} here", what, name),
                    "dtype " + name);
}

namespace {

// The elements of a repeated field, each as the C++ type that stores them.
template <class T, class Field>
void copy_field(const Field& field, Tensor& tensor) {
  T* out = tensor.mutable_data_as<T>();
  for (int i = 0; i < field.size(); ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      out[i] = std::bit_cast<T>(static_cast<uint16_t>(field[i]));
    else
      out[i] = static_cast<T>(field[i]);
  }
}

// How many elements the field of that dtype has.
int64_t field_size(const pb::TensorProto& t, DType dtype) {
  if (dtype == DType::f32) return t.float_data_size();
  if (dtype == DType::f64) return t.double_data_size();
  if (dtype == DType::i64) return t.int64_data_size();
  return t.int32_data_size();
}

void copy_typed(const pb::TensorProto& t, Tensor& tensor) {
  visit_dtype(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float>)
      copy_field<T>(t.float_data(), tensor);
    else if constexpr (std::is_same_v<T, double>)
      copy_field<T>(t.double_data(), tensor);
    else if constexpr (std::is_same_v<T, int64_t>)
      copy_field<T>(t.int64_data(), tensor);
    else
      copy_field<T>(t.int32_data(), tensor);
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

}  // namespace

Tensor read_tensor(const pb::TensorProto& t, const Folder& folder, const std::string& what) {
  DType dtype = dtype_of(t.data_type(), what);
  if (t.has_segment()) throw Unsupported(what + ": a tensor in segments", "tensor segments");
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
    copy_typed(t, tensor);
  settle_bools(tensor);
  return tensor;
}

}  // namespace gradus::onnx
