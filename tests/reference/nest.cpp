// Of the evaluator: nests. Each value of a nest is an array with an element in each loop, and each
// step is other work from array to array.
#include "gradus/bind.h"
#include "gradus/pointwise.h"
#include "ops/powers.h"
#include "tests/reference/parts.h"
#include "tests/reference/work.h"

namespace gradus::reference {

namespace {

class NestEvaluator {
 public:
  NestEvaluator(const Nest& nest, const Frame& frame, Args args)
      : nest_(nest),
        frame_(frame),
        args_(args),
        count_(frame.count()),
        columns_(frame.sizes.back()),
        memory_(nest.values()) {}
  void run() {
    find_read();
    size_t arg = 0;
    for (size_t k = 0; k < nest_.loads.size(); arg += nest_.loads[k++].operands)
      if (read_[k]) load(k, args_ + arg);
    for (size_t i = 0; i < nest_.numbers.size(); ++i) set_number(i);
    for (size_t i = 0; i < nest_.steps.size(); ++i)
      if (!nest_.steps[i].reduces_column()) run_step(nest_.steps[i], nest_.first_step() + i);
    for (ValueNumber v : nest_.stores) store(v, args_[arg++], 1);
    for (ValueNumber v : nest_.row_stores) store(v, args_[arg++], columns_);
    for (ValueNumber v : nest_.column_stores) {
      const Step& step = nest_.steps[v - nest_.first_step()];
      reduce(step, {{columns_, 1}}, {{count_ / columns_, columns_}}, args_[arg++]);
    }
  }

 private:
  // What only stands for an edge's operand need not have an element in each loop.
  void find_read() {
    read_.resize(nest_.values());
    auto all = [&](const auto& list) {
      for (ValueNumber v : list) read_[v] = true;
    };
    for (const Load& l : nest_.loads)
      if (l.index) read_[*l.index] = true;
    for (const Step& step : nest_.steps) all(step.operands);
    all(nest_.stores), all(nest_.row_stores), all(nest_.column_stores);
  }

  // Memory for a value.
  Array made(size_t v) {
    memory_[v].resize(static_cast<size_t>(count_) * size_of(nest_.dtype_of(number_of(v))));
    return at(v);
  }
  Array at(size_t v) { return {nest_.dtype_of(number_of(v)), memory_[v].data()}; }
  static ValueNumber number_of(size_t v) { return static_cast<ValueNumber>(v); }

  // The loads before are there.
  void load(size_t k, Args operands) {
    const Load& l = nest_.loads[k];
    const Array y = made(k);
    const size_t rank = frame_.sizes.size();
    Sizes element(rank);
    for (int64_t i = 0; i < count_; ++i) {
      int64_t rest = i, from = 0;
      for (size_t d = rank; d-- > 0; rest /= frame_.sizes[d]) element[d] = rest % frame_.sizes[d];
      const size_t p = l.operands > 1 ? frame_.part_at(k, element) : 0;
      for (size_t d = 0; d < rank; ++d)
        from += l.operands > 1
                    ? (element[d] - frame_.parts[k][p].first[d]) * frame_.parts[k][p].strides[d]
                    : element[d] * frame_.strides[k][d];
      if (l.index) from += at(*l.index).get<int64_t>(i) * frame_.index_steps[k];
      y.set(i, {l.dtype, operands[p]}, from);
    }
  }

  void set_number(size_t i) {
    const size_t v = nest_.first_number() + i;
    std::byte number[8];
    ops::store_number(nest_.numbers[i], number);
    const Array y = made(v);
    for (int64_t n = 0; n < count_; ++n) y.set(n, {y.dtype, number}, 0);
  }

  void run_step(const Step& step, size_t v) {
    const Array y = made(v);
    if (step.call.op) {
      Pointwise w{step.call, step.compute, {count_}, {}, step.dtype};
      w.exponent_is_number = ops::half_power_of(nest_, step) != 0;
      SmallVector<std::byte*, 8> args;
      for (ValueNumber o : step.operands) {
        w.operands.push_back({nest_.dtype_of(o), {1}});
        args.push_back(memory_[o].data());
      }
      args.push_back(y.first);
      return run_pointwise(w, args.data());
    }
    const Array x = at(step.operands[0]);
    if (!step.reducer) {
      for (int64_t i = 0; i < count_; ++i) y.set(i, x, i);
      return;
    }
    // What a row is reduced to is there for each of its elements.
    std::vector<std::byte> rows(static_cast<size_t>(count_ / columns_) * size_of(step.dtype));
    reduce(step, {{count_ / columns_, columns_}}, {{columns_, 1}}, rows.data());
    for (int64_t i = 0; i < count_; ++i) y.set(i, {y.dtype, rows.data()}, i / columns_);
  }

  void reduce(const Step& step, Axes kept, Axes reduced, std::byte* result) {
    const Array x = at(step.operands[0]);
    std::byte* args[] = {x.first, result};
    evaluate(
        Reduce{*step.reducer, x.dtype, step.dtype, kept, reduced, kept[0].size, reduced[0].size},
        args);
  }

  // Every `step`-th element.
  void store(ValueNumber v, std::byte* target, int64_t step) {
    const Array x = at(v);
    for (int64_t i = 0; i < count_; i += step) Array{x.dtype, target}.set(i / step, x, i);
  }

  const Nest& nest_;
  const Frame& frame_;
  const Args args_;
  const int64_t count_, columns_;  // of all loops; of the innermost one
  std::vector<bool> read_;         // by value
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace

void evaluate(const work::Nest& nest, const work::Frame& frame, std::byte* const* args) {
  if (frame.count() > 0) NestEvaluator(nest, frame, args).run();
}

void evaluate(const Loops& w, Args args) { evaluate(w.nest, w.frame, args); }

}  // namespace gradus::reference
