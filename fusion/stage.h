// A small stage as one function: what it does, step by step, for known sizes.
//
// Where all of a stage's work is small, calling its kernels costs more than what they compute, and
// sizes that are known when it is compiled leave no loop to be set up. Groups, small products,
// sums and copies become code of one function then; what else there is, it calls where its turn
// comes.
#pragma once

#include <span>

#include "fusion/nest.h"
#include "gradus/kernels.h"
#include "work/work.h"

namespace gradus::fusion {

// A kernel outside of the function, as a state calls it.
struct OuterCall {
  work::KernelFunction run = nullptr;
  const void* parameters = nullptr;
  uint32_t args = 0;    // its first pointer among the stage's
  int64_t scratch = 0;  // where its scratch memory begins in the stage's
};

// Data only.
struct StageProgram {
  static constexpr uint32_t call = UINT32_MAX;
  struct Item {
    uint32_t piece = call;  // index into `pieces`; calls are numbered as they come
    uint32_t args = 0;      // its first pointer among the stage's
    SourceLocation where;   // in `program`; a comment in the text
  };
  std::vector<work::Work> pieces;  // each once; what `is_inline` takes
  std::vector<Item> items;         // in the order in which they run
  std::string program;             // the file that `where` is of, in full; empty: none
};

// As text: what its code depends on.
std::string print(const StageProgram& stage);

// Whether work is code of the function:
//   any nest, at a frame that fits it;
//   a product of one matrix of f32 or f64, whose sums are one chain (work/product.h), of so few
//     multiplications that they stand there one by one;
//   sums of few elements in f32 or f64, whose results are of neighbours or but one;
//   copies of few elements that convert nothing.
bool is_inline(const work::Work& work);
// Whether the elements of a copy's last dimension are neighbours where they come from and go to.
bool has_rows(const work::Copy& copy);

// How one of a stage's pointers moves between two rounds: by `next`, then by `after`, in turns. In
// bytes. Generated code knows the fields.
struct PointerMove {
  int64_t arg, next, after;
};

// How often a stage's function does its work in one call, and how pointers move in between.
struct Rounds {
  int64_t left = 1;  // one at least; afterwards those that were not finished
  std::span<PointerMove> moves;
};

// Compiled code of a stage. Immutable, for any number of threads.
class StageKernel {
 public:
  using Loops = void (*)(std::byte* const* args);
  virtual ~StageKernel() = default;
  // Runs all items in order, round by round. Pointers and moves are as the last round had them
  // then. `calls` has the calls by number; their scratch memory begins at `scratch`. What a call
  // throws passes through: `item` is the one that did.
  virtual void run(std::byte** args, Rounds& rounds, std::span<const OuterCall> calls,
                   WorkerPool& workers, std::byte* scratch, size_t& item) const = 0;
  void run_once(std::byte** args, std::span<const OuterCall> calls, WorkerPool& workers,
                std::byte* scratch, size_t& item) const {
    Rounds once;
    run(args, once, calls, workers, scratch, item);
  }
  // One of the program's nests alone, for who runs item by item. Valid as long as this is.
  virtual Loops loops(size_t piece) const = 0;
};

}  // namespace gradus::fusion
