// Which groups are worth a kernel. The figures are those of bench/corpus.cpp's programs.
#pragma once

#include <algorithm>

#include "fusion/nest.h"
#include "work/work.h"

namespace gradus::fusion {

// Bounds of a group: what is compiled in some ten milliseconds, and keeps its values in registers
// for the most part.
inline constexpr size_t most_steps = 48;
// Loads and stores. A kernel keeps as many pointers on its stack.
inline constexpr size_t most_slots = 32;
// What a group may keep alive for members to come, if that is more than the largest value it makes:
// what stays in near caches. Each cut stores a value and reads it again, and is cheaper than what
// went out of the caches meanwhile: the step of an LSTM with products of 1 MiB took 19.1 ms with
// groups of two sums, and 20.7 with one of all twenty. Who asks for less than `least_waiting_bytes`
// meanwhile finds no harm in a group that waits.
inline constexpr int64_t most_waiting_bytes = int64_t{1} << 20;
inline constexpr int64_t least_waiting_bytes = int64_t{64} << 10;
// Up to so many elements what an instruction costs is the call, not its elements: then also those
// are grouped that share nothing.
inline constexpr int64_t few_elements = 512;

// Nest::registers on a processor that has 512-bit registers and lowers its clock rate for them, by
// 5 to 10 % for the whole program. Only functions like exp, many steps for few operands and sums of
// f64 gain more than that.
// Sizes do not decide, because a kernel serves all of them.
int worthwhile_registers(const Nest& nest);
// Rows of a nest as far as the program's types state their sizes. 0: a name, for any size, which no
// code may hinge on: a new batch size compiles nothing.
struct StatedRows {
  int64_t count = 0;  // of those in the innermost loop but one
  int64_t size = 0;   // elements of each
};
// Nest::row_size of a nest on a machine with registers of so many bits: rows have few elements, and
// are not known to be fewer than lanes. A row that is a part of a vector leaves lanes empty, and
// folding them takes longer than the elements do: the norm of 10,000 rows of 3 in f32 took 257 us
// so, and 83 us without a kernel.
int64_t worthwhile_row_size(const Nest& nest, const StatedRows& rows, unsigned vector_bits);
// How wide the registers are that the nest's kernel uses, on a machine that has them of
// `vector_bits`.
inline unsigned register_bits(const Nest& nest, unsigned vector_bits) {
  return nest.registers ? std::min(static_cast<unsigned>(nest.registers), vector_bits)
                        : vector_bits;
}

// Elements that a kernel takes at a time: two registers of the narrowest type that it computes in.
// Independent halves keep the units busy where a chain of steps would wait for itself. Of functions
// that wait for one another, a processor sees too few steps at once: four registers of 256 bits.
// Where rows are reduced, no more than lanes that add up apart.
int64_t lanes_of(const Nest& nest, unsigned vector_bits);

// Whether an operator is made of many instructions: exp and its like.
bool is_function(const ir::Operator* op);

// Whether sums over leading dimensions may join a group: of so many rows of so many columns of a
// dtype, in registers of so many bits. Short rows are better off without them, unless they are few,
// and accumulators of too many columns stay in no cache.
bool takes_columns(int64_t rows, int64_t columns, DType dtype, unsigned vector_bits);

// Whether one instruction with such a result may gain from a kernel: where rows are short, a loop
// of the library takes longer to begin them than to run through them.
bool may_gain_alone(const Sizes& shape);

// What a kernel of a nest saves and loses beside a loop for each step, in nanoseconds of one
// worker.
struct Estimate {
  double saved = 0, lost = 0;
  const char* refused = nullptr;  // why there is none, whatever it saves
  bool worth() const { return !refused && saved > lost; }
};
// What it runs on: registers of so many bits, and workers.
struct Machine {
  unsigned vector_bits = 0;
  int workers = 1;
};
// It saves calls and the memory between the steps. It loses where rows end within a vector, and
// where it computes or gathers something once more.
Estimate estimate(const Nest& nest, const Frame& frame, const Machine& machine);

// Whether a nest is small enough to be written out for its sizes in a stage's function.
bool fits_into_stage(const Nest& nest, const Frame& frame);
// What a kernel of the nest may take, about, a piece of a stage's function, or what is called from
// there: of work that reads and writes so many elements.
double nanoseconds_of(const Nest& nest, const Frame& frame);
double nanoseconds_of_piece(const work::Work& piece, int64_t elements);
double nanoseconds_of_call(const work::Work& work, int64_t elements);
// A stage is one function up to this. Nobody can stop it on the way.
inline constexpr double most_stage_nanoseconds = 50e3;
// A function is compiled behind when the stage has run so often: it takes some ten milliseconds to
// make, and saves some microseconds a run.
inline constexpr uint32_t runs_before_stage = 1000;

}  // namespace gradus::fusion
