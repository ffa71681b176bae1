// Types of values.
#pragma once

#include <string>

#include "ir/dim.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace gradus::ir {

enum class TypeKind : uint8_t { tensor, handle };

// f32[N, 3], or the handle that an opaque function leaves for `eval`.
struct Type {
  DType dtype = DType::f32;
  TypeKind kind = TypeKind::tensor;
  Device device;
  Dims dims;

  Type() = default;
  Type(DType d, Dims sizes, Device where = {}) : dtype(d), device(where), dims(std::move(sizes)) {}
  static Type handle() {
    Type t;
    t.kind = TypeKind::handle;
    return t;
  }

  bool is_tensor() const { return kind == TypeKind::tensor; }
  bool is_floating() const { return is_tensor() && gradus::is_floating(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  friend bool operator==(const Type&, const Type&) = default;
};

// As program text: "f64[N, 3]", "f32[2]@cuda:0", "handle".
std::string to_string(const Type& type);

}  // namespace gradus::ir
