// Reductions of rows, in the order that work/reduce.h states: sixteen lanes take the elements
// of a chunk in turns, fold by halves, and the chunks' partials combine as a binary counter counts.
#include <llvm/Analysis/VectorUtils.h>

#include "fusion/cpu/llvm/convert.h"
#include "fusion/cpu/llvm/lowering.h"

namespace gradus::fusion::cpu {

using llvm::BasicBlock;
using llvm::Value;
using work::Reducer;

DType accumulator(const Step& s) {
  const bool logical = *s.reducer == Reducer::all || *s.reducer == Reducer::any;
  return logical ? DType::boolean : dtype_of(s.compute);
}

Value* combine(Lowering& f, const Step& s, Value* a, Value* b) {
  auto scope = f.lines->of(s.where);
  auto extreme = [&](Compare better) {
    Value* y = f.emitter.select(f.emitter.compare(better, b, a), b, a);
    if (!is_floating(accumulator(s))) return y;
    return f.emitter.select(f.emitter.compare(Compare::not_equal, b, b), b, y);
  };
  switch (*s.reducer) {
    case Reducer::sum:
      return f.emitter.binary(Binary::add, a, b);
    case Reducer::prod:
      return f.emitter.binary(Binary::multiply, a, b);
    case Reducer::max:
      return extreme(s.compute == Compute::u64 ? Compare::greater_unsigned : Compare::greater);
    case Reducer::min:
      return extreme(s.compute == Compute::u64 ? Compare::less_unsigned : Compare::less);
    case Reducer::all:
      return f.emitter.binary(Binary::bit_and, a, b);
    case Reducer::any:
      break;
  }
  return f.emitter.binary(Binary::bit_or, a, b);
}

namespace {

LaneType lane_type(DType held) {
  return held == DType::f64 ? LaneType::f64 : held == DType::f32 ? LaneType::f32 : LaneType::i64;
}

}  // namespace

Value* identity(Lowering& f, const Step& s) {
  const DType held = accumulator(s);
  const bool floating = is_floating(held);
  auto number = [&](double of_float, int64_t of_int) {
    return floating ? f.emitter.constant(lane_type(held), of_float)
                    : f.emitter.constant(LaneType::i64, of_int);
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<int64_t>;
  const bool of_unsigned = held == DType::u64;
  switch (*s.reducer) {
    case Reducer::sum:
      return number(0, 0);
    case Reducer::prod:
      return number(1, 1);
    case Reducer::max:
      return number(-inf, of_unsigned ? 0 : Limits::min());
    case Reducer::min:
      return number(inf, of_unsigned ? -1 : Limits::max());  // all bits
    case Reducer::all:
      return f.emitter.truth(true);
    case Reducer::any:
      break;
  }
  return f.emitter.truth(false);
}

namespace {

constexpr uint64_t most_levels = 54;     // of the tree over 2^63 / 1024 chunks
constexpr size_t most_fetched = 2;       // loads, of the next row
constexpr int64_t most_ahead = 1 << 18;  // bytes of a row that are still near when its turn comes

// Sixteen lanes, lowest vector first -> the chunk's partial, one element.
Value* fold(Lowering& f, const Step& s, std::span<Value* const> vectors) {
  Lowering::Values lanes(vectors.begin(), vectors.end());
  for (; lanes.size() > 1; lanes.resize(lanes.size() / 2))
    for (size_t v = 0; v < lanes.size() / 2; ++v)
      lanes[v] = combine(f, s, lanes[v], lanes[v + lanes.size() / 2]);
  Value* y = lanes[0];
  for (unsigned w = f.state.lanes / 2; w > 0; w /= 2) {
    Value* upper = f.builder.CreateShuffleVector(y, llvm::createSequentialMask(w, w, 0));
    Value* lower = f.builder.CreateShuffleVector(y, llvm::createSequentialMask(0, w, 0));
    y = combine(f, s, lower, upper);
  }
  return f.builder.CreateExtractElement(y, uint64_t{0});
}

// Whether the loop is the last of several that read a load.
bool reads_last(const RowLoops& rows, const RowLoops::Loop& loop, size_t load) {
  size_t loops = 0;
  const RowLoops::Loop* last = nullptr;
  for (const RowLoops::Loop& l : rows.loops)
    if (l.loads[load]) {
      ++loops;
      last = &l;
    }
  return loops > 1 && last == &loop;
}

}  // namespace

// A row's first loop waits for memory: each row begins a page anew, and no hardware looks ahead.
// The last one computes. So that one fetches the next row, and of the last row itself: behind it
// there is perhaps no page, and asking for one takes half a microsecond. Where it would be more
// than two loads, memory is as busy as it can be.
void find_next_rows(Lowering& f) {
  std::vector<Lowering::Slot*> read;
  for (size_t k = 0; k < f.nest.loads.size(); ++k) {
    const Load& load = f.nest.loads[k];
    const bool moves = f.nest.rank > 1 && load.walks[load.walks.size() - 2] == Walk::strided;
    if (moves && load.walks.back() == Walk::contiguous && !load.index &&
        std::ranges::any_of(f.rows.loops, [&](const auto& l) { return reads_last(f.rows, l, k); }))
      read.push_back(&f.slots[k]);
  }
  if (read.size() > most_fetched) return;
  for (Lowering::Slot* s : read) {
    Value* row = f.builder.CreateMul(f.function->getArg(1), s->bytes);
    s->ahead = f.builder.CreateSelect(f.builder.CreateICmpSLE(row, f.integer(most_ahead)),
                                      s->row_step, f.integer(0));
  }
}

void find_next_row(Lowering& f, Value* row) {
  Value* next = f.builder.CreateAdd(row, f.integer(1));
  Value* is_there = f.builder.CreateICmpSLT(next, f.function->getArg(0));
  for (Lowering::Slot& s : f.slots)
    if (s.ahead) s.next_row = f.builder.CreateSelect(is_there, s.ahead, f.integer(0));
}

void fetch_next_row(Lowering& f, const RowLoops::Loop& loop) {
  for (size_t k = 0; k < f.nest.loads.size(); ++k) {
    const Lowering::Slot& s = f.slots[k];
    if (!s.ahead || !reads_last(f.rows, loop, k)) continue;
    const int64_t bytes = static_cast<int64_t>(size_of(s.dtype)) * f.state.lanes;
    for (int64_t line = 0; line < bytes; line += line_bytes) {
      Value* place = f.builder.CreateGEP(f.builder.getInt8Ty(), s.here,
                                         f.builder.CreateAdd(s.next_row, f.integer(line)));
      auto number = [&](uint32_t n) { return f.builder.getInt32(n); };
      f.builder.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                                {place, number(0), number(3), number(1)});  // read, near, data
    }
  }
}

// All reductions of a level, in one run over the row.
void reduce_rows(Lowering& f, int level) {
  const unsigned lanes = f.state.lanes;
  const auto vectors = static_cast<size_t>(work::reduce_lanes) / lanes;
  GRADUS_CHECK(vectors * lanes == work::reduce_lanes);
  std::vector<size_t> steps;
  std::vector<ValueNumber> operands;
  Lowering::Values stacks, carried;
  BasicBlock* here = f.builder.GetInsertBlock();
  for (size_t i = 0; i < f.nest.steps.size(); ++i) {
    const Step& s = f.nest.steps[i];
    if (!s.reduces_row() || f.rows.facts.level[f.nest.first_step() + i] != level) continue;
    steps.push_back(i);
    operands.push_back(s.operands[0]);
    for (size_t v = 0; v < vectors; ++v) carried.push_back(identity(f, s));
    // Where the function begins, or each row would take memory anew.
    f.builder.SetInsertPoint(&f.function->getEntryBlock(), f.function->getEntryBlock().begin());
    stacks.push_back(
        f.builder.CreateAlloca(carried.back()->getType()->getScalarType(), f.integer(most_levels)));
    f.builder.SetInsertPoint(here);
  }
  auto element = [&](size_t k) { return carried[k * vectors]->getType()->getScalarType(); };
  auto place = [&](size_t k, Value* height) {
    return f.builder.CreateGEP(element(k), stacks[k], height);
  };
  auto get = [&](size_t k, Value* height) {
    return f.builder.CreateLoad(element(k), place(k, height));
  };
  // stack[height - 2] = combine(f, stack[height - 2], stack[height - 1])
  auto merge = [&](Value* height) {
    Value *top = f.builder.CreateSub(height, f.integer(1)),
          *below = f.builder.CreateSub(height, f.integer(2));
    for (size_t k = 0; k < steps.size(); ++k)
      f.builder.CreateStore(combine(f, f.nest.steps[steps[k]], get(k, below), get(k, top)),
                            place(k, below));
    return top;
  };
  Value* columns = f.function->getArg(1);

  BasicBlock *chunk = f.block("chunk"), *merging = f.block("merge"), *pushed = f.block("pushed"),
             *chunk_end = f.block("chunk_end"), *finish = f.block("finish"),
             *finished = f.block("reduced");
  f.builder.CreateBr(chunk);
  f.builder.SetInsertPoint(chunk);
  llvm::PHINode *start = f.counter(f.integer(0), here), *height = f.counter(f.integer(0), here);
  Value* end = f.builder.CreateAdd(start, f.integer(work::reduce_chunk));
  end = f.builder.CreateSelect(f.builder.CreateICmpSLT(end, columns), end, columns);
  // As many vectors as lanes in turns need, some of them empty.
  Value* size =
      f.builder.CreateAdd(f.builder.CreateSub(end, start), f.integer(work::reduce_lanes - 1));
  Value* to = f.builder.CreateAdd(start, f.builder.CreateAnd(size, f.integer(-work::reduce_lanes)));
  // A whole vector needs no mask. What is left of a row is nothing to the lanes beyond it.
  auto take = [&](Value* left, const Lowering::Values& so_far) {
    Lowering::Values taken, some, next;
    for (size_t k = 0; k < steps.size(); ++k)
      taken.push_back(convert(f.state, f.nest.dtype_of(operands[k]),
                              accumulator(f.nest.steps[steps[k]]), f.values[operands[k]]));
    BasicBlock *before = f.builder.GetInsertBlock(), *rest = f.block("rest"),
               *added = f.block("added");
    f.builder.CreateCondBr(f.builder.CreateICmpSGE(left, f.integer(lanes)), added, rest);
    f.builder.SetInsertPoint(rest);
    Value* count = f.builder.CreateTrunc(left, f.builder.getInt32Ty());
    Value* there =
        f.builder.CreateICmpSLT(f.lane_numbers(false), f.builder.CreateVectorSplat(lanes, count));
    for (size_t k = 0; k < steps.size(); ++k)
      some.push_back(f.builder.CreateSelect(there, taken[k], identity(f, f.nest.steps[steps[k]])));
    f.builder.CreateBr(added);
    f.builder.SetInsertPoint(added);
    for (size_t k = 0; k < steps.size(); ++k) taken[k] = f.choose(taken[k], before, some[k], rest);
    for (size_t k = 0; k < steps.size(); ++k) {
      for (size_t v = 1; v < vectors; ++v) next.push_back(so_far[k * vectors + v]);
      next.push_back(combine(f, f.nest.steps[steps[k]], so_far[k * vectors], taken[k]));
    }
    return next;
  };
  const Lowering::Values chunk_lanes =
      f.each_vector(start, to, f.rows.of_level(level), carried, take);
  for (size_t k = 0; k < steps.size(); ++k)
    f.builder.CreateStore(
        fold(f, f.nest.steps[steps[k]], std::span(chunk_lanes).subspan(k * vectors, vectors)),
        place(k, height));
  // The chunk's number ends in as many zero bits as partials of one level meet.
  Value* higher = f.builder.CreateAdd(height, f.integer(1));
  Value* number = f.builder.CreateLShr(start, f.integer(10));
  number = f.builder.CreateAdd(number, f.integer(1));
  BasicBlock* folded = f.builder.GetInsertBlock();
  f.builder.CreateBr(pushed);
  f.builder.SetInsertPoint(pushed);
  llvm::PHINode *h = f.counter(higher, folded), *n = f.counter(number, folded);
  Value* odd = f.builder.CreateTrunc(n, f.builder.getInt1Ty());
  f.builder.CreateCondBr(odd, chunk_end, merging);
  f.builder.SetInsertPoint(merging);
  h->addIncoming(merge(h), merging);
  n->addIncoming(f.builder.CreateLShr(n, f.integer(1)), merging);
  f.builder.CreateBr(pushed);
  f.builder.SetInsertPoint(chunk_end);
  start->addIncoming(f.builder.CreateAdd(start, f.integer(work::reduce_chunk)), chunk_end);
  height->addIncoming(h, chunk_end);
  f.builder.CreateCondBr(f.builder.CreateICmpSLT(end, columns), chunk, finished);

  // What is left, from the lowest level up.
  f.builder.SetInsertPoint(finished);
  BasicBlock* result = f.block("result");
  llvm::PHINode* g = f.counter(h, chunk_end);
  f.builder.CreateCondBr(f.builder.CreateICmpSGT(g, f.integer(1)), finish, result);
  f.builder.SetInsertPoint(finish);
  g->addIncoming(merge(g), finish);
  f.builder.CreateBr(finished);
  f.builder.SetInsertPoint(result);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& s = f.nest.steps[steps[k]];
    Value* y = f.builder.CreateVectorSplat(lanes, get(k, f.integer(0)));
    f.values[f.nest.first_step() + steps[k]] = convert(f.state, accumulator(s), s.dtype, y);
  }
}

}  // namespace gradus::fusion::cpu
