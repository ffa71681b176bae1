#include "fusion/cpu/llvm/convert.h"

namespace gradus::fusion::cpu {

namespace {

using llvm::Value;
using State = Emitter::State;

// The bits of a bf16 in the high half of an f32's, rounded to nearest even; NaN the quiet one.
Value* bfloat16_bits(State& at, Value* x) {
  auto& b = at.builder;
  Value* u = b.CreateBitCast(x, at.vector(LaneType::i32));
  auto word = [&](uint32_t c) { return llvm::ConstantInt::get(u->getType(), c); };
  Value* odd = b.CreateAnd(b.CreateLShr(u, word(16)), word(1));
  Value* rounded = b.CreateAnd(b.CreateAdd(b.CreateAdd(u, word(0x7fff)), odd), word(0xffff0000));
  return b.CreateSelect(b.CreateFCmpUNO(x, x), word(0x7fc00000), rounded);
}

// f32 to one of the 16-bit types, held in f32.
Value* round_half(State& at, DType to, Value* x) {
  auto& b = at.builder;
  if (to == DType::f16)
    return b.CreateFPExt(b.CreateFPTrunc(x, at.vector(b.getHalfTy())), x->getType());
  return b.CreateBitCast(bfloat16_bits(at, x), x->getType());
}

// f64 to f32 by rounding to odd: what is then rounded to 16 bits is rounded once.
Value* round_to_odd(State& at, Value* x) {
  auto& b = at.builder;
  Value* narrow = b.CreateFPTrunc(x, at.vector(LaneType::f32));
  Value* back = b.CreateFPExt(narrow, x->getType());
  Value* bits = b.CreateBitCast(narrow, at.vector(LaneType::i32));
  auto word = [&](uint32_t c) { return llvm::ConstantInt::get(bits->getType(), c); };
  Value* inexact = b.CreateFCmpONE(back, x);
  Value* negative = b.CreateFCmpOLT(x, llvm::ConstantFP::get(x->getType(), 0.0));
  Value* away = b.CreateSelect(negative, b.CreateFCmpOLT(back, x), b.CreateFCmpOGT(back, x));
  Value* towards = b.CreateSelect(away, b.CreateSub(bits, word(1)), bits);
  Value* odd = b.CreateOr(towards, word(1));
  return b.CreateBitCast(b.CreateSelect(inexact, odd, bits), at.vector(LaneType::f32));
}

// A float into an integer: truncated, saturated, NaN 0.
Value* to_integer(State& at, DType to, Value* x) {
  auto& b = at.builder;
  const bool is_signed = !is_unsigned(to);
  llvm::Type* narrow = at.vector(b.getIntNTy(static_cast<unsigned>(size_of(to) * 8)));
  Value* i =
      b.CreateIntrinsic(is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                        {narrow, x->getType()}, {x});
  llvm::Type* wide = at.vector(LaneType::i64);
  return is_signed ? b.CreateSExt(i, wide) : b.CreateZExt(i, wide);
}

// A held integer wrapped to the dtype's width.
Value* wrap(State& at, DType to, Value* x) {
  auto& b = at.builder;
  if (size_of(to) == 8) return x;
  Value* narrow = b.CreateTrunc(x, at.vector(b.getIntNTy(static_cast<unsigned>(size_of(to) * 8))));
  return is_unsigned(to) ? b.CreateZExt(narrow, x->getType()) : b.CreateSExt(narrow, x->getType());
}

bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

// A truth value or integer -> a floating dtype.
Value* integer_to_floating(State& at, DType from, DType to, Value* x) {
  auto& b = at.builder;
  const bool wide = to == DType::f64 || (is_half(to) && size_of(from) > 2);
  llvm::Type* type = at.vector(wide ? LaneType::f64 : LaneType::f32);
  const bool unsigned_bits = from == DType::boolean || from == DType::u64;
  Value* y = unsigned_bits ? b.CreateUIToFP(x, type) : b.CreateSIToFP(x, type);
  return is_half(to) ? round_half(at, to, wide ? round_to_odd(at, y) : y) : y;
}

Value* floating_to_floating(State& at, DType from, DType to, Value* x) {
  auto& b = at.builder;
  if (to == DType::f64) return b.CreateFPExt(x, at.vector(LaneType::f64));
  if (is_half(to)) return round_half(at, to, from == DType::f64 ? round_to_odd(at, x) : x);
  return from == DType::f64 ? b.CreateFPTrunc(x, at.vector(LaneType::f32)) : x;
}

}  // namespace

llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return llvm::Type::getDoubleTy(context);
    case DType::f32:
      return llvm::Type::getFloatTy(context);
    case DType::f16:
      return llvm::Type::getHalfTy(context);
    default:  // bf16 too: its conversions are written out
      return llvm::Type::getIntNTy(context, static_cast<unsigned>(size_of(dtype) * 8));
  }
}

Value* hold(State& at, DType dtype, Value* elements) {
  auto& b = at.builder;
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::i64:
    case DType::u64:
      return elements;
    case DType::f16:
      return b.CreateFPExt(elements, at.vector(LaneType::f32));
    case DType::bf16: {
      Value* u = b.CreateZExt(elements, at.vector(LaneType::i32));
      return b.CreateBitCast(b.CreateShl(u, 16), at.vector(LaneType::f32));
    }
    case DType::i32:
    case DType::i16:
    case DType::i8:
      return b.CreateSExt(elements, at.vector(LaneType::i64));
    case DType::u32:
    case DType::u16:
    case DType::u8:
      return b.CreateZExt(elements, at.vector(LaneType::i64));
    case DType::boolean:
      break;
  }
  return b.CreateICmpNE(elements, llvm::Constant::getNullValue(elements->getType()));
}

Value* unhold(State& at, DType dtype, Value* held) {
  auto& b = at.builder;
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::i64:
    case DType::u64:
      return held;
    case DType::f16:
      return b.CreateFPTrunc(held, at.vector(b.getHalfTy()));
    case DType::bf16: {
      Value* u = b.CreateBitCast(held, at.vector(LaneType::i32));
      return b.CreateTrunc(b.CreateLShr(u, 16), at.vector(b.getInt16Ty()));
    }
    case DType::boolean:
      return b.CreateZExt(held, at.vector(b.getInt8Ty()));
    default:
      return b.CreateTrunc(held, at.vector(memory_type(b.getContext(), dtype)));
  }
}

Value* convert(State& at, DType from, DType to, Value* x) {
  auto& b = at.builder;
  if (from == to) return x;
  if (to == DType::boolean) {
    llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
    return is_floating(from) ? b.CreateFCmpUNE(x, zero) : b.CreateICmpNE(x, zero);
  }
  if (is_floating(from))
    return is_floating(to) ? floating_to_floating(at, from, to, x) : to_integer(at, to, x);
  if (is_floating(to)) return integer_to_floating(at, from, to, x);
  if (from == DType::boolean) return b.CreateZExt(x, at.vector(LaneType::i64));
  return wrap(at, to, x);
}

}  // namespace gradus::fusion::cpu
