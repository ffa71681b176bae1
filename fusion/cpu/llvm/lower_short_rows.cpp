// Rows of few elements, several at a time: lane l of a vector is row r + l, and each place in a row
// has a vector of its own. A reduction combines these vectors, in the order of work/reduce.h, and
// no lanes fold. What rows share or are reduced to is one vector.
#include <algorithm>
#include <bit>

#include <llvm/Analysis/VectorUtils.h>

#include "fusion/cpu/llvm/convert.h"
#include "fusion/cpu/llvm/lowering.h"

namespace gradus::fusion::cpu {

using llvm::BasicBlock;
using llvm::Value;
using work::Reducer;

namespace {

class ShortRows {
 public:
  explicit ShortRows(Lowering& lowering)
      : f_(lowering),
        builder_(lowering.builder),
        size_(static_cast<size_t>(lowering.nest.row_size)),
        lanes_(lowering.state.lanes) {}

  void run() {
    Value* count = f_.function->getArg(0);
    if (f_.nest.reduces())
      run_overlapping(count);
    else
      run_apart(count);
  }

 private:
  llvm::Align align(const Lowering::Slot& s) const { return llvm::Align(size_of(s.dtype)); }

  // The last vector ends with the last row. Rows that it shares with the one before are stored once
  // more, as they are: where rows are reduced, no store lies where a load does.
  void run_overlapping(Value* count) {
    BasicBlock *entry = builder_.GetInsertBlock(), *rows = f_.block("rows"),
               *exit = f_.block("exit");
    place_lanes(builder_.CreateSub(count, f_.integer(1)));
    Value* is_whole = builder_.CreateICmpSGE(count, f_.integer(lanes_));
    builder_.CreateCondBr(builder_.CreateICmpSLE(count, f_.integer(0)), exit, rows);
    builder_.SetInsertPoint(rows);
    llvm::PHINode* r = f_.counter(f_.integer(0), entry);
    load_and_compute(r);
    BasicBlock *whole = f_.block("whole"), *some = f_.block("some"), *stored = f_.block("stored");
    builder_.CreateCondBr(is_whole, whole, some);
    for (BasicBlock* b : {whole, some}) {
      builder_.SetInsertPoint(b);
      store(b == whole);
      builder_.CreateBr(stored);
    }
    builder_.SetInsertPoint(stored);
    Value* next = builder_.CreateAdd(r, f_.integer(lanes_));
    Value* last = builder_.CreateSub(count, f_.integer(lanes_));
    r->addIncoming(builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, next, last), stored);
    builder_.CreateCondBr(builder_.CreateICmpSLT(next, count), rows, exit);
    builder_.SetInsertPoint(exit);
  }

  // Whole vectors, then what is left of the rows.
  void run_apart(Value* count) {
    BasicBlock *entry = builder_.GetInsertBlock(), *rows = f_.block("rows"),
               *left = f_.block("left"), *some = f_.block("some"), *exit = f_.block("exit");
    place_lanes(f_.integer(lanes_));
    Value* last = builder_.CreateSub(count, f_.integer(lanes_));
    builder_.CreateCondBr(builder_.CreateICmpSGE(last, f_.integer(0)), rows, left);
    builder_.SetInsertPoint(rows);
    llvm::PHINode* r = f_.counter(f_.integer(0), entry);
    load_and_compute(r);
    store(true);
    Value* next = builder_.CreateAdd(r, f_.integer(lanes_));
    BasicBlock* end = builder_.GetInsertBlock();
    r->addIncoming(next, end);
    builder_.CreateCondBr(builder_.CreateICmpSLE(next, last), rows, left);
    builder_.SetInsertPoint(left);
    Value* from = f_.choose(f_.integer(0), entry, next, end);
    builder_.CreateCondBr(builder_.CreateICmpSLT(from, count), some, exit);
    builder_.SetInsertPoint(some);
    place_lanes(builder_.CreateSub(builder_.CreateSub(count, from), f_.integer(1)));
    load_and_compute(from);
    store(false);
    builder_.CreateBr(exit);
    builder_.SetInsertPoint(exit);
  }

  // How far from the first lane's row each lane's is. Lanes behind the last row take that one once
  // more, and store what it does.
  void place_lanes(Value* last) {
    Lowering::Values row;
    for (unsigned l = 0; l < lanes_; ++l)
      row.push_back(builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, f_.integer(l), last));
    steps_.clear();
    for (const Lowering::Slot& s : f_.slots)
      for (Lowering::Values& steps = steps_.emplace_back(); Value * n : row)
        steps.push_back(builder_.CreateMul(n, s.row_step));
  }

  // Where lane l's row begins.
  Value* begin(size_t slot, unsigned l) {
    return builder_.CreateGEP(builder_.getInt8Ty(), begins_[slot], steps_[slot][l]);
  }

  // Whether a load has the same elements for all rows.
  bool shares_rows(size_t load) const {
    const Load& l = f_.nest.loads[load];
    return l.walks[l.walks.size() - 2] == Walk::broadcast && (!l.index || shares_rows(*l.index));
  }

