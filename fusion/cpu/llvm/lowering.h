// How a nest becomes a function: what lower.cpp and lower_rows.cpp share.
#pragma once

#include <functional>

#include <llvm/IR/Module.h>

#include "fusion/cpu/llvm/emitter_state.h"
#include "fusion/cpu/llvm/line_table.h"
#include "fusion/rows.h"

namespace gradus::fusion::cpu {

inline constexpr int64_t line_bytes = 64;  // of a cache

// The function, block by block:
//
//   entry:     pointers of the first row; buffers for what no mask loads at a row's end
//   row:       operands that the row shares, and steps over such alone
//   whole:     of short bodies without reductions: loads, steps and stores of whole vectors, but
//              for the last elements of the row
//   column:    are there as many elements left as a vector has?
//   entire:    yes: loads
//   partial:   no: loads of what is left, by masks; what no mask loads is copied into buffers
//   body:      steps, and loads and stores at the elements or at the buffers
//   store_out, stream_out, copy_out: stores, of a whole vector, of one past the caches, or of what
//              is left
//   next, end_row, exit
//
// So a long body stands there once, however many elements a row has. Where rows are reduced, such
// loops over the columns follow one another: one for each level of reductions, inside a loop over
// chunks, and one for the stores (fusion/rows.h). Rows of few elements are taken several at a time
// (Nest::row_size): lower_short_rows.cpp.
struct Lowering {
  Lowering(const Nest& nest, unsigned vector_bits, const char* name, llvm::Module& module,
           unsigned lanes);
  void run();

  // The value of a step, of those in `values`; of a number.
  llvm::Value* step(const Step& s);
  llvm::Value* number(const ir::Number& n);

  using Values = std::vector<llvm::Value*>;
  // A load or a store.
  struct Slot {
    DType dtype;
    Walk walk;
    llvm::Type* element;
    llvm::Value* bytes;
    llvm::Value *first, *row_step, *column_step;
    bool moves = false;             // along a row, without an index for each element
    llvm::Value* buffer = nullptr;  // of what moves and has no mask
    llvm::PHINode* row = nullptr;
    llvm::Value* start = nullptr;       // `row`, farther on by what the row has of an index
    llvm::Value* index_step = nullptr;  // bytes; null for what has no index
    llvm::Value* ahead = nullptr;     // bytes to what is fetched for the next row, if there is one
    llvm::Value* next_row = nullptr;  // the same in a row; 0 in the last one
    llvm::Value* here = nullptr;
    // In the body: with a buffer, where the elements lie, and how far apart; else their values.
    llvm::Value *at = nullptr, *step = nullptr;
    llvm::Value *loaded = nullptr, *stored = nullptr;
  };
  llvm::BasicBlock* block(const char* name);
  llvm::ConstantInt* integer(int64_t n) { return builder.getInt64(static_cast<uint64_t>(n)); }
  llvm::PHINode* counter(llvm::Value* first, llvm::BasicBlock* before);
  llvm::Value* lane_numbers(bool wide);
  // base + index * step, the step in bytes.
  llvm::Value* advance(llvm::Value* base, llvm::Value* index, llvm::Value* step);
  // What comes from one block or from the other.
  llvm::Value* choose(llvm::Value* a, llvm::BasicBlock* from_a, llvm::Value* b,
                      llvm::BasicBlock* from_b);
  // Runs `body` for the elements from, from + lanes, .. below `to`, at least once. It is given how
  // many elements the row has from there on (fewer than a vector, or none, at the end), and what
  // the run before it returned, or `carried`. Returns what the last one did. Values of elements
  // are there in the body alone.
  Values each_vector(llvm::Value* from, llvm::Value* to, const RowLoops::Loop& loop, Values carried,
                     const std::function<Values(llvm::Value* left, const Values&)>& body);

  const Nest& nest;
  const unsigned vector_bits;
  const bool in_stage;  // a part of a stage's function, which knows its sizes
  const RowLoops rows;
  llvm::IRBuilder<> builder;
  Emitter::State state;
  Emitter emitter;
  llvm::Function* function;
  std::optional<LineTable> lines;  // once there is a function
  std::vector<Slot> slots;         // loads, then stores, then those of rows, then of columns
  llvm::Value* streams = nullptr;  // whether stores go past the caches; null where none can
  Values values;                   // as they are held; null until emitted

 private:
  void make_slots();
  void run_rows();
  void find_streams(size_t steps);
  bool may_stream(size_t slot) const;
  void store_vector(const RowLoops::Loop& loop);
  bool has_short_body() const;
  // Runs the steps for whole vectors, and leaves at least one element of the row. Returns where
  // that is.
  llvm::Value* whole_vectors(llvm::Value* to);
  void share_row();
  void compute_row_steps(int level);
  llvm::Value* load(const Slot& s);
  // Whether each element has an index of its own.
  bool gathers(size_t load) const {
    const auto& index = nest.loads[load].index;
    return index && !rows.facts.of_row[*index];
  }
  void begin_row(size_t slot);
  llvm::Value* gather(size_t load, llvm::Value* first, llvm::Value* left);
  void store(Slot& s, llvm::Value* held);
  Slot& slot_of(const RowLoops::Kept& k) { return slots[nest.loads.size() + k.store]; }
  size_t first_column() const {
    return nest.loads.size() + nest.stores.size() + nest.row_stores.size();
  }
  void add_to_columns();
  void store_rows();
  // Whether a vector instruction leaves out the lanes beyond what is left.
  bool by_mask(const Slot& s) const {
    const size_t narrowest = vector_bits == 512 ? 1 : vector_bits == 256 ? 4 : SIZE_MAX;
    return s.walk == Walk::contiguous && size_of(s.dtype) >= narrowest;
  }
  llvm::BasicBlock* copy_left(llvm::Value* left, const std::vector<bool>& which, bool in);
  llvm::Value* mask_of(llvm::Value* left);
  void store_left(llvm::Value* left);
};

// Rows of Nest::row_size elements, from the first to the last: lower_short_rows.cpp.
void run_short_rows(Lowering& f);

// Rows: lower_rows.cpp.
// The dtype that a reduction's values are held as until it is done, and how two of them combine.
DType accumulator(const Step& s);
llvm::Value* combine(Lowering& f, const Step& s, llvm::Value* a, llvm::Value* b);
llvm::Value* identity(Lowering& f, const Step& s);
// All reductions of a level, in one run over the row.
void reduce_rows(Lowering& f, int level);
// What the last loop of each row fetches: for all rows, for one, and doing so.
void find_next_rows(Lowering& f);
void find_next_row(Lowering& f, llvm::Value* row);
void fetch_next_row(Lowering& f, const RowLoops::Loop& loop);

}  // namespace gradus::fusion::cpu
