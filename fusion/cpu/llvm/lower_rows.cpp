// Reductions of rows, in the order that work/reduce.h states: sixteen lanes take the elements
// of a chunk in turns, fold by halves, and the chunks' partials combine as a binary counter counts.
#include "fusion/cpu/llvm/convert.h"
#include "fusion/cpu/llvm/lowering.h"

namespace gradus::fusion::cpu {

using llvm::BasicBlock;
using llvm::Value;
using work::Reducer;

namespace {

constexpr uint64_t most_levels = 54;     // of the tree over 2^63 / 1024 chunks
constexpr size_t most_fetched = 2;       // loads, of the next row
constexpr int64_t line_bytes = 64;       // of a cache
constexpr int64_t most_ahead = 1 << 18;  // bytes of a row that are still near when its turn comes

LaneType lane_type(DType held) {
  return held == DType::f64 ? LaneType::f64 : held == DType::f32 ? LaneType::f32 : LaneType::i64;
}

}  // namespace

// The dtype that a reduction's values are held as until it is done.
DType Lowering::accumulator(const Step& s) const {
  const bool logical = *s.reducer == Reducer::all || *s.reducer == Reducer::any;
  return logical ? DType::boolean : dtype_of(s.compute);
}

Value* Lowering::identity(const Step& s) {
  const DType held = accumulator(s);
  const bool floating = is_floating(held);
  auto number = [&](double of_float, int64_t of_int) {
    return floating ? emitter_.constant(lane_type(held), of_float)
                    : emitter_.constant(LaneType::i64, of_int);
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<int64_t>;
  switch (*s.reducer) {
    case Reducer::sum:
      return number(0, 0);
    case Reducer::prod:
      return number(1, 1);
    case Reducer::max:
      return number(-inf, Limits::min());
    case Reducer::min:
      return number(inf, Limits::max());
    case Reducer::all:
      return emitter_.truth(true);
    case Reducer::any:
      break;
  }
  return emitter_.truth(false);
}

Value* Lowering::combine(const Step& s, Value* a, Value* b) {
  auto scope = lines_->of(s.where);
  auto extreme = [&](Compare better) {
    Value* y = emitter_.select(emitter_.compare(better, b, a), b, a);
    if (!is_floating(accumulator(s))) return y;
    return emitter_.select(emitter_.compare(Compare::not_equal, b, b), b, y);
  };
  switch (*s.reducer) {
    case Reducer::sum:
      return emitter_.binary(Binary::add, a, b);
    case Reducer::prod:
      return emitter_.binary(Binary::multiply, a, b);
    case Reducer::max:
      return extreme(Compare::greater);
    case Reducer::min:
      return extreme(Compare::less);
    case Reducer::all:
      return emitter_.binary(Binary::bit_and, a, b);
    case Reducer::any:
      break;
  }
  return emitter_.binary(Binary::bit_or, a, b);
}

// Sixteen lanes, lowest vector first -> the chunk's partial, in lane 0.
Value* Lowering::fold(const Step& s, std::span<Value* const> vectors) {
  Values lanes(vectors.begin(), vectors.end());
  for (; lanes.size() > 1; lanes.resize(lanes.size() / 2))
    for (size_t v = 0; v < lanes.size() / 2; ++v)
      lanes[v] = combine(s, lanes[v], lanes[v + lanes.size() / 2]);
  Value* y = lanes[0];
  for (unsigned w = state_.lanes / 2; w > 0; w /= 2) {
    SmallVector<int, 16> upper;
    for (unsigned l = 0; l < state_.lanes; ++l)
      upper.push_back(static_cast<int>(l < w ? l + w : l));
    Value* moved =
        builder_.CreateShuffleVector(y, llvm::ArrayRef<int>(upper.begin(), upper.size()));
    y = combine(s, y, moved);
  }
  return y;
}

// Whether the loop is the last of several that read a load.
bool Lowering::reads_last(const RowLoops::Loop& loop, size_t load) const {
  size_t loops = 0;
  const RowLoops::Loop* last = nullptr;
  for (const RowLoops::Loop& l : rows_.loops)
    if (l.loads[load]) {
      ++loops;
      last = &l;
    }
  return loops > 1 && last == &loop;
}

// A row's first loop waits for memory: each row begins a page anew, and no hardware looks ahead.
// The last one computes. So that one fetches the next row. Behind the last row nothing is there to
// fetch, which is no fault. Where it would be more than two loads, memory is as busy as it can be.
void Lowering::find_next_rows() {
  std::vector<Slot*> read;
  for (size_t k = 0; k < nest_.loads.size(); ++k) {
    const Load& load = nest_.loads[k];
    const bool moves = nest_.rank > 1 && load.walks[load.walks.size() - 2] == Walk::strided;
    if (moves && load.walks.back() == Walk::contiguous && !load.index &&
        std::ranges::any_of(rows_.loops, [&](const auto& l) { return reads_last(l, k); }))
      read.push_back(&slots_[k]);
  }
  if (read.size() > most_fetched) return;
  for (Slot* s : read) {
    Value* row = builder_.CreateMul(function_->getArg(1), s->bytes);
    s->ahead = builder_.CreateSelect(builder_.CreateICmpSLE(row, integer(most_ahead)), s->row_step,
                                     integer(0));
  }
}

void Lowering::fetch_next_row(const RowLoops::Loop& loop) {
  for (size_t k = 0; k < nest_.loads.size(); ++k) {
    const Slot& s = slots_[k];
    if (!s.ahead || !reads_last(loop, k)) continue;
    const int64_t bytes = static_cast<int64_t>(size_of(s.dtype)) * state_.lanes;
    for (int64_t line = 0; line < bytes; line += line_bytes) {
      Value* place = builder_.CreateGEP(builder_.getInt8Ty(), s.here,
                                        builder_.CreateAdd(s.ahead, integer(line)));
      auto number = [&](uint32_t n) { return builder_.getInt32(n); };
      builder_.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                               {place, number(0), number(3), number(1)});  // read, near, data
    }
  }
}

// All reductions of a level, in one run over the row.
void Lowering::reduce(int level) {
  const unsigned lanes = state_.lanes;
  const auto vectors = static_cast<size_t>(work::reduce_lanes) / lanes;
  GRADUS_CHECK(vectors * lanes == work::reduce_lanes);
  std::vector<size_t> steps;
  std::vector<ValueNumber> operands;
  Values stacks, carried;
  BasicBlock* here = builder_.GetInsertBlock();
  for (size_t i = 0; i < nest_.steps.size(); ++i) {
    const Step& s = nest_.steps[i];
    if (!s.reduces_row() || rows_.facts.level[nest_.first_step() + i] != level) continue;
    steps.push_back(i);
    operands.push_back(s.operands[0]);
    for (size_t v = 0; v < vectors; ++v) carried.push_back(identity(s));
    // Where the function begins, or each row would take memory anew.
    builder_.SetInsertPoint(&function_->getEntryBlock(), function_->getEntryBlock().begin());
    auto* stack = builder_.CreateAlloca(carried.back()->getType(), integer(most_levels));
    stack->setAlignment(llvm::Align(64));
    stacks.push_back(stack);
    builder_.SetInsertPoint(here);
  }
  auto place = [&](size_t k, Value* height) {
    return builder_.CreateGEP(carried[k * vectors]->getType(), stacks[k], height);
  };
  auto get = [&](size_t k, Value* height) {
    return builder_.CreateLoad(carried[k * vectors]->getType(), place(k, height));
  };
  // stack[height - 2] = combine(stack[height - 2], stack[height - 1])
  auto merge = [&](Value* height) {
    Value *top = builder_.CreateSub(height, integer(1)),
          *below = builder_.CreateSub(height, integer(2));
    for (size_t k = 0; k < steps.size(); ++k)
      builder_.CreateStore(combine(nest_.steps[steps[k]], get(k, below), get(k, top)),
                           place(k, below));
    return top;
  };
  Value* columns = function_->getArg(1);

  BasicBlock *chunk = block("chunk"), *merging = block("merge"), *pushed = block("pushed"),
             *chunk_end = block("chunk_end"), *finish = block("finish"),
             *finished = block("reduced");
  builder_.CreateBr(chunk);
  builder_.SetInsertPoint(chunk);
  llvm::PHINode *start = counter(integer(0), here), *height = counter(integer(0), here);
  Value* end = builder_.CreateAdd(start, integer(work::reduce_chunk));
  end = builder_.CreateSelect(builder_.CreateICmpSLT(end, columns), end, columns);
  // As many vectors as lanes in turns need, some of them empty.
  Value* size = builder_.CreateAdd(builder_.CreateSub(end, start), integer(work::reduce_lanes - 1));
  Value* to = builder_.CreateAdd(start, builder_.CreateAnd(size, integer(-work::reduce_lanes)));
  Value* lane = lane_numbers(false);
  auto take = [&](Value* left, const Values& so_far) {
    Value* few = builder_.CreateICmpSLT(left, integer(lanes));
    Value* here_left = builder_.CreateTrunc(builder_.CreateSelect(few, left, integer(lanes)),
                                            builder_.getInt32Ty());
    Value* there = builder_.CreateICmpSLT(lane, builder_.CreateVectorSplat(lanes, here_left));
    Values next;
    for (size_t k = 0; k < steps.size(); ++k) {
      const Step& s = nest_.steps[steps[k]];
      Value* x = convert(state_, nest_.dtype_of(operands[k]), accumulator(s), values_[operands[k]]);
      x = builder_.CreateSelect(there, x, identity(s));
      for (size_t v = 1; v < vectors; ++v) next.push_back(so_far[k * vectors + v]);
      next.push_back(combine(s, so_far[k * vectors], x));
    }
    return next;
  };
  const Values chunk_lanes = each_vector(start, to, rows_.of_level(level), carried, take);
  for (size_t k = 0; k < steps.size(); ++k)
    builder_.CreateStore(
        fold(nest_.steps[steps[k]], std::span(chunk_lanes).subspan(k * vectors, vectors)),
        place(k, height));
  // The chunk's number ends in as many zero bits as partials of one level meet.
  Value* higher = builder_.CreateAdd(height, integer(1));
  Value* number = builder_.CreateLShr(start, integer(10));
  number = builder_.CreateAdd(number, integer(1));
  BasicBlock* folded = builder_.GetInsertBlock();
  builder_.CreateBr(pushed);
  builder_.SetInsertPoint(pushed);
  llvm::PHINode *h = counter(higher, folded), *n = counter(number, folded);
  Value* odd = builder_.CreateTrunc(n, builder_.getInt1Ty());
  builder_.CreateCondBr(odd, chunk_end, merging);
  builder_.SetInsertPoint(merging);
  h->addIncoming(merge(h), merging);
  n->addIncoming(builder_.CreateLShr(n, integer(1)), merging);
  builder_.CreateBr(pushed);
  builder_.SetInsertPoint(chunk_end);
  start->addIncoming(builder_.CreateAdd(start, integer(work::reduce_chunk)), chunk_end);
  height->addIncoming(h, chunk_end);
  builder_.CreateCondBr(builder_.CreateICmpSLT(end, columns), chunk, finished);

  // What is left, from the lowest level up.
  builder_.SetInsertPoint(finished);
  BasicBlock* result = block("result");
  llvm::PHINode* g = counter(h, chunk_end);
  builder_.CreateCondBr(builder_.CreateICmpSGT(g, integer(1)), finish, result);
  builder_.SetInsertPoint(finish);
  g->addIncoming(merge(g), finish);
  builder_.CreateBr(finished);
  builder_.SetInsertPoint(result);
  const std::vector<int> first(lanes, 0);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& s = nest_.steps[steps[k]];
    Value* y = builder_.CreateShuffleVector(get(k, integer(0)), first);
    values_[nest_.first_step() + steps[k]] = convert(state_, accumulator(s), s.dtype, y);
  }
}

}  // namespace gradus::fusion::cpu