  // Where lane l finds its element of place c.
  Value* place_of(size_t load, unsigned l, size_t c) {
    const Lowering::Slot& s = f_.slots[load];
    Value* at = begin(load, l);
    if (s.index_step) {
      const size_t index = *f_.nest.loads[load].index;
      const Lowering::Slot& of = f_.slots[index];
      Value* n = builder_.CreateAlignedLoad(of.element, place_of(index, l, c), align(of));
      at = f_.advance(at, builder_.CreateSExt(n, builder_.getInt64Ty()), s.index_step);
    }
    if (s.walk == Walk::broadcast) return at;
    return f_.advance(at, f_.integer(static_cast<int64_t>(c)), s.column_step);
  }

  Value* load(size_t load, size_t c) {
    const Lowering::Slot& s = f_.slots[load];
    auto element = [&](unsigned l) {
      return builder_.CreateAlignedLoad(s.element, place_of(load, l, c), align(s));
    };
    if (shares_rows(load)) return builder_.CreateVectorSplat(lanes_, element(0));
    Value* elements = llvm::PoisonValue::get(f_.state.vector(s.element));
    for (unsigned l = 0; l < lanes_; ++l)
      elements = builder_.CreateInsertElement(elements, element(l), uint64_t{l});
    return elements;
  }

  // Pieces of two or four elements of each row, which are turned to one vector for each place: the
  // last piece ends with the row. Empty where elements do not follow each other.
  Lowering::Values load_rows(size_t load) {
    const Lowering::Slot& s = f_.slots[load];
    const size_t piece = size_ >= 4 ? 4 : 2;
    if (s.walk != Walk::contiguous || f_.nest.loads[load].index || shares_rows(load) ||
        size_of(s.dtype) < 4 || size_ < piece || lanes_ < piece)
      return {};
    Lowering::Values places(size_);
    for (size_t c = 0; c < size_; c += piece) {
      const size_t first = std::min(c, size_ - piece);
      Lowering::Values rows;
      for (unsigned l = 0; l < lanes_; ++l) {
        Value* at = f_.advance(begin(load, l), f_.integer(static_cast<int64_t>(first)), s.bytes);
        rows.push_back(builder_.CreateAlignedLoad(
            llvm::FixedVectorType::get(s.element, static_cast<unsigned>(piece)), at, align(s)));
      }
      const Lowering::Values turned =
          piece == 4 ? turn_four(rows, size_of(s.dtype)) : turn_two(rows);
      std::ranges::copy(turned, places.begin() + static_cast<long>(first));
    }
    return places;
  }

  Value* joined(const Lowering::Values& vectors) {
    return vectors.size() == 1 ? vectors[0] : llvm::concatenateVectors(builder_, vectors);
  }

  // Row i, i + step, i + 2 step, .. as one vector.
  Value* every(const Lowering::Values& rows, size_t i, size_t step) {
    Lowering::Values some;
    for (; i < rows.size(); i += step) some.push_back(rows[i]);
    return joined(some);
  }

  // In each `size` elements those that `order` says, of a and, from `size` on, of b.
  Value* mix(Value* a, Value* b, std::initializer_list<int> order) {
    const int size = static_cast<int>(order.size()), lanes = static_cast<int>(lanes_);
    SmallVector<int, 16> all;
    for (int first = 0; first < lanes; first += size)
      for (int n : order) all.push_back(first + (n < size ? n : lanes + n - size));
    return builder_.CreateShuffleVector(a, b, {all.data(), all.size()});
  }

  Lowering::Values turn_two(const Lowering::Values& rows) {
    Value *a = every(rows, 0, 2), *b = every(rows, 1, 2);
    return {mix(a, b, {0, 2}), mix(a, b, {1, 3})};
  }

  // As instructions have it that work within 16 bytes.
  Lowering::Values turn_four(const Lowering::Values& rows, size_t bytes) {
    Value *a = every(rows, 0, 4), *b = every(rows, 1, 4), *c = every(rows, 2, 4),
          *d = every(rows, 3, 4);
    if (bytes == 8) {
      Value *even_ab = mix(a, b, {0, 4, 2, 6}), *even_cd = mix(c, d, {0, 4, 2, 6});
      Value *odd_ab = mix(a, b, {1, 5, 3, 7}), *odd_cd = mix(c, d, {1, 5, 3, 7});
      return {mix(even_ab, even_cd, {0, 1, 4, 5}), mix(odd_ab, odd_cd, {0, 1, 4, 5}),
              mix(even_ab, even_cd, {2, 3, 6, 7}), mix(odd_ab, odd_cd, {2, 3, 6, 7})};
    }
    Value *low_ab = mix(a, b, {0, 4, 1, 5}), *low_cd = mix(c, d, {0, 4, 1, 5});
    Value *high_ab = mix(a, b, {2, 6, 3, 7}), *high_cd = mix(c, d, {2, 6, 3, 7});
    return {mix(low_ab, low_cd, {0, 1, 4, 5}), mix(low_ab, low_cd, {2, 3, 6, 7}),
            mix(high_ab, high_cd, {0, 1, 4, 5}), mix(high_ab, high_cd, {2, 3, 6, 7})};
  }

