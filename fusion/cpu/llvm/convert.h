// Conversions between dtypes in a kernel, as gradus/convert.h has them.
//
// A value of a dtype is held so: f64 in f64; f32, f16 and bf16 in f32; integers in i64; bool as a
// truth value. What is held is a number of the dtype.
#pragma once

#include "fusion/cpu/llvm/emitter_state.h"
#include "gradus/dtype.h"

namespace gradus::fusion::cpu {

// What an element is in memory.
llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype);

// A vector of elements as they lie in memory -> as they are held, and back.
llvm::Value* hold(Emitter::State& at, DType dtype, llvm::Value* elements);
llvm::Value* unhold(Emitter::State& at, DType dtype, llvm::Value* held);

// A held value of one dtype -> of another.
llvm::Value* convert(Emitter::State& at, DType from, DType to, llvm::Value* held);

}  // namespace gradus::fusion::cpu
