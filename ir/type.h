// Types of values.
#pragma once

#include <string>
#include <vector>

#include "base/ref.h"
#include "ir/dim.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

enum class TypeKind : uint8_t { tensor, handle };
struct HandleSignature;

// f32[N, 3], or the handle that an opaque function leaves for `eval`.
struct Type {
  DType dtype = DType::f32;
  TypeKind kind = TypeKind::tensor;
  Device device;
  Dims dims;
  Ref<const HandleSignature> signature;  // of a handle made by a node; null for tensors

  Type() = default;
  Type(DType d, Dims sizes, Device where = {}) : dtype(d), device(where), dims(std::move(sizes)) {}
  // A handle that is only said to be one, as a program's text does.
  static Type handle() {
    Type t;
    t.kind = TypeKind::handle;
    return t;
  }
  static Type handle(HandleSignature signature);

  bool is_tensor() const { return kind == TypeKind::tensor; }
  bool is_floating() const { return is_tensor() && gradus::is_floating(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  // Handles are equal if their signatures take and yield the same.
  friend bool operator==(const Type& a, const Type& b) {
    return a.dtype == b.dtype && a.kind == b.kind && a.device == b.device && a.dims == b.dims &&
           (a.signature == b.signature || same_signature(a, b));
  }

 private:
  static bool same_signature(const Type& a, const Type& b);
};

// What an `eval` of a handle takes and yields. All types are of tensors.
struct HandleSignature : RefCounted {
  std::vector<Type> outputs;  // the floating outputs, whose cotangents it takes
  std::vector<Type> inputs;   // the differentiable inputs, whose gradients it yields
  int order = 0;              // how many more derivatives there are; an `eval` needs one
  int declared = 0;           // how many there are of the function, for messages
  std::string function;       // whose derivatives they are

  HandleSignature() = default;
  HandleSignature(HandleSignature&& o) noexcept
      : RefCounted(),
        outputs(std::move(o.outputs)),
        inputs(std::move(o.inputs)),
        order(o.order),
        declared(o.declared),
        function(std::move(o.function)) {}
};

// As program text: "f64[N, 3]", "f32[2]@cuda:0", "handle".
std::string to_string(const Type& type);

}  // namespace gradus::ir

#pragma GCC visibility pop
