// The record of an operator, its attributes and its type rule.
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

// Attribute values as program text contains them, before an operator reads them.

namespace gradus::ir {

struct Literal;
struct NoneLiteral {};

// An attribute value: none, a bool, an integer or dimension expression, a float (inf and nan
// included), a string, a dtype, a list, or a dense tensor.
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

// An attribute: a name and a value.
struct NamedLiteral {
  std::string name;
  Literal value;
  SourceLocation where;
};
using LiteralList = std::vector<NamedLiteral>;

// Returns the literal as program text. The text of a float preserves its bits and differs from that
// of an integer.
std::string to_string(const Literal& literal);
// Returns a float as text that parses to the same bits: "1.0", "-0.0", "1e-300", "inf",
// "nan(0x7ff8000000000001)".
std::string float_text(double value);
std::string float_text(float value);
// Returns the text in quotes, with escapes.
std::string quoted(std::string_view text);

}  // namespace gradus::ir

// The record of an operator: functions and facts that are made from one struct in ops/. Code
// outside ops/ uses the record, and does not compare an operator's name.

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

// The attributes of a call: a struct of the operator. Other code reads it through the functions of
// the operator.
class AttributeRecord : public RefCounted {};
using Attributes = Ref<const AttributeRecord>;

// A number as an operand. It does not take part in promotion within its category.
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
  // The bits of the value. They distinguish the numbers of a category, including NaNs and signed
  // zeros.
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

// A parameter of an operator.
struct OperandSpec {
  std::string_view name;
  bool optional = false;  // may be `none`
  bool variadic = false;  // any number of operands; only the last parameter
};

// An operand as type rules see it.
struct OperandType {
  enum class Kind : uint8_t { none, tensor, number } kind = Kind::none;
  const Type* type = nullptr;              // of a tensor
  Category category = Category::floating;  // of a number
};

// Two sizes that types could not prove equal. They are checked when the sizes are known.
struct DimEquality {
  Dim a, b;
  std::string what;  // "add: dimension 0 of 'x' and 'y'"
};

inline constexpr size_t any_results = SIZE_MAX;

// A call of a type rule, which reads operands and attributes and appends one type per result to
// `out`.
struct InferCall {
  const struct Operator& op;
  std::span<const OperandType> in;
  const Attributes& attributes;
  SmallVector<Type, 2> out;
  std::vector<DimEquality>* equalities = nullptr;  // may be null
  // The number of results of the node, or `any_results` if it is unknown. Only opaque operators use
  // it: if it is one more than the number of the function's results, the last result is the handle.
  size_t results = any_results;

  // The number of operands, including absent ones at the end, which are `none`.
  size_t operands() const { return in.size(); }
  bool given(size_t i) const { return i < in.size() && in[i].kind != OperandType::Kind::none; }
  bool is_number(size_t i) const {
    return i < in.size() && in[i].kind == OperandType::Kind::number;
  }
  // The type of a tensor operand. Throws Error for a number, a handle or an absent operand.
  const Type& tensor(size_t i) const;
  // Returns "operand 'x'".
  std::string name_of_operand(size_t i) const;
  // Proves a == b, or appends the pair to `equalities`. Throws Error if both are constants and
  // differ. `what` completes the message: "…: sizes 2 and 3 differ: {what}".
  void require_equal(const Dim& a, const Dim& b, std::string_view what) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  // Throws Error with the operator's name: "add: message".
  [[noreturn]] void fail_with(const std::string& message) const;
};

// In which operands a call is linear, for given sizes, numbers and attributes. If such an operand
// is a term of a sum, the result is the corresponding term of a sum.
enum class Linear : uint8_t {
  no,
  jointly,   // in all operands together
  in_each,   // in each operand, with the others fixed
  in_first,  // in operand 0
};

