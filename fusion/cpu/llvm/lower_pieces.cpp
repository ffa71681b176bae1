// Small sums and copies, element by element or vector by vector.
#include <algorithm>
#include <bit>
#include <cstring>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "fusion/cpu/llvm/target.h"
#include "fusion/cpu/lower_stage.h"

namespace gradus::fusion::cpu {

using llvm::Value;

namespace {

// A function of pointers, and places behind them.
class Piece {
 public:
  Piece(unsigned vector_bits, const std::string& name, llvm::Module& module)
      : builder(module.getContext()), vector_bytes(vector_bits / 8) {
    auto* type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    set_attributes(*function_, vector_bits);
    builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", function_));
  }
  Value* argument(int n) {
    return builder.CreateLoad(builder.getPtrTy(),
                              builder.CreateConstGEP1_64(builder.getPtrTy(), function_->getArg(0),
                                                         static_cast<uint64_t>(n)));
  }
  Value* at(Value* base, int64_t bytes) {
    return builder.CreateConstGEP1_64(builder.getInt8Ty(), base, static_cast<uint64_t>(bytes));
  }

  llvm::IRBuilder<> builder;
  const int64_t vector_bytes;

 private:
  llvm::Function* function_;
};

// Offsets of an index space's elements in row-major order.
std::vector<int64_t> offsets_of(const work::Axes& axes, int64_t count) {
  std::vector<int64_t> offsets;
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n, at = 0;
    for (size_t d = axes.size(); d-- > 0; rest /= axes[d].size)
      at += rest % axes[d].size * axes[d].stride;
    offsets.push_back(at);
  }
  return offsets;
}

}  // namespace

void lower_sum(const work::Reduce& sum, unsigned vector_bits, const std::string& name,
               llvm::Module& module) {
  Piece piece(vector_bits, name, module);
  auto& builder = piece.builder;
  const auto size = static_cast<int64_t>(size_of(sum.in));
  const llvm::Align align(static_cast<uint64_t>(size));
  llvm::Type* element = sum.in == DType::f32 ? builder.getFloatTy() : builder.getDoubleTy();
  const std::vector<int64_t> terms = offsets_of(sum.reduced, sum.count);
  Value *x = piece.argument(0), *y = piece.argument(1);
  for (int64_t first = 0; first < sum.outputs;) {
    const auto left = static_cast<uint64_t>(sum.outputs - first);
    const auto lanes =
        std::min(std::bit_floor(left), static_cast<uint64_t>(piece.vector_bytes / size));
    llvm::Type* type =
        lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
    // The lanes of a reduction, not of a vector: term r goes into the r mod 16th.
    std::vector<Value*> sums(std::min(terms.size(), static_cast<size_t>(work::reduce_lanes)),
                             llvm::Constant::getNullValue(type));
    for (size_t r = 0; r < terms.size(); ++r) {
      Value*& lane = sums[r % sums.size()];
      Value* place = piece.at(x, (terms[r] + first * sum.kept[0].stride) * size);
      lane = builder.CreateFAdd(lane, builder.CreateAlignedLoad(type, place, align));
    }
    for (size_t half = static_cast<size_t>(work::reduce_lanes) / 2; half > 0; half /= 2)
      for (size_t l = 0; l < half && l + half < sums.size(); ++l)
        sums[l] = builder.CreateFAdd(sums[l], sums[l + half]);
    builder.CreateAlignedStore(sums[0], piece.at(y, first * size), align);
    first += static_cast<int64_t>(lanes);
  }
  builder.CreateRetVoid();
}

void lower_copies(const work::Move& copies, unsigned vector_bits, const std::string& name,
                  llvm::Module& module) {
  Piece piece(vector_bits, name, module);
  auto& builder = piece.builder;
  const llvm::Align one(1);
  for (const work::Copy& m : copies.copies) {
    const auto size = static_cast<int64_t>(size_of(m.target.dtype));
    const bool rows = has_rows(m);
    const int64_t row = rows ? m.shape.back() : 1;
    Value* from = m.fills ? nullptr : piece.argument(m.source.argument);
    Value* to = piece.argument(m.target.argument);
    int64_t count = 1;
    for (int64_t n : m.shape) count *= n;
    for (int64_t n = 0; n < count; n += row) {
      int64_t rest = n, source = m.source.offset, target = m.target.offset;
      for (size_t d = m.shape.size(); d-- > 0; rest /= m.shape[d]) {
        const int64_t index = rest % m.shape[d];
        if (!m.fills) source += index * m.source.strides[d];
        target += index * m.target.strides[d];
      }
      for (int64_t done = 0; done < row * size;) {
        const auto bytes =
            std::min(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(row * size - done))),
                     piece.vector_bytes);
        auto* type = llvm::FixedVectorType::get(builder.getInt8Ty(), static_cast<unsigned>(bytes));
        Value* value;
        if (m.fills) {
          std::vector<uint8_t> pattern(static_cast<size_t>(bytes));
          for (size_t b = 0; b < pattern.size(); ++b)
            pattern[b] = static_cast<uint8_t>(m.pattern.bytes[b % static_cast<size_t>(size)]);
          value = llvm::ConstantDataVector::get(builder.getContext(), pattern);
        } else {
          value = builder.CreateAlignedLoad(type, piece.at(from, source * size + done), one);
        }
        builder.CreateAlignedStore(value, piece.at(to, target * size + done), one);
        done += bytes;
      }
    }
  }
  builder.CreateRetVoid();
}

}  // namespace gradus::fusion::cpu
