// What nests (work/nest.h) may be, and which values of theirs are a row's.
#pragma once

#include "work/nest.h"

namespace gradus::fusion {

using work::Frame;
using work::Load;
using work::Nest;
using work::print;
using work::Step;
using work::ValueNumber;
using work::Walk;

// By value. A value of the row is one for all its elements: what a row is reduced to, what does not
// move along the innermost loop, and steps over such alone.
struct RowFacts {
  std::vector<bool> of_row;
  std::vector<int> level;  // how many reductions, one after another, it waits for
};
RowFacts row_facts(const Nest& nest);

inline constexpr int max_rank = 64;
inline constexpr size_t most_operands = 32;   // of one load
inline constexpr int64_t most_row_size = 32;  // Nest::row_size

// Throws Error naming the invariant that does not hold:
//   N1  the rank lies between 1 and 64
//   N2  a load has one walk per dimension; only the last may be contiguous
//   N3  a step's operands are values before it, as many as its operator takes
//   N4  a step's operator is pointwise
//   N5  it has a rule for the type that it computes in
//   N6  a result is bool where the operator says so, else of a dtype that is computed in that type;
//       a sum or product in u64 may be i64
//   N7  a step of an operator has attributes; conversions and reductions have one operand and none
//   N8  something is stored, and what is stored is a value
//   N9  a reduction computes in the type that its operand's dtype is computed in
//   N10 what is stored once for a row is a value of the row
//   N11 what is stored for columns reduces them, and nothing else reads or stores it
//   N12 a load has 1 to 32 operands, and one only if it has an index or columns are reduced
//   N13 an index is a load before it, of i64 or i32, with one operand and no index
//   N14 registers have 256 bits, or 0 for the widest there are
//   N15 a row has 0 elements, for any number, or up to 32 where there are rows, and no columns are
//       reduced
void verify(const Nest& nest);

// Throws Error where a frame does not fit: other ranks, rows of another size than the nest's, a
// stride other than the walk says, rows or columns without elements to reduce, parts that are not
// the loops or cut a row that is reduced, stored or of one size. Strides of dimensions of at most
// one element have no say.
void check_frame(const Nest& nest, const Frame& frame);

// Reads what print() writes of a nest, and verifies it. Throws Error with line and column.
Nest parse_nest(std::string text, std::string file = {});

}  // namespace gradus::fusion