// Facts about an operator.
struct OperatorTraits {
  bool differentiable = false;  // has a derivative rule, or its composition has
  bool structural = false;      // `constant`, `grad`, `call`…: expanded by passes, not run
  // The derivative of its floating results is zero everywhere (sign, full).
  bool zero_gradient = false;
  // With default attributes, an absent operand is omitted from the sum.
  bool accumulates = false;
  // A function of the user or the engine runs it. It may return a handle.
  bool opaque = false;
  // Opaque, with possible side effects: always runs.
  bool acts = false;
  // Its last operand is a handle. No other operator takes a handle.
  bool takes_handle = false;
  // Runs graphs of its attributes repeatedly. `compose` unrolls it.
  bool loop = false;
  // Communicates with the ranks of a group: runs once on each rank, in order.
  bool collective = false;
  bool converts = false;          // y = x in another dtype, and nothing else
  bool may_be_view = false;       // `bind` may make a result a view of an operand
  bool is_function = false;       // pointwise, with many instructions, such as exp
  bool is_long_function = false;  // with so many that an element takes tens of nanoseconds
  // The operator that computes the same faster and less accurately. Empty: none.
  std::string_view fast;
  Linear linear = Linear::no;
  std::string_view doc;  // its equation
};

// The cost of recomputing a call, for each byte that it reads or writes, relative to moving a byte.
// `never`: for calls that may reject their operands at run time (indices, factorisations), for
// random numbers and functions of the user, and for calls without a known cost.
namespace again {
inline constexpr int64_t never = 0, moves = 1, adds_up = 2, calls_function = 4, multiplies = 256;
}

// The record of an operator. gradus/table.h makes it from a struct.
struct Operator {
  std::string_view name;
  const void* type;  // identifies the struct: see gradus/rules.h
  std::span<const OperandSpec> operands;
  // Names; one that ends in "..." stands for any number of results.
  std::span<const std::string_view> results;
  OperatorTraits traits;
  // Reads attributes. Absent attributes get their defaults. Throws an Error that names the
  // attribute and the operator; the caller adds the location.
  Attributes (*read)(const LiteralList&);
  // Returns the attributes that differ from their defaults, in the order of declaration.
  LiteralList (*write)(const Attributes&);
  // Returns all attributes with their defaults (for `gradus ops`). `required` marks attributes
  // without a default.
  LiteralList (*describe)();
  void (*infer)(InferCall&);
  void (*bind)(ops::BindCall&);        // null for compositions and structural operators
  void (*vjp)(ops::VjpCall&);          // null: not differentiable, or only by its composition
  void (*compose)(ops::ComposeCall&);  // null: a primitive

  // Emits the call for a batch (gradus/batching.h), or throws Error with the reason why there is no
  // rule. Null for compositions without `vjp`, structural operators and loops.
  SmallVector<ops::Value, 2> (*batch)(const ops::BatchedCall&);
  // For an operator that only moves elements: the positions of a result's elements in the operands.
  // Kernels then read the elements there. Returns false if the positions are unknown for these
  // operands. Null for other operators.
  bool (*edge)(ops::EdgeCall&);
  int64_t recompute_cost;  // one of `again`

  // For a pointwise operator: its loops and their parameters. Null for other operators.
  const ops::PointwiseInfo& (*pointwise)();

  // Whether `vjp` exists for these attributes. Null: for all attributes. A call of a graph has a
  // derivative rule only if the program names one.
  bool (*vjp_holds)(const Attributes&);
  bool has_vjp(const Attributes& a) const { return vjp && (!vjp_holds || vjp_holds(a)); }

  // Whether a call runs as its composition.
  bool runs_composed(const Attributes& a) const {
    return compose && !traits.loop && !(bind && has_vjp(a));
  }

  // For an operator with a result whose size may depend on data: whether it does for these
  // operands. The attribute `count` then states that size, and the function `count` computes it
  // from tensors (null: other operands). Null if no size depends on data.
  bool (*data_sized)(std::span<const OperandType>);
  int64_t (*count)(std::span<const Tensor* const>);

  // The graphs that the attributes of a call name, in the order of the attributes. They live as
  // long as the attributes. Null if no attribute names a graph.
  SmallVector<const ops::GraphName*, 2> (*graphs)(const Attributes&);

  // The parameter of operand i. The last parameter repeats if it is variadic.
  const OperandSpec& operand(size_t i) const { return operands[std::min(i, operands.size() - 1)]; }
};

// Returns the signature as text: "m(x, y; alpha = 1)".
std::string signature(const Operator& op);

}  // namespace gradus::ir

#pragma GCC visibility pop
