// What is known of an operator: its record, attributes and type rule.
#pragma once

#include <bit>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gradus/error.h"
#include "gradus/tensor.h"
#include "gradus/type.h"

namespace gradus::ops {
struct EdgeCall;
}

#pragma GCC visibility push(default)

// Attribute values as a program text writes them, before an operator reads them.

namespace gradus::ir {

struct Literal;
struct NoneLiteral {};

// none, a bool, an integer or dimension expression, a float (inf and nan included), a string, a
// dtype, a list, a dense tensor.
struct Literal {
  std::variant<NoneLiteral, bool, Dim, double, std::string, DType, std::vector<Literal>, Tensor>
      value;

  Literal() = default;
  Literal(const Literal&);
  Literal(Literal&&) noexcept;
  Literal& operator=(const Literal&);
  Literal& operator=(Literal&&) noexcept;
  ~Literal();
  // NOLINTBEGIN: whatever a program can write converts, so that lists of literals read as text.
  Literal(bool b) : value(b) {}
  Literal(Dim d) : value(std::move(d)) {}
  Literal(int64_t i) : value(Dim(i)) {}
  Literal(int i) : value(Dim(i)) {}
  Literal(double f) : value(f) {}
  Literal(std::string s) : value(std::move(s)) {}
  Literal(const char* s) : value(std::string(s)) {}
  Literal(DType d) : value(d) {}
  Literal(std::vector<Literal> list) : value(std::move(list)) {}
  Literal(Tensor t) : value(std::move(t)) {}
  // NOLINTEND
  template <class T>
  static Literal list(const T& items) {
    std::vector<Literal> l;
    for (const auto& item : items) l.emplace_back(item);
    return l;
  }

  bool is_none() const { return std::holds_alternative<NoneLiteral>(value); }
};

struct NamedLiteral {
  std::string name;
  Literal value;
  SourceLocation where;
};
using LiteralList = std::vector<NamedLiteral>;

// As program text; a float keeps every bit and never looks like an integer.
std::string to_string(const Literal& literal);
// A double (or float) as text that reads back to the same bits: "1.0", "-0.0", "1e-300", "inf",
// "nan(0x7ff8000000000001)".
std::string float_text(double value);
std::string float_text(float value);
// A quoted string with escapes.
std::string quoted(std::string_view text);

}  // namespace gradus::ir

// What the rest of Gradus knows of an operator: one record of functions, made from one struct in
// ops/. Nothing outside ops/ asks for an operator by name to decide what to do.

namespace gradus::ops {
struct BindCall;       // gradus/bind.h
struct Value;          // gradus/value.h
struct VjpCall;        // gradus/value.h
struct ComposeCall;    // gradus/value.h
struct BatchedCall;    // gradus/batching.h
struct PointwiseInfo;  // gradus/pointwise.h
struct GraphName;      // gradus/attributes.h
}  // namespace gradus::ops

namespace gradus::ir {

// An operator's attributes as its own struct, seen by others through the operator's functions.
class AttributeRecord : public RefCounted {};
using Attributes = Ref<const AttributeRecord>;

// A number in an operand's place: a scalar that does not promote within its category.
struct Number {
  Category category = Category::floating;
  union {
    double floating = 0;  // floating
    int64_t integer;      // boolean and integral
  };
  static Number of(double f) {
    Number n;
    n.floating = f;
    return n;
  }
  static Number of(int64_t i) { return whole(Category::integral, i); }
  static Number of(bool b) { return whole(Category::boolean, b); }
  double as_double() const {
    return category == Category::floating ? floating : static_cast<double>(integer);
  }
  friend bool operator==(const Number& a, const Number& b) {
    return a.category == b.category && a.bits() == b.bits();
  }
  // The value's bits: numbers of a category are told apart by them, also NaNs and zeros' signs.
  uint64_t bits() const {
    return category == Category::floating ? std::bit_cast<uint64_t>(floating)
                                          : static_cast<uint64_t>(integer);
  }

 private:
  static Number whole(Category c, int64_t i) {
    Number n;
    n.category = c;
    n.integer = i;
    return n;
  }
};

struct OperandSpec {
  std::string_view name;
  bool optional = false;  // may be `none`
  bool variadic = false;  // any number of them; only the last
};

// An operand as type rules see it.
struct OperandType {
  enum class Kind : uint8_t { none, tensor, number } kind = Kind::none;
  const Type* type = nullptr;              // tensor
  Category category = Category::floating;  // number
};

// Two sizes that types could not prove equal: checked when sizes are known.
struct DimEquality {
  Dim a, b;
  std::string what;  // "add: dimension 0 of 'x' and 'y'"
};

inline constexpr size_t any_results = SIZE_MAX;

// A type rule's call: reads operands and attributes, pushes one type per result.
struct InferCall {
  const struct Operator& op;
  std::span<const OperandType> in;
  const Attributes& attributes;
  SmallVector<Type, 2> out;
  std::vector<DimEquality>* equalities = nullptr;  // may be null
  // How many results the node has; `any_results` where that is not known. Only opaque operators
  // look: one more than the function has outputs is the handle.
  size_t results = any_results;