  void load_and_compute(Value* first_row) {
    begins_.clear();
    for (const Lowering::Slot& s : f_.slots)
      begins_.push_back(f_.advance(s.first, first_row, s.row_step));
    load_all();
    compute();
  }

  // By place in a row. What the row has once is the same for all.
  void load_all() {
    values_.assign(size_, Lowering::Values(f_.nest.values()));
    for (size_t k = 0; k < f_.nest.loads.size(); ++k) {
      const Lowering::Values pieces = load_rows(k);
      make(k, [&](size_t c) {
        return hold(f_.state, f_.slots[k].dtype, pieces.empty() ? load(k, c) : pieces[c]);
      });
    }
    for (size_t i = 0; i < f_.nest.numbers.size(); ++i)
      make(f_.nest.first_number() + i, [&](size_t) { return f_.number(f_.nest.numbers[i]); });
  }

  template <class Maker>
  void make(size_t value, Maker maker) {
    const bool of_row = f_.rows.facts.of_row[value];
    for (size_t c = 0; c < size_; ++c)
      values_[c][value] = of_row && c > 0 ? values_[0][value] : maker(c);
  }

  void compute() {
    for (size_t i = 0; i < f_.nest.steps.size(); ++i) {
      const Step& s = f_.nest.steps[i];
      make(f_.nest.first_step() + i, [&](size_t c) {
        if (s.reduces_row()) return reduce(s);
        std::swap(f_.values, values_[c]);
        Value* y = f_.step(s);
        std::swap(f_.values, values_[c]);
        return y;
      });
    }
  }

  Value* reduce(const Step& s) {
    const ValueNumber x = s.operands[0];
    const DType held = accumulator(s);
    const size_t most = static_cast<size_t>(work::reduce_lanes);
    Lowering::Values sums;
    for (size_t c = 0; c < size_; ++c) {
      Value* taken = convert(f_.state, f_.nest.dtype_of(x), held, values_[c][x]);
      if (c >= most)
        sums[c % most] = combine(f_, s, sums[c % most], taken);
      else if (*s.reducer == Reducer::sum)
        sums.push_back(combine(f_, s, identity(f_, s), taken));  // no -0
      else
        sums.push_back(taken);
    }
    for (size_t half = most / 2; half > 0; half /= 2)
      for (size_t l = 0; l < half && l + half < sums.size(); ++l)
        sums[l] = combine(f_, s, sums[l], sums[l + half]);
    return convert(f_.state, held, s.dtype, sums[0]);
  }

  // Whole: each lane has a row of its own. What the body computes is read before anything is
  // stored.
  void store(bool whole) {
    const size_t first = f_.nest.loads.size(), stores = f_.nest.stores.size();
    for (size_t k = 0; k < stores + f_.nest.row_stores.size(); ++k) {
      const Lowering::Slot& s = f_.slots[first + k];
      Lowering::Values elements;
      if (k < stores)
        for (const Lowering::Values& v : values_)
          elements.push_back(unhold(f_.state, s.dtype, v[f_.nest.stores[k]]));
      else
        elements.push_back(unhold(f_.state, s.dtype, values_[0][f_.nest.row_stores[k - stores]]));
      if (whole && interleaves(elements.size())) {
        builder_.CreateAlignedStore(interleaved(elements), begins_[first + k], align(s));
        continue;
      }
      for (unsigned l = 0; l < lanes_; ++l)
        for (size_t c = 0; c < elements.size(); ++c)
          store_lane(first + k, elements[c], l, static_cast<int64_t>(c));
    }
  }

  // Whether vectors of so many places are stored as rows, or element by element, which takes fewer
  // instructions where rows of one length lie anyhow in registers of another.
  static bool interleaves(size_t places) { return places <= 8 || std::has_single_bit(places); }

  // Rows one after the other, as they lie in memory.
  Value* interleaved(const Lowering::Values& places) {
    Value* all = joined(places);
    SmallVector<int, 64> order;
    for (unsigned l = 0; l < lanes_; ++l)
      for (size_t c = 0; c < places.size(); ++c) order.push_back(static_cast<int>(c * lanes_ + l));
    return builder_.CreateShuffleVector(all, {order.data(), order.size()});
  }

  void store_lane(size_t slot, Value* elements, unsigned l, int64_t c) {
    const Lowering::Slot& s = f_.slots[slot];
    Value* at = f_.advance(begin(slot, l), f_.integer(c), s.bytes);
    builder_.CreateAlignedStore(builder_.CreateExtractElement(elements, uint64_t{l}), at, align(s));
  }

  Lowering& f_;
  llvm::IRBuilder<>& builder_;
  const size_t size_;
  const unsigned lanes_;
  std::vector<Lowering::Values> steps_;   // by slot and lane, in bytes
  Lowering::Values begins_;               // by slot, where the first lane's row begins
  std::vector<Lowering::Values> values_;  // by place in a row and value, as they are held
};

}  // namespace

void run_short_rows(Lowering& f) { ShortRows(f).run(); }

}  // namespace gradus::fusion::cpu
