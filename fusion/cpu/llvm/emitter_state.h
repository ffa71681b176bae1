// What an emitter stands on: seen only by the files that use LLVM's headers.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "fusion/cpu/llvm/emitter.h"

namespace gradus::fusion::cpu {

struct Emitter::State {
  llvm::IRBuilder<>& builder;
  unsigned lanes;          // elements a vector has
  unsigned vector_bits;    // of the machine's widest registers: 512 of x86-64-v4 alone
  unsigned register_bits;  // of those that the code uses
  // Between begin_rare and end_rare.
  llvm::BasicBlock* before = nullptr;
  llvm::BasicBlock* after = nullptr;
  bool joining = false;

  llvm::Type* vector(llvm::Type* element) const {
    return llvm::FixedVectorType::get(element, lanes);
  }
  llvm::Type* vector(LaneType type) const {
    switch (type) {
      case LaneType::f32:
        return vector(builder.getFloatTy());
      case LaneType::f64:
        return vector(builder.getDoubleTy());
      case LaneType::i32:
        return vector(builder.getInt32Ty());
      case LaneType::i64:
      case LaneType::u64:
        break;
    }
    return vector(builder.getInt64Ty());
  }
};

// The functions that kernels call, as they are named in a module: fmod of floats and of doubles.
inline constexpr const char* fmod_f32_name = "gradus_fmod_f32";
inline constexpr const char* fmod_f64_name = "gradus_fmod_f64";

}  // namespace gradus::fusion::cpu
