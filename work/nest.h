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
// Sizes and strides are no part of it: they are a Frame. So one nest, and one kernel, serves all
// sizes. Work is a nest at a frame.
//
// A value is what the unfused program would have stored and read again: a step computes in f64,
// f32 or i64 (`in`), and its result is converted to its dtype (`:`), with the rounding that this
// takes.
#pragma once

#include <string>
#include <vector>

#include "work/reduce.h"

namespace gradus::work {

// How a load moves along a dimension: not at all, by one element, or by a stride known in the run.
enum class Walk : uint8_t { contiguous, strided, broadcast };
std::string_view name_of(Walk walk);

// A value of a nest: loads are numbered first, then numbers, then steps.
using ValueNumber = uint32_t;

struct Load {
  DType dtype = DType::f32;
  SmallVector<Walk, 4> walks;  // one per dimension, outermost first
  size_t operands = 1;         // more than one: each for a part of the loops, Frame::parts
  // Of a load before it, an i64 or i32: how many times Frame::index_steps farther on it reads. Who
  // runs the nest has seen to it that the index lies in range.
  std::optional<ValueNumber> index = {};
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Load::dtype), field("walks", &Load::walks),
                      field("operands", &Load::operands), field("index", &Load::index));
  }
  friend bool operator==(const Load&, const Load&) = default;
};

struct Step {
  Call call;  // of a pointwise operator
  // Without an operator: reduces a row to one value, in the order of work/reduce.h.
  std::optional<Reducer> reducer;
  bool columns = false;  // reduces each column instead, over all rows
  // With neither: a conversion to `dtype`.
  SmallVector<ValueNumber, 3> operands;
  Compute compute = Compute::f32;  // has no meaning in conversions, in `all` and `any`
  DType dtype = DType::f32;        // of the result
  SourceLocation where;            // in Nest::program, of the instruction; a comment in the text
  bool reduces() const { return !call.op && reducer; }
  // Whether `compute` has a meaning.
  bool computes() const {
    return call.op || (reducer && *reducer != Reducer::all && *reducer != Reducer::any);
  }
  bool reduces_row() const { return reduces() && !columns; }
  bool reduces_column() const { return reduces() && columns; }
  static constexpr auto fields() {
    return std::tuple(field("call", &Step::call), field("reducer", &Step::reducer),
                      field("columns", &Step::columns), field("operands", &Step::operands),
                      field("compute", &Step::compute), field("dtype", &Step::dtype),
                      field("where", &Step::where));
  }
  friend bool operator==(const Step&, const Step&) = default;
};

// Data only. What has to hold of it: fusion/nest.h.
struct Nest {
  int rank = 1;
  std::vector<Load> loads;
  std::vector<ir::Number> numbers;
  std::vector<Step> steps;
  std::vector<ValueNumber> stores;         // an element in each loop; row-major without gaps
  std::vector<ValueNumber> row_stores;     // an element for each row; likewise
  std::vector<ValueNumber> column_stores;  // an element for each place in a row; likewise
  int registers = 0;  // bits that its kernel's registers have at most; 0: the machine's widest
  // Elements of a row, if its kernel takes several rows at a time: each lane of a vector is a row
  // then, and there is a vector for each place in a row. 0: rows of any size, whose elements are
  // lanes.
  int64_t row_size = 0;
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
  static constexpr auto fields() {
    return std::tuple(field("rank", &Nest::rank), field("loads", &Nest::loads),
                      field("numbers", &Nest::numbers), field("steps", &Nest::steps),
                      field("stores", &Nest::stores), field("row_stores", &Nest::row_stores),
                      field("column_stores", &Nest::column_stores),
                      field("registers", &Nest::registers), field("row_size", &Nest::row_size),
                      field("program", &Nest::program));
  }
  friend bool operator==(const Nest&, const Nest&) = default;
};

// The sizes of a run: those of the loops, and the strides of each load, in elements.
struct Frame {
  // Which of the loops' elements an operand is for, and how it lies; its pointer is to the first.
  struct Part {
    Sizes first, sizes, strides;
    static constexpr auto fields() {
      return std::tuple(field("first", &Part::first), field("sizes", &Part::sizes),
                        field("strides", &Part::strides));
    }
    friend bool operator==(const Part&, const Part&) = default;
  };
  Sizes sizes;
  std::vector<Sizes> strides;
  // By load: of those with several operands, whose `strides` have no say. Left out if none has.
  std::vector<std::vector<Part>> parts = {};
  // By load: elements from one index to the next. Left out if none has an index.
  std::vector<int64_t> index_steps = {};
  int64_t count() const { return numel(sizes); }
  // Which part of a load's an element of the loops lies in.
  size_t part_at(size_t load, const Sizes& element) const;
  static constexpr auto fields() {
    return std::tuple(field("sizes", &Frame::sizes), field("strides", &Frame::strides),
                      field("parts", &Frame::parts), field("index_steps", &Frame::index_steps));
  }
  friend bool operator==(const Frame&, const Frame&) = default;
};

// A nest at a frame that fits it. The operands are those of the loads; the results are the stores,
// then the row stores, then the column stores.
struct Loops {
  static constexpr std::string_view name = "nest";
  Nest nest;
  Frame frame;
  static constexpr auto fields() {
    return std::tuple(field("nest", &Loops::nest), field("frame", &Loops::frame));
  }
  friend bool operator==(const Loops&, const Loops&) = default;
};

// As text, which fusion::parse_nest reads back to the same nest.
std::string print(const Nest& nest);

}  // namespace gradus::work
