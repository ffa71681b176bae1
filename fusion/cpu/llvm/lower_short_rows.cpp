// Rows of few elements, several at a time: lane l of a vector is row r + l, and each place in a row
// has a vector of its own. A reduction combines these vectors, in the order of work/reduce.h, and no
// lanes fold. What rows share or are reduced to is one vector.
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
    BasicBlock *entry = builder_.GetInsertBlock(), *rows = f_.block("rows"), *exit = f_.block("exit");
    Value* count = f_.function->getArg(0);
    builder_.CreateCondBr(builder_.CreateICmpSLE(count, f_.integer(0)), exit, rows);
    builder_.SetInsertPoint(rows);
    llvm::PHINode* r = f_.counter(f_.integer(0), entry);
    place_lanes(r, count);
    load_all();
    compute();
    store_all();
    Value* next = builder_.CreateAdd(r, f_.integer(lanes_));
    r->addIncoming(next, builder_.GetInsertBlock());
    builder_.CreateCondBr(builder_.CreateICmpSLT(next, count), rows, exit);
    builder_.SetInsertPoint(exit);
  }

 private:
  llvm::Align align(const Lowering::Slot& s) const { return llvm::Align(size_of(s.dtype)); }

  // Where each lane's row begins, by slot. Behind the last row, lanes take that one once more: what
  // they store is what it stores.
  void place_lanes(Value* r, Value* count) {
    Value* last = builder_.CreateSub(count, f_.integer(1));
    Lowering::Values row;
    for (unsigned l = 0; l < lanes_; ++l)
      row.push_back(builder_.CreateBinaryIntrinsic(
          llvm::Intrinsic::smin, builder_.CreateAdd(r, f_.integer(l)), last));
    is_whole_ = builder_.CreateICmpSLE(builder_.CreateAdd(r, f_.integer(lanes_)), count);
    for (const Lowering::Slot& s : f_.slots) {
      Lowering::Values& begins = places_.emplace_back();
      for (unsigned l = 0; l < lanes_; ++l)
        begins.push_back(f_.advance(s.first, row[l], s.row_step));
    }
  }

  // Whether a load has the same elements for all rows.
  bool shares_rows(size_t load) const {
    const Load& l = f_.nest.loads[load];
    return l.walks[l.walks.size() - 2] == Walk::broadcast && (!l.index || shares_rows(*l.index));
  }

  // Where lane l finds its element of place c.
  Value* place_of(size_t load, unsigned l, size_t c) {
    const Lowering::Slot& s = f_.slots[load];
    Value* at = places_[load][l];
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

  // By place in a row. What the row has once is the same for all.
  void load_all() {
    values_.assign(size_, Lowering::Values(f_.nest.values()));
    for (size_t k = 0; k < f_.nest.loads.size(); ++k)
      make(k, [&](size_t c) { return hold(f_.state, f_.slots[k].dtype, load(k, c)); });
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

  void store_all() {
    const size_t first = f_.nest.loads.size();
    Lowering::Values elements;
    for (size_t k = 0; k < f_.nest.stores.size(); ++k)
      for (size_t c = 0; c < size_; ++c)
        elements.push_back(unhold(f_.state, f_.slots[first + k].dtype, values_[c][f_.nest.stores[k]]));
    for (size_t k = 0; k < f_.nest.stores.size(); ++k)
      for (unsigned l = 0; l < lanes_; ++l)
        for (size_t c = 0; c < size_; ++c)
          store_lane(first + k, elements[k * size_ + c], l, static_cast<int64_t>(c));
    if (!f_.nest.row_stores.empty()) store_rows(first + f_.nest.stores.size());
  }

  void store_lane(size_t slot, Value* elements, unsigned l, int64_t c) {
    const Lowering::Slot& s = f_.slots[slot];
    Value* at = f_.advance(places_[slot][l], f_.integer(c), s.bytes);
    builder_.CreateAlignedStore(builder_.CreateExtractElement(elements, uint64_t{l}), at, align(s));
  }

  // Their elements lie one after the other.
  void store_rows(size_t first) {
    Lowering::Values elements;
    for (size_t k = 0; k < f_.nest.row_stores.size(); ++k)
      elements.push_back(unhold(f_.state, f_.slots[first + k].dtype, values_[0][f_.nest.row_stores[k]]));
    BasicBlock *whole = f_.block("whole_rows"), *some = f_.block("some_rows"), *end = f_.block("stored");
    builder_.CreateCondBr(is_whole_, whole, some);
    builder_.SetInsertPoint(whole);
    for (size_t k = 0; k < elements.size(); ++k)
      builder_.CreateAlignedStore(elements[k], places_[first + k][0], align(f_.slots[first + k]));
    builder_.CreateBr(end);
    builder_.SetInsertPoint(some);
    for (size_t k = 0; k < elements.size(); ++k)
      for (unsigned l = 0; l < lanes_; ++l) store_lane(first + k, elements[k], l, 0);
    builder_.CreateBr(end);
    builder_.SetInsertPoint(end);
  }

  Lowering& f_;
  llvm::IRBuilder<>& builder_;
  const size_t size_;
  const unsigned lanes_;
  std::vector<Lowering::Values> places_;  // by slot and lane
  std::vector<Lowering::Values> values_;  // by place in a row and value, as they are held
  Value* is_whole_ = nullptr;             // whether each lane has a row of its own
};

}  // namespace

void run_short_rows(Lowering& f) { ShortRows(f).run(); }

}  // namespace gradus::fusion::cpu
