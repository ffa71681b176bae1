// Loop nests: what a kernel computes, before any device is thought of.
//
// A nest is a few nested loops over the elements of its results. In the innermost one it loads an
// element of each operand, does scalar work step by step, and stores some of the values:
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous]
//     %v1 = load f16 [broadcast, contiguous]
//     %v2 = number 0.5
//     %v3 = mul(%v0, %v1) : f32 in f32
//     %v4 = add(%v3, %v2) {alpha = 2} : f32 in f32
//     %v5 = convert(%v4) : f16
//     store %v5
//   }
//
// Where rows are reduced, the innermost loop is a row, and runs once for each reduction that waits
// for another's result, and once more for what is stored of each element. Softmax:
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous]
//     %v1 = reduce max(%v0) : f32 in f32
//     %v2 = sub(%v0, %v1) : f32 in f32
//     %v3 = exp(%v2) : f32 in f32
//     %v4 = reduce sum(%v3) : f32 in f32
//     %v5 = div(%v3, %v4) : f32 in f32
//     store %v5
//     store_row %v1
//   }
//
// What is reduced over all the other loops gives one value for each place of the innermost one.
// Such values can only be stored, since they are there when all rows are done:
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous]
//     %v1 = load f32 [strided, contiguous]
//     %v2 = mul(%v0, %v1) : f32 in f32
//     %v3 = reduce_columns sum(%v2) : f32 in f32
//     store_column %v3
//   }
//
// A load may have several operands, each for a part of the loops: what is joined, or padded. Or it
// reads at an index, that another load gives, beside where it walks:
//
//   nest 2 {
//     %v0 = load f32 [strided, contiguous] of 3
//     %v1 = load i64 [strided, broadcast]
//     %v2 = load f32 [broadcast, contiguous] at %v1
//     %v3 = add(%v0, %v2) : f32 in f32
//     store %v3
//   }
//
// Sizes and strides are no part of it: they come with each run, as a Frame. So one nest, and one
// kernel, serves all sizes.
//
// A value is what the unfused program would have stored and read again: a step computes in f64,
// f32 or i64 (`in`), and its result is converted to its dtype (`:`), with the rounding that this
// takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/operator.h"
#include "tensor/layout.h"
#include "work/reduce.h"

namespace gradus::fusion {

// How a load moves along a dimension: not at all, by one element, or by a stride known in the run.
enum class Walk : uint8_t { contiguous, strided, broadcast };

// A value of a nest: loads are numbered first, then numbers, then steps.
using ValueNumber = uint32_t;

struct Load {
  DType dtype = DType::f32;
  SmallVector<Walk, 4> walks;  // one per dimension, outermost first
  size_t operands = 1;         // more than one: each for a part of the loops, Frame::parts
  // Of a load before it, an i64 or i32: how many times Frame::index_steps farther on it reads. Who
  // runs the nest has seen to it that the index lies in range.
  std::optional<ValueNumber> index = {};
};

struct Step {
  const ir::Operator* op = nullptr;  // a pointwise one
  // Without `op`: reduces a row to one value, in the order of work/reduce.h.
  std::optional<work::Reducer> reducer;
  bool columns = false;  // reduces each column instead, over all rows
  // With neither: a conversion to `dtype`.
  ir::Attributes attributes;
  SmallVector<ValueNumber, 3> operands;
  Compute compute = Compute::f32;  // has no meaning in conversions, in `all` and `any`
  DType dtype = DType::f32;        // of the result
  SourceLocation where;            // in Nest::program, of the instruction; a comment in the text
  bool reduces_row() const { return !op && reducer && !columns; }
  bool reduces_column() const { return !op && reducer && columns; }
};

// Data only. Invariants: see verify().
struct Nest {
  int rank = 1;
  std::vector<Load> loads;
  std::vector<ir::Number> numbers;
  std::vector<Step> steps;
  std::vector<ValueNumber> stores;         // an element in each loop; row-major without gaps
  std::vector<ValueNumber> row_stores;     // an element for each row; likewise
  std::vector<ValueNumber> column_stores;  // an element for each place in a row; likewise
  std::string program;  // the file that `where` is of, in full; empty: they name no places

  bool reduces() const;     // rows
  bool has_edges() const;   // loads of several operands, or at an index
  size_t operands() const;  // of all loads
  size_t values() const { return loads.size() + numbers.size() + steps.size(); }
  ValueNumber first_number() const { return static_cast<ValueNumber>(loads.size()); }
  ValueNumber first_step() const { return static_cast<ValueNumber>(loads.size() + numbers.size()); }
  // The number that a value is; null for others.
  const ir::Number* number(ValueNumber v) const;
  DType dtype_of(ValueNumber v) const;
};

// By value. A value of the row is one for all its elements: what a row is reduced to, what does not
// move along the innermost loop, and steps over such alone.
struct RowFacts {
  std::vector<bool> of_row;
  std::vector<int> level;  // how many reductions, one after another, it waits for
};
RowFacts row_facts(const Nest& nest);

inline constexpr int max_rank = 64;
inline constexpr size_t most_operands = 32;  // of one load

// Throws Error naming the invariant that does not hold:
//   N1  the rank lies between 1 and 64
//   N2  a load has one walk per dimension; only the last may be contiguous
//   N3  a step's operands are values before it, as many as its operator takes
//   N4  a step's operator is pointwise
//   N5  it has a rule for the type that it computes in
//   N6  a result is bool where the operator says so, else of a dtype that is computed in that type
//   N7  a step of an operator has attributes; conversions and reductions have one operand and none
//   N8  something is stored, and what is stored is a value
//   N9  a reduction computes in the type that its operand's dtype is computed in
//   N10 what is stored once for a row is a value of the row
//   N11 what is stored for columns reduces them, and nothing else reads or stores it
//   N12 a load has 1 to 32 operands, and one only if it has an index or columns are reduced
//   N13 an index is a load before it, of i64 or i32, with one operand and no index
void verify(const Nest& nest);

// As text, which parse_nest reads back to the same nest.
std::string print(const Nest& nest);
// Reads and verifies a nest. Throws Error with line and column.
Nest parse_nest(std::string text, std::string file = {});

// If the step is a power by a number that has a cheaper rule, which of ops::cheap_half_powers;
// else 0. Every way to run a nest takes that rule then.
int cheap_half_power(const Nest& nest, const Step& step);

// The sizes of a run: those of the loops, and the strides of each load, in elements.
struct Frame {
  // Which of the loops' elements an operand is for, and how it lies; its pointer is to the first.
  struct Part {
    Sizes first, sizes, strides;
  };
  Sizes sizes;
  std::vector<Sizes> strides;
  // By load: of those with several operands, whose `strides` have no say. Left out if none has.
  std::vector<std::vector<Part>> parts = {};
  // By load: elements from one index to the next. Left out if none has an index.
  std::vector<int64_t> index_steps = {};
  int64_t count() const { return numel(sizes); }
};

// Throws Error where a frame does not fit: other ranks, a stride other than the walk says, rows or
// columns without elements to reduce, parts that are not the loops or cut a row that is reduced or
// stored. Strides of dimensions of at most one element have no say.
void check_frame(const Nest& nest, const Frame& frame);

}  // namespace gradus::fusion
