#include "fusion/cpu/llvm/emitter.h"

#include <algorithm>

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include "fusion/cpu/llvm/emitter_state.h"
#include "gradus/error.h"

namespace gradus::fusion::cpu {

using llvm::Intrinsic::ID;
using V = Emitter::V;

V Emitter::constant(LaneType type, double value) {
  return llvm::ConstantFP::get(state_.vector(type), value);
}
V Emitter::constant(LaneType type, int64_t value) {
  return llvm::ConstantInt::getSigned(state_.vector(type), value);
}
V Emitter::truth(bool value) {
  return llvm::ConstantInt::get(state_.vector(state_.builder.getInt1Ty()), value ? 1 : 0);
}

V Emitter::unary(Unary op, V x) {
  auto& b = state_.builder;
  auto call = [&](ID id) { return b.CreateUnaryIntrinsic(id, x); };
  switch (op) {
    case Unary::negate:
      return x->getType()->isFPOrFPVectorTy() ? b.CreateFNeg(x) : b.CreateNeg(x);
    case Unary::abs:
      return call(llvm::Intrinsic::fabs);
    case Unary::sqrt:
      return call(llvm::Intrinsic::sqrt);
    case Unary::floor:
      return call(llvm::Intrinsic::floor);
    case Unary::ceil:
      return call(llvm::Intrinsic::ceil);
    case Unary::trunc:
      return call(llvm::Intrinsic::trunc);
    case Unary::round_even:
      break;
  }
  return call(llvm::Intrinsic::roundeven);
}

V Emitter::binary(Binary op, V x, V y) {
  auto& b = state_.builder;
  const bool floating = x->getType()->isFPOrFPVectorTy();
  switch (op) {
    case Binary::add:
      return floating ? b.CreateFAdd(x, y) : b.CreateAdd(x, y);
    case Binary::subtract:
      return floating ? b.CreateFSub(x, y) : b.CreateSub(x, y);
    case Binary::multiply:
      return floating ? b.CreateFMul(x, y) : b.CreateMul(x, y);
    case Binary::divide:
      return floating ? b.CreateFDiv(x, y) : b.CreateSDiv(x, y);
    case Binary::remainder:
      return b.CreateSRem(x, y);
    case Binary::divide_unsigned:
      return b.CreateUDiv(x, y);
    case Binary::remainder_unsigned:
      return b.CreateURem(x, y);
    case Binary::bit_and:
      return b.CreateAnd(x, y);
    case Binary::bit_or:
      return b.CreateOr(x, y);
    case Binary::bit_xor:
      return b.CreateXor(x, y);
    case Binary::shift_left:
      return b.CreateShl(x, y);
    case Binary::shift_right:
      return b.CreateAShr(x, y);
    case Binary::shift_right_logical:
      return b.CreateLShr(x, y);
    case Binary::copysign:
      break;
  }
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, y);
}

