// A small product, multiplication by multiplication.
#include <algorithm>
#include <bit>
#include <numeric>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "fusion/cpu/llvm/target.h"
#include "fusion/cpu/lower_stage.h"

namespace gradus::fusion::cpu {

using llvm::Value;

namespace {

// Rows times vectors of the result that are in registers at a time.
constexpr int64_t most_accumulators = 12;

class ProductLowering {
 public:
  ProductLowering(const work::Gemm& product, unsigned vector_bits, const std::string& name,
                  llvm::Module& module)
      : g_(work::with_wide_result(product)),
        swaps_(product.n == 1 && product.m != 1),
        has_masks_(vector_bits >= 512),
        size_(static_cast<int64_t>(size_of(product.dtype))),
        builder_(module.getContext()) {
    // No vector is wider than what there is.
    const auto widest = static_cast<uint64_t>(vector_bits / 8 / size_);
    lanes_ = static_cast<int64_t>(std::clamp(std::bit_ceil(static_cast<uint64_t>(g_.n)),
                                             std::min<uint64_t>(4, widest), widest));
    element_ = product.dtype == DType::f32 ? builder_.getFloatTy() : builder_.getDoubleTy();
    vector_ = llvm::FixedVectorType::get(element_, static_cast<unsigned>(lanes_));
    auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {builder_.getPtrTy()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    set_attributes(*function_, vector_bits);
  }

  void run() {
    builder_.SetInsertPoint(llvm::BasicBlock::Create(builder_.getContext(), "entry", function_));
    a_ = argument(swaps_ ? 1 : 0);
    b_ = argument(swaps_ ? 0 : 1);
    c_ = argument(2);
    const bool turned = g_.b_column != 1 && g_.n > 1 && g_.k > 1;
    const int64_t vectors = (g_.n + lanes_ - 1) / lanes_;
    const int64_t together = turned ? 1 : std::min<int64_t>(vectors, 4);
    const int64_t rows = std::max<int64_t>(1, std::min(g_.m, most_accumulators / together));
    for (int64_t v = 0; v < vectors; v += together) {
      if (turned) turn(v);
      for (int64_t i = 0; i < g_.m; i += rows)
        tile(i, std::min(rows, g_.m - i), v, std::min(together, vectors - v));
    }
    builder_.CreateRetVoid();
  }

 private:
  Value* argument(unsigned n) {
    return builder_.CreateLoad(
        builder_.getPtrTy(),
        builder_.CreateConstGEP1_64(builder_.getPtrTy(), function_->getArg(0), n));
  }
  Value* at(Value* base, int64_t elements) {
    return builder_.CreateConstGEP1_64(builder_.getInt8Ty(), base,
                                       static_cast<uint64_t>(elements * size_));
  }
  llvm::Align align() const { return llvm::Align(static_cast<uint64_t>(size_)); }
  Value* first(int64_t count) {
    SmallVector<llvm::Constant*, 16> lanes;
    for (int64_t l = 0; l < lanes_; ++l) lanes.push_back(builder_.getInt1(l < count));
    return llvm::ConstantVector::get({lanes.begin(), lanes.size()});
  }
  // The first `count` elements from a place on; zeros beyond.
  Value* load(Value* place, int64_t count) {
    if (count >= lanes_) return builder_.CreateAlignedLoad(vector_, place, align());
    return builder_.CreateMaskedLoad(vector_, place, align(), first(count),
                                     llvm::Constant::getNullValue(vector_));
  }
  // The first `count` lanes. Without mask registers each power of two in it is a store, which takes
  // less than one by a mask.
  void store(Value* v, Value* place, int64_t count) {
    if (has_masks_) {
      builder_.CreateMaskedStore(v, place, align(), first(count));
      return;
    }
    int64_t stored = 0;
    for (int64_t part = lanes_ / 2; part; part /= 2) {
      if (!(count & part)) continue;
      std::vector<int> lanes(static_cast<size_t>(part));
      std::iota(lanes.begin(), lanes.end(), static_cast<int>(stored));
      builder_.CreateAlignedStore(builder_.CreateShuffleVector(v, lanes), at(place, stored),
                                  align());
      stored += part;
    }
  }
  int64_t columns_of(int64_t v) const { return std::min(lanes_, g_.n - v * lanes_); }

  Value* b(int64_t k, int64_t v) {
    if (!turned_.empty()) return turned_[static_cast<size_t>(k)];
    if (g_.b_column != 1 && g_.n > 1) return strided(k, v);
    return load(at(b_, k * g_.b_row + v * lanes_), columns_of(v));
  }
  Value* strided(int64_t k, int64_t v) {
    Value* x = llvm::Constant::getNullValue(vector_);
    for (int64_t j = 0; j < columns_of(v); ++j) {
      Value* place = at(b_, k * g_.b_row + (v * lanes_ + j) * g_.b_column);
      x = builder_.CreateInsertElement(x, builder_.CreateAlignedLoad(element_, place, align()),
                                       static_cast<uint64_t>(j));
    }
    return x;
  }

  // turned_[k] = b[k, columns of v], where b's columns have no gaps: squares whose halves are
  // interleaved until rows are columns.
  void turn(int64_t v) {
    turned_.clear();
    for (int64_t k = 0; k < g_.k; k += lanes_) {
      std::vector<Value*> rows, next;
      for (int64_t j = 0; j < lanes_; ++j)
        rows.push_back(j < columns_of(v)
                           ? load(at(b_, (v * lanes_ + j) * g_.b_column + k), g_.k - k)
                           : llvm::Constant::getNullValue(vector_));
      for (int64_t step = 1; step < lanes_; step *= 2) {
        next.clear();
        for (size_t i = 0; i < rows.size() / 2; ++i)
          for (int half : {0, 1})
            next.push_back(
                builder_.CreateShuffleVector(rows[i], rows[i + rows.size() / 2], interleave(half)));
        rows.swap(next);
      }
      rows.resize(static_cast<size_t>(std::min(lanes_, g_.k - k)));
      turned_.insert(turned_.end(), rows.begin(), rows.end());
    }
  }
  std::vector<int> interleave(int half) const {
    std::vector<int> lanes;
    for (int64_t l = 0; l < lanes_ / 2; ++l)
      for (int64_t from : {int64_t{0}, lanes_})
        lanes.push_back(static_cast<int>(from + half * lanes_ / 2 + l));
    return lanes;
  }

  void tile(int64_t row, int64_t rows, int64_t v, int64_t vectors) {
    std::vector<Value*> sums(static_cast<size_t>(rows * vectors),
                             llvm::Constant::getNullValue(vector_));
    for (int64_t k = 0; k < g_.k; ++k) {
      SmallVector<Value*, 4> right;
      for (int64_t w = 0; w < vectors; ++w) right.push_back(b(k, v + w));
      for (int64_t i = 0; i < rows; ++i) {
        Value* place = at(a_, (row + i) * g_.a_row + k * g_.a_column);
        Value* left = builder_.CreateVectorSplat(
            static_cast<unsigned>(lanes_), builder_.CreateAlignedLoad(element_, place, align()));
        for (int64_t w = 0; w < vectors; ++w) {
          Value*& sum = sums[static_cast<size_t>(i * vectors + w)];
          sum = builder_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_},
                                         {left, right[static_cast<size_t>(w)], sum});
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t w = 0; w < vectors; ++w) {
        Value* sum = sums[static_cast<size_t>(i * vectors + w)];
        Value* place = at(c_, (row + i) * g_.n + (v + w) * lanes_);
        if (const int64_t count = columns_of(v + w); count < lanes_)
          store(sum, place, count);
        else
          builder_.CreateAlignedStore(sum, place, align());
      }
  }

  const work::Gemm g_;
  const bool swaps_, has_masks_;
  const int64_t size_;
  int64_t lanes_;
  llvm::IRBuilder<> builder_;
  llvm::Type* element_;
  llvm::Type* vector_;
  llvm::Function* function_;
  Value *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
  std::vector<Value*> turned_;  // by k, of the vector at hand; empty where b is read as it lies
};

}  // namespace

void lower_product(const work::Gemm& product, unsigned vector_bits, const std::string& name,
                   llvm::Module& module) {
  ProductLowering(product, vector_bits, name, module).run();
}

}  // namespace gradus::fusion::cpu
