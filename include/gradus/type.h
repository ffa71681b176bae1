// Types of values, and the expressions that their sizes are.
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

// Dimension expressions: sizes of tensors as polynomials over named sizes.

namespace gradus::ir {

// Sizes bound to names, known while a stage runs.
class DimEnvironment {
 public:
  virtual ~DimEnvironment() = default;
  virtual std::optional<int64_t> find(std::string_view symbol) const = 0;
};

// An immutable integer expression in canonical form (a sum of products of names, `//`, `max` and
// `min` terms, sorted), so that equal polynomials compare equal: N + M == M + N. Constants take no
// heap. Thread-safe to copy and read.
// Arithmetic throws Error when a coefficient overflows or an expression becomes absurdly large.
class Dim {
 public:
  Dim(int64_t value = 0) : value_(value) {}  // NOLINT: a size is often a plain number
  static Dim symbol(std::string_view name);

  bool is_constant() const { return !expression_; }
  std::optional<int64_t> constant() const {
    return expression_ ? std::nullopt : std::optional<int64_t>(value_);
  }
  // The constant; only where is_constant().
  int64_t value() const { return value_; }
  // The name if this is a bare name, else empty.
  std::string_view symbol_name() const;

  friend GRADUS_PUBLIC Dim operator+(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim operator-(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim operator*(const Dim& a, const Dim& b);
  // Rounds towards minus infinity; division by a constant zero is an Error.
  friend GRADUS_PUBLIC Dim floor_div(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim max(const Dim& a, const Dim& b);
  friend GRADUS_PUBLIC Dim min(const Dim& a, const Dim& b);
  // Structural equality of canonical forms: true proves equality, false proves nothing unless both
  // are constant.
  friend GRADUS_PUBLIC bool operator==(const Dim& a, const Dim& b);

  // True proves that the value is never negative (names stand for sizes, which are not); false
  // proves nothing unless the expression is constant.
  bool known_nonnegative() const;

  // As program text: "N", "2*N + 1", "max(N, M) // 2".
  std::string to_string() const;
  // Throws Error for a name without a size, a division by zero, an overflow.
  int64_t evaluate(const DimEnvironment& sizes) const;
  // Calls `each` with every name, possibly more than once.
  void for_each_symbol(const std::function<void(std::string_view)>& each) const;
  // Replaces names; names for which `replace` gives nullopt stay.
  Dim substitute(const std::function<std::optional<Dim>(std::string_view)>& replace) const;
  // If the expression is coefficient * name + rest with the name nowhere else: those.
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

// "[N, 2*M]"
std::string to_string(std::span<const Dim> dims);
// The product of all sizes.
Dim numel(std::span<const Dim> dims);
bool all_constant(std::span<const Dim> dims);

// Types of values.

// What the values are that the ranks of a group hold for one value of a program.
enum class Sharing : uint8_t {
  replicated,  // the same on all of them
  varying,     // each its own
  partial,     // parts, whose sum is the value that is meant
};

// By group, in the order of names; those that are replicated are left out. Never changed.
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
// Whether both are shared likewise over every group.
bool same_sharing(const Type& a, const Type& b);

// f32[N, 3], or the handle that an opaque function leaves for `eval`.
struct Type {
  DType dtype = DType::f32;
  TypeKind kind = TypeKind::tensor;
  Device device;
  Dims dims;
  Ref<const HandleSignature> signature;  // of a handle made by a node; null for tensors
  Ref<const Placement> placement;        // null: replicated over every group

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
  Sharing sharing(std::string_view group) const;
  void set_sharing(std::string_view group, Sharing sharing);
  // Handles are equal if their signatures take and yield the same.
  friend bool operator==(const Type& a, const Type& b) {
    return a.dtype == b.dtype && a.kind == b.kind && a.device == b.device && a.dims == b.dims &&
           (a.signature == b.signature || same_signature(a, b)) &&
           (a.placement == b.placement || same_sharing(a, b));
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

// As program text: "f64[N, 3]", "f32[2]@cuda:0", "f32[2] varying(data)", "handle".
std::string to_string(const Type& type);
// The type of its cotangents: a part of a sum has the cotangent of the sum, which all ranks know.
Type cotangent_type(Type type);

}  // namespace gradus::ir

#pragma GCC visibility pop