  // Number of operands written, trailing absent ones included as `none`.
  size_t operands() const { return in.size(); }
  bool given(size_t i) const { return i < in.size() && in[i].kind != OperandType::Kind::none; }
  bool is_number(size_t i) const {
    return i < in.size() && in[i].kind == OperandType::Kind::number;
  }
  // The type of a tensor operand; an Error for a number, a handle or an absent one.
  const Type& tensor(size_t i) const;
  // "operand 'x'"
  std::string name_of_operand(size_t i) const;
  // Proves a == b, or leaves it to be checked at run time; an Error where both are constants and
  // differ. `what` completes "…: sizes 2 and 3 differ: {what}".
  void require_equal(const Dim& a, const Dim& b, std::string_view what) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  // Throws Error "add: message".
  [[noreturn]] void fail_with(const std::string& message) const;
};

// In which of its operands a call is linear, where sizes, numbers and attributes are given: a part
// of a sum may stand there, and the result is a part of the sum's result.
enum class Linear : uint8_t {
  no,
  jointly,   // in all together
  in_each,   // in each, while the others stay
  in_first,  // in operand 0
};

// What is special about an operator.
struct OperatorTraits {
  bool differentiable = false;  // has a rule, or is composed of operators that have
  bool structural = false;      // `constant`, `grad`, `call`…: handled by passes, not run
  bool zero_gradient = false;   // floating results whose derivative is zero everywhere (sign, full)
  bool accumulates = false;     // with default attributes: an absent operand is left out of the sum
  bool opaque = false;          // run by a function of the user or the engine; may leave a handle
  bool acts = false;            // opaque, and may do something beside its results: always runs
  bool takes_handle = false;    // its last operand is a handle; no other operator takes one
  bool loop = false;            // runs graphs that it names, again and again; `compose` unrolls it
  bool collective = false;      // speaks to the ranks of a group: runs once on each, in order
  bool converts = false;        // y = x as another dtype, and nothing else
  bool may_be_view = false;     // `bind` may make a result a view of an operand
  bool is_function = false;     // pointwise, and made of many instructions, as exp is
  Linear linear = Linear::no;
  std::string_view doc;  // its equation
};

// What computing a call again costs for each byte that it reads or writes, in units of what a byte
// costs that is only moved. `never` is for what may refuse its operands while it runs (indices,
// factorisations), what random numbers or a user's function decide, and what nobody has weighed.
namespace again {
inline constexpr int64_t never = 0, moves = 1, adds_up = 2, calls_function = 4, multiplies = 256;
}

struct Operator {
  std::string_view name;
  const void* type;  // stands for its struct: see gradus/rules.h
  std::span<const OperandSpec> operands;
  std::span<const std::string_view> results;  // names; one ending in "..." for any number
  OperatorTraits traits;
  // Reads attributes; absent ones take their defaults. Throws Error naming attribute and operator,
  // at the attribute's place when the caller adds it.
  Attributes (*read)(const LiteralList&);
  // Attributes that differ from their defaults, in declaration order.
  LiteralList (*write)(const Attributes&);
  // All attributes, defaults included (for `gradus ops`); `required` names those without default.
  LiteralList (*describe)();
  void (*infer)(InferCall&);
  void (*bind)(ops::BindCall&);        // null for compositions and structural ones
  void (*vjp)(ops::VjpCall&);          // null: not differentiable, or only by composition
  void (*compose)(ops::ComposeCall&);  // null: a primitive

  // Emits the call for a whole batch, as gradus/batching.h says, or throws Error with the reason
  // why there is none. Null for compositions, structural operators and loops.
  SmallVector<ops::Value, 2> (*batch)(const ops::BatchedCall&);
  // Where a result's elements lie among the operands', of an operator that only moves them: kernels
  // read them there then. False where that cannot be said of these operands; null for others.
  bool (*edge)(ops::EdgeCall&);
  int64_t recompute_cost;  // one of `again`

  // Of a pointwise operator its loops and what they take; null for others.
  const ops::PointwiseInfo& (*pointwise)();

  // Whether `vjp` holds for these attributes (null: always): a call has a rule only where the
  // program names one.
  bool (*vjp_holds)(const Attributes&);
  bool has_vjp(const Attributes& a) const { return vjp && (!vjp_holds || vjp_holds(a)); }

  // Whether a call runs as what it is composed of.
  bool runs_composed(const Attributes& a) const {
    return compose && !traits.loop && !(bind && has_vjp(a));
  }

  // Where the size of a result may depend on data: whether it does for such operands. The attribute
  // `count` says that size then, and this how large it is for these tensors (null for others). Null
  // where no size ever does.
  bool (*data_sized)(std::span<const OperandType>);
  int64_t (*count)(std::span<const Tensor* const>);

  // The graphs that a call's attributes name, in the order of the attributes; they live as long as
  // those. Null where no attribute names one.
  SmallVector<const ops::GraphName*, 2> (*graphs)(const Attributes&);

  // Operand i's specification, variadic ones repeated.
  const OperandSpec& operand(size_t i) const { return operands[std::min(i, operands.size() - 1)]; }
};

// "m(x, y; alpha = 1)"
std::string signature(const Operator& op);

}  // namespace gradus::ir

#pragma GCC visibility pop