V Emitter::compare(Compare op, V x, V y) {
  using P = llvm::CmpInst::Predicate;
  constexpr P floating[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT,
                            P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  constexpr P integral[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT,
                            P::ICMP_SGE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  const auto i = static_cast<size_t>(op);
  return state_.builder.CreateCmp(x->getType()->isFPOrFPVectorTy() ? floating[i] : integral[i], x,
                                  y);
}

V Emitter::select(V condition, V x, V y) {
  V chosen = state_.builder.CreateSelect(condition, x, y);
  if (!state_.joining) return chosen;
  llvm::PHINode* join = llvm::PHINode::Create(x->getType(), 2, "", state_.after);
  join->addIncoming(chosen, state_.builder.GetInsertBlock());
  join->addIncoming(y, state_.before);
  return join;
}

V Emitter::fma(V x, V y, V z) {
  return state_.builder.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

V Emitter::to_bits(V x) {
  const bool narrow = x->getType()->getScalarType()->isFloatTy();
  return state_.builder.CreateBitCast(x, state_.vector(narrow ? LaneType::i32 : LaneType::i64));
}
V Emitter::from_bits(V x) {
  const bool narrow = x->getType()->getScalarType()->isIntegerTy(32);
  return state_.builder.CreateBitCast(x, state_.vector(narrow ? LaneType::f32 : LaneType::f64));
}

V Emitter::fmod(V x, V y) {
  auto& b = state_.builder;
  llvm::Type* type = x->getType()->getScalarType();
  llvm::Module* module = b.GetInsertBlock()->getModule();
  auto* signature = llvm::FunctionType::get(type, {type, type}, false);
  auto callee =
      module->getOrInsertFunction(type->isFloatTy() ? fmod_f32_name : fmod_f64_name, signature);
  // It depends on its operands alone.
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotAccessMemory();
  function->setDoesNotThrow();
  function->setWillReturn();
  V result = llvm::PoisonValue::get(x->getType());
  for (uint64_t i = 0; i < state_.lanes; ++i) {
    V lane = b.CreateCall(callee, {b.CreateExtractElement(x, i), b.CreateExtractElement(y, i)});
    result = b.CreateInsertElement(result, lane, i);
  }
  return result;
}

// VSCALEFPS and VSCALEFPD, for a register at a time.
V Emitter::scale_by_exp2(V x, V k) {
  if (state_.vector_bits != 512) return nullptr;
  auto& b = state_.builder;
  auto* element = x->getType()->getScalarType();
  const bool narrow = element->isFloatTy();
  const unsigned size = narrow ? 32 : 64,
                 bits = std::min(state_.register_bits, state_.lanes * size);
  const unsigned lanes = bits / size;
  if (bits < 128) return nullptr;
  namespace I = llvm::Intrinsic;
  const ID id =
      bits == 512 ? (narrow ? I::x86_avx512_mask_scalef_ps_512 : I::x86_avx512_mask_scalef_pd_512)
      : bits == 256
          ? (narrow ? I::x86_avx512_mask_scalef_ps_256 : I::x86_avx512_mask_scalef_pd_256)
          : (narrow ? I::x86_avx512_mask_scalef_ps_128 : I::x86_avx512_mask_scalef_pd_128);
  auto* type = llvm::FixedVectorType::get(element, lanes);
  llvm::Value* all = llvm::ConstantInt::getSigned(b.getIntNTy(std::max(lanes, 8u)), -1);
  llvm::SmallVector<V, 4> parts;
  for (unsigned first = 0; first < state_.lanes; first += lanes) {
    const auto take = llvm::createSequentialMask(first, lanes, 0);
    llvm::SmallVector<V, 5> operands{b.CreateShuffleVector(x, take), b.CreateShuffleVector(k, take),
                                     llvm::Constant::getNullValue(type), all};
    if (bits == 512) operands.push_back(b.getInt32(4));  // rounding as everywhere
    parts.push_back(b.CreateIntrinsic(id, {}, operands));
  }
  return llvm::concatenateVectors(b, parts);
}

void Emitter::begin_rare(V condition) {
  auto& b = state_.builder;
  GRADUS_CHECK(!state_.after);  // one in another would want a stack
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* rare = llvm::BasicBlock::Create(b.getContext(), "rare", function);
  state_.before = b.GetInsertBlock();
  state_.after = llvm::BasicBlock::Create(b.getContext(), "common", function);
  llvm::MDBuilder weights(b.getContext());
  b.CreateCondBr(b.CreateOrReduce(condition), rare, state_.after,
                 weights.createBranchWeights(1, 10000));
  b.SetInsertPoint(rare);
}
void Emitter::join_rare() { state_.joining = true; }
void Emitter::end_rare() {
  state_.builder.CreateBr(state_.after);
  state_.builder.SetInsertPoint(state_.after);
  state_.before = state_.after = nullptr;
  state_.joining = false;
}

}  // namespace gradus::fusion::cpu
