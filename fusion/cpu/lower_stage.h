// A small stage -> a function of LLVM.
#pragma once

#include "fusion/stage.h"

namespace llvm {
class Module;
}

namespace gradus::fusion::cpu {

// What a stage's function hands to a call.
struct StageCalls;

// How the compiled function is called: with the stage's pointers, what its calls need, and how
// pointers move between rounds. Returns the number of the item whose call failed, or how many items
// there are; `calls` says then how many rounds are left.
using StageEntry = int64_t (*)(std::byte** args, StageCalls* calls, PointerMove* moves,
                               int64_t count);

// The function that it calls, with the same and a call's number: not 0 if the call failed.
inline constexpr const char* outer_call_name = "gradus_outer_call";

// Appends the stage's function `name` to the module, and one for each of its pieces, which is
// called with the piece's pointers.
void lower(const StageProgram& stage, unsigned vector_bits, const std::string& name,
           llvm::Module& module);
// What that of the n-th piece is called, of the stage's function `name`.
inline std::string piece_name(const std::string& name, const StageProgram& stage, size_t n) {
  const auto kind = std::visit([](const auto& w) { return w.name; }, stage.pieces[n]);
  return fmt::format("{}_{}_{}", name, kind, n);
}

// Appends a product that is_inline takes, called with the pointers of a, b and c: c = a b, in the
// order of work/product.h.
void lower_product(const work::Gemm& product, unsigned vector_bits, const std::string& name,
                   llvm::Module& module);
// The same of a sum, in the order of work/reduce.h, and of copies.
void lower_sum(const work::Reduce& sum, unsigned vector_bits, const std::string& name,
               llvm::Module& module);
void lower_copies(const work::Move& copies, unsigned vector_bits, const std::string& name,
                  llvm::Module& module);

}  // namespace gradus::fusion::cpu
