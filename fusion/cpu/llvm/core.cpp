// What lowering calls of the library: nothing of it is linked into the module. Whoever needs one
// more function adds it here and to `Core`; the linker names it.
#include "fusion/cpu/llvm/core.h"

#include <cstdlib>
#include <utility>

namespace gradus {

namespace fusion::cpu {

namespace {

thread_local const Core* current = nullptr;

}  // namespace

CallsCore::CallsCore(const Core& core) : before_(std::exchange(current, &core)) {}
CallsCore::~CallsCore() { current = before_; }

Walks::Walks(const Nest& nest, const Frame& frame, const Cell& cell)
    : Walks(current->walks(nest, frame, cell)) {}

}  // namespace fusion::cpu

using fusion::cpu::current;

void check_failed(const char* condition, const char* file, int line) {
  current->check_failed(condition, file, line);
  std::abort();  // never reached: the one above throws
}
int64_t numel(std::span<const int64_t> sizes) { return current->numel(sizes); }

namespace work {

Gemm with_wide_result(const Gemm& g) { return current->with_wide_result(g); }
std::string print(const Nest& nest) { return current->print(nest); }
bool Nest::reduces() const { return current->reduces(*this); }
DType Nest::dtype_of(ValueNumber v) const { return current->dtype_of(*this, v); }

}  // namespace work

int ops::half_power_of(const work::Nest& nest, const work::Step& step) {
  return current->half_power_of(nest, step);
}

namespace fusion {

Rule rule_of(const ir::Operator& op, Compute compute) { return current->rule_of(op, compute); }
Rule half_power_rule(int half, Compute compute) { return current->half_power_rule(half, compute); }
int64_t lanes_of(const Nest& nest, unsigned bits) { return current->lanes_of(nest, bits); }
RowLoops row_loops(const Nest& nest) { return current->row_loops(nest); }
std::vector<Cell> cells_of(const Nest& nest, const Frame& frame) {
  return current->cells_of(nest, frame);
}
bool has_rows(const work::Copy& copy) { return current->has_rows(copy); }

}  // namespace fusion

}  // namespace gradus
