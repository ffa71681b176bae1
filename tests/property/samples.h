// Samples: calls of every operator in the table, found by asking its type rule what it takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/graph.h"
#include "gradus/state.h"
#include "gradus/tensor.h"

namespace gradus::property {

// What an operand is: its values, and its sizes.
struct Slot {
  enum class Kind : uint8_t {
    unit,      // u: distinct floats in (0.1, 0.9)
    signs,     // s: distinct floats in (-2, 2), away from zero
    large,     // l: floats above 1
    matrix,    // m: floats of a positive definite symmetric matrix
    index,     // i3: i64 below 3
    distinct,  // d3: a permutation's first elements: i64 below 3, each once
    mask,      // b
    number,    // n: 0.7
    none       // -
  } kind = Kind::unit;
  int64_t limit = 0;
  Sizes shape;
  bool floating() const { return kind <= Kind::matrix; }
  bool tensor() const { return kind < Kind::number; }
};

// A call of an operator. Its text as a program is what a failure prints.
struct Sample {
  const ir::Operator* op = nullptr;
  std::vector<Slot> slots;
  std::string attributes;
  std::string_view no_slope;  // inputs whose derivative is no slope, by intention
  size_t results = 1;

  // The floating operands are of `dtype`, which may also be one that is not floating.
  std::string text(DType dtype) const;
  // The parsed program, or nothing if the operator does not take such operands.
  std::shared_ptr<const ir::Graph> program(DType dtype) const;
  // Operands as the program's inputs, contiguous, without numbers.
  std::vector<Tensor> inputs(DType dtype, uint64_t seed) const;
};

// Operators that cannot be run alone: structural ones, and opaque ones.
bool runs_alone(const ir::Operator& op);
// Every sample of the operator; empty where no recipe fits.
std::vector<Sample> samples_of(const ir::Operator& op);
// Those of all operators that run alone.
const std::vector<Sample>& all_samples();

// An input's sizes for the stage that the state runs next, those that data has decided included.
Sizes sizes_of(const ir::Type& type, const State& state);
// Whether data decides a size of the program.
bool data_decides_a_size(const ir::Graph& program);
// Whether a sample has derivatives, as a program.
bool has_slopes(const Sample& s, const ir::Graph& program);
// The program of f64 that gives the sum of the squares of the sample's first floating result.
std::string squared(const Sample& s, const ir::Graph& program);

// The same values, laid out otherwise. Memory that is not theirs is filled with NaN (or ones).
enum class Lie : uint8_t { contiguous, transposed, sliced };
Tensor lay(const Tensor& t, Lie lie);

}  // namespace gradus::property
