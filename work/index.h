// Reading and writing at places that index tensors name.
#pragma once

#include "gradus/error.h"
#include "work/move.h"

namespace gradus::work {

// An index tensor, and what it picks from.
struct IndexOperand {
  int argument = 0;
  DType dtype = DType::i64;  // i64 or i32
  Sizes strides;             // over the shape of whoever reads it
  int64_t size = 0;          // of the dimension it picks from: the bound
  int64_t step = 0;          // that dimension's stride
  bool wraps = false;        // negative ones count from the end
  int dimension = 0;         // for messages
  static constexpr auto fields() {
    return std::tuple(field("argument", &IndexOperand::argument),
                      field("dtype", &IndexOperand::dtype),
                      field("strides", &IndexOperand::strides), field("size", &IndexOperand::size),
                      field("step", &IndexOperand::step), field("wraps", &IndexOperand::wraps),
                      field("dimension", &IndexOperand::dimension));
  }
  friend bool operator==(const IndexOperand&, const IndexOperand&) = default;
};

enum class IndexAction : uint8_t { read, write, add };
std::string_view name_of(IndexAction action);

// The elements on one side lie where the index says (the indexed side), on the other where strides
// say (the plain side). `read` goes from the indexed side to the plain one, `write` and `add` the
// other way, in index order, whatever the number of threads.
//
// `add` is sum = sum + plain * alpha in accumulation_dtype(dtype): alpha, product and sum are
// rounded to it. Integers wrap, and their alpha is truncated. Bools are or'ed, whatever alpha is.
struct IndexSides {
  DType dtype = DType::f32;
  IndexAction action = IndexAction::read;
  int indexed = 0;               // argument
  int plain = 0;                 // argument
  bool plain_is_number = false;  // one element of `number_dtype` for all, converted; not of `read`
  DType number_dtype = DType::f64;
  Real alpha = 1;  // add: plain * alpha
  static constexpr auto fields() {
    return std::tuple(field("dtype", &IndexSides::dtype), field("action", &IndexSides::action),
                      field("indexed", &IndexSides::indexed), field("plain", &IndexSides::plain),
                      field("plain_is_number", &IndexSides::plain_is_number),
                      field("number_dtype", &IndexSides::number_dtype),
                      field("alpha", &IndexSides::alpha));
  }
  friend bool operator==(const IndexSides&, const IndexSides&) = default;
};

// For each place of `shape` the element on the indexed side lies at the sum of the strides and of
// each index times its step. Places that differ in `serial` dimensions alone may meet, and are
// written in row-major order. There are three forms:
//   - Indices over the serial dimensions. These are neighbours, with at least one other dimension
//     on either side. An index has a stride of 0 over the others, `indexed` one of 0 over these.
//   - One index over all dimensions. The dimension that it picks along is serial, and `indexed` has
//     a stride of 0 over it. An index of no elements has no stride of 0.
//   - No index. The action is `add`, and the strides say which places meet.
//
// An index out of range is an Error that names one such index; the result's elements mean nothing
// then. Where `shape` has no places, a backend may check the indices, or not read them.
//
// `write` and `add` begin with `begin`, which gives the result its first elements. Sums of 16-bit
// floats are kept in f32 at the start of the scratch memory; `end` rounds them into the result.
struct Index {
  static constexpr std::string_view name = "index";
  const ir::Operator* op = nullptr;  // for messages
  IndexSides sides;
  Sizes shape, plain, indexed;  // strides over `shape`
  int64_t indexed_offset = 0;   // in elements; 0 where there are indices
  SmallVector<bool, 6> serial;
  SmallVector<IndexOperand, 2> indices;  // strides over `shape`; there may be none
  std::vector<Copy> begin, end;          // before and after
  int64_t sums = 0;                      // elements that are kept as sums; 0: none are
  // Of the elements on the indexed side.
  DType indexed_dtype() const;
  int64_t sums_bytes() const { return sums * static_cast<int64_t>(size_of(indexed_dtype())); }
  static constexpr auto fields() {
    return std::tuple(
        field("op", &Index::op), field("sides", &Index::sides), field("shape", &Index::shape),
        field("plain", &Index::plain), field("indexed", &Index::indexed),
        field("indexed_offset", &Index::indexed_offset), field("serial", &Index::serial),
        field("indices", &Index::indices), field("begin", &Index::begin), field("end", &Index::end),
        field("sums", &Index::sums));
  }
  friend bool operator==(const Index&, const Index&) = default;
};

// Holds the elements of an index tensor, operand 0, to what `of` says, and does nothing else: it
// fails as an instruction of `op` would.
struct IndexCheck {
  static constexpr std::string_view name = "index_check";
  const ir::Operator* op = nullptr;
  IndexOperand of;  // strides over `shape`
  Sizes shape;      // never empty; there are elements
  static constexpr auto fields() {
    return std::tuple(field("op", &IndexCheck::op), field("of", &IndexCheck::of),
                      field("shape", &IndexCheck::shape));
  }
  friend bool operator==(const IndexCheck&, const IndexCheck&) = default;
};
// With dimensions joined.
IndexCheck index_check(const ir::Operator& op, IndexOperand of, const Sizes& shape);

// Whether places of a strided box that meet all have one index of dimension d: other dimensions
// move by multiples of all its indices' reach, or within one of its steps.
bool stands_apart(const Sizes& shape, const Sizes& strides, size_t d);

// What is wrong with an index.
Error index_error(const ir::Operator& op, const IndexOperand& index, int64_t value);

// What sums of a dtype are kept in: f32 for the 16-bit floats, the dtype itself for all others.
constexpr DType accumulation_dtype(DType d) {
  return d == DType::f16 || d == DType::bf16 ? DType::f32 : d;
}

}  // namespace gradus::work
