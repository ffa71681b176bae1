// Types of values, and dimension expressions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/dtype.h"
#include "gradus/internal.h"
#include "gradus/ref.h"
#include "gradus/small_vector.h"
#include "gradus/tensor.h"

namespace gradus::ir {
class DimExpression;
}

#pragma GCC visibility push(default)

// Dimension expressions: sizes of tensors, as polynomials of named sizes.

namespace gradus::ir {

// The sizes of names, which are known while a stage runs.
class DimEnvironment {
 public:
  virtual ~DimEnvironment() = default;
  virtual std::optional<int64_t> find(std::string_view symbol) const = 0;
};

// An immutable integer expression in canonical form: a sorted sum of products of names, `//`, `max`
// and `min` terms. Equal polynomials therefore compare equal: N + M == M + N. Constants use no heap
// memory. Thread-safe to copy and read. Arithmetic throws Error if a coefficient overflows or the
// expression becomes too large.
class Dim {
 public:
  Dim(int64_t value = 0) : value_(value) {}  // NOLINT: a size is often a plain number
  static Dim symbol(std::string_view name);

  bool is_constant() const { return !expression_; }
  std::optional<int64_t> constant() const {
    return expression_ ? std::nullopt : std::optional<int64_t>(value_);
  }
  // The constant. Valid only if is_constant().
  int64_t value() const { return value_; }
  // The name, if the expression is only a name; otherwise empty.
  std::string_view symbol_name() const;

  friend GRADUS_PUBLIC Dim operator+(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim operator-(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim operator*(const Dim& a, const Dim& b);
  // Rounds toward minus infinity. Throws Error for a division by the constant zero.
  friend GRADUS_PUBLIC Dim floor_div(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim max(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim min(const Dim& a, const Dim& b);
  // Equality of canonical forms. True proves that the values are equal. False proves nothing,
  // unless both are constant.
  friend GRADUS_PUBLIC bool operator==(const Dim& a, const Dim& b);

  // True proves that the value is never negative (names stand for sizes). False proves nothing,
  // unless the expression is constant.
  bool known_nonnegative() const;

  // Returns program text: "N", "2*N + 1", "max(N, M) // 2".
  std::string to_string() const;
  // Returns the value. Throws Error for a name without a size, a division by zero, and an overflow.
  int64_t evaluate(const DimEnvironment& sizes) const;
  // Calls `each` with every name, possibly several times.
  void for_each_symbol(const std::function<void(std::string_view)>& each) const;
  // Replaces names. A name for which `replace` returns nullopt remains.
  Dim substitute(const std::function<std::optional<Dim>(std::string_view)>& replace) const;
  // Returns coefficient and rest, if the expression is coefficient * name + rest and contains the
  // name nowhere else.
  struct Linear;
  std::optional<Linear> linear_in(std::string_view symbol) const;

 private:
  friend class DimExpression;
  explicit Dim(Ref<const DimExpression> e);
  int64_t value_ = 0;
  const DimExpression* expression() const;
  Ref<const RefCounted> expression_;  // a DimExpression; null for a constant
};

}  // namespace gradus::ir

template <>
inline constexpr bool gradus::is_relocatable<gradus::ir::Dim> = true;

namespace gradus::ir {

struct Dim::Linear {
  int64_t coefficient;
  Dim rest;
};

using Dims = SmallVector<Dim, 3>;

// Returns the sizes as text: "[N, 2*M]".
std::string to_string(std::span<const Dim> dims);
// Returns the product of all sizes.
Dim numel(std::span<const Dim> dims);
bool all_constant(std::span<const Dim> dims);

// Types of values.

// How the ranks of a group hold one value of a program.
enum class Sharing : uint8_t {
  replicated,  // the same value on all ranks
  varying,     // a separate value on each rank
  partial,     // addends, whose sum over the ranks is the value
};

// The sharing over each group, in the order of names, without groups over which the value is
// replicated. Immutable.
struct Placement : RefCounted {
  struct Entry {
    std::string group;
    Sharing sharing = Sharing::replicated;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> entries;  // not empty

  explicit Placement(std::vector<Entry> e) : entries(std::move(e)) {}
};

enum class TypeKind : uint8_t { tensor, handle };
struct HandleSignature;
struct Type;
// Whether both types have the same sharing over every group.
bool same_sharing(const Type& a, const Type& b);

// The type of a tensor, such as f32[N, 3], or of a handle, which an opaque function returns for
// `eval`.
struct Type {
  DType dtype = DType::f32;
  TypeKind kind = TypeKind::tensor;
  Device device;
  Dims dims;
  Ref<const HandleSignature> signature;  // of a handle that a node makes; null for tensors
  Ref<const Placement> placement;        // null: replicated over every group

  Type() = default;
  Type(DType d, Dims sizes, Device where = {}) : dtype(d), device(where), dims(std::move(sizes)) {}
  // A handle without a signature, as in program text.
  static Type handle() {
    Type t;
    t.kind = TypeKind::handle;
    return t;
  }
  static Type handle(HandleSignature signature);

  bool is_tensor() const { return kind == TypeKind::tensor; }
  bool is_floating() const { return is_tensor() && gradus::is_floating(dtype); }
  int rank() const { return static_cast<int>(dims.size()); }
  Sharing sharing(std::string_view group) const;
  void set_sharing(std::string_view group, Sharing sharing);
  // Handles are equal if their signatures have the same inputs and outputs.
  friend bool operator==(const Type& a, const Type& b) {
    return a.dtype == b.dtype && a.kind == b.kind && a.device == b.device && a.dims == b.dims &&
           (a.signature == b.signature || same_signature(a, b)) &&
           (a.placement == b.placement || same_sharing(a, b));
  }

 private:
  static bool same_signature(const Type& a, const Type& b);
};

// The operands and results of an `eval` of a handle. All types are types of tensors.
struct HandleSignature : RefCounted {
  std::vector<Type> outputs;  // the floating outputs, whose cotangents are operands
  std::vector<Type> inputs;   // the differentiable inputs, whose gradients are results
  int order = 0;              // number of further derivatives; an `eval` needs at least one
  int declared = 0;           // number of derivatives of the function, for messages
  std::string function;       // the name of the function

  HandleSignature() = default;
  HandleSignature(HandleSignature&& o) noexcept
      : RefCounted(),
        outputs(std::move(o.outputs)),
        inputs(std::move(o.inputs)),
        order(o.order),
        declared(o.declared),
        function(std::move(o.function)) {}
};

// Returns program text: "f64[N, 3]", "f32[2]@cuda:0", "f32[2] varying(data)", "handle".
std::string to_string(const Type& type);
// The type of the value's cotangent. The cotangent of a partial value is that of the sum, so it is
// replicated.
Type cotangent_type(Type type);

}  // namespace gradus::ir

#pragma GCC visibility pop
