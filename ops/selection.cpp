#include "ops/selection.h"

#include <numeric>

#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/nonzero.h"

namespace gradus::ops {

namespace {

const Dim& count_of(const ComposeCall& c, const std::optional<Dim>& count) {
  if (!count) c.fail("the attribute `count` has to name the number of elements");
  return *count;
}

}  // namespace

int64_t count_nonzero(const Tensor& x) { return count_nonzero(x.layout(), x.data()); }

void Nonzero::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  const auto& count = a.count;
  if (!count) call.fail("the attribute `count` has to name the number of elements");
  call.out.push_back(Type(DType::i64, {*count, Dim(x.rank())}, x.device));
}

void Nonzero::bind(BindCall& call) {
  call.set_work(work::Nonzero{call.in[0], call.out[0].shape[0]});
}

int64_t MaskedSelect::count(std::span<const Tensor* const> x) {
  // How often broadcasting repeats the mask.
  Sizes shape = x[1]->layout().shape;
  int64_t times = 1;
  for (int d = 0; d < x[0]->rank(); ++d) {
    int of_mask = x[1]->rank() - x[0]->rank() + d;
    if (of_mask < 0 || shape[of_mask] == 1) times *= x[0]->layout().shape[d];
  }
  return count_nonzero(*x[1]) * times;
}

void MaskedSelect::compose(ComposeCall& c, const Attr& a) {
  const Value &x = c.x(), &mask = c.x(1);
  for (size_t i = 0; i < 2; ++i)
    if (!c.x(i).is_tensor()) c.fail("operand {} must be a tensor", i);
  if (mask.dtype() != DType::boolean)
    c.fail("operand 'mask' is {}; it must be bool", to_string(mask.type));
  Dim count = count_of(c, a.count);
  // Both broadcast: a mask of all places of x has the shape of the selection, and changes nothing.
  Value wide_mask =
      x.dims() == mask.dims() ? mask : logical_and(mask, emit<Eq>(zeros_like(x), num(0.0)));
  Value wide = expand(x, wide_mask.dims());
  Dim all = ir::numel(wide.dims());
  Value flat = reshape(wide, {all});
  Value places = emit<Nonzero>({reshape(wide_mask, {all})}, {.count = count});
  c.give(index_select(flat, reshape(places, {count}), 0));
}

namespace {

int64_t read_count(const std::byte* n) {
  const int64_t count = *reinterpret_cast<const int64_t*>(n);
  if (count < 0) throw Error("range: operand 'n' is {}, which is negative", count);
  return count;
}

void run_range(const int64_t& count, std::byte* const* args, work::KernelScope&) {
  if (const int64_t n = read_count(args[0]); n != count)
    throw Error("range: operand 'n' is {}, and `count` is {}", n, count);
  auto* y = reinterpret_cast<int64_t*>(args[1]);
  std::iota(y, y + count, int64_t{0});
}

}  // namespace

const Operator& range_operator() { return record<Range>(); }
Attributes range_attributes(Dim count) { return make_attributes(CountAttr{std::move(count)}); }

int64_t Range::count(std::span<const Tensor* const> n) { return read_count(n[0]->data()); }

void Range::infer(InferCall& call, const Attr& a) {
  if (const Type& n = call.tensor(0); n.dtype != DType::i64 || n.rank() != 0)
    call.fail("operand 'n' is {}; it has to be i64[]", to_string(n));
  if (!a.count) call.fail("the attribute `count` has to name the number of elements");
  call.out.push_back(Type(DType::i64, {*a.count}, call.tensor(0).device));
}

void Range::bind(BindCall& call) {
  call.set_kernel(work::Kernel::of<run_range>(call.out[0].shape[0]));
}

bool has_mask(std::span<const ir::OperandType> operands, size_t first) {
  for (size_t i = first; i < operands.size(); ++i)
    if (operands[i].kind == ir::OperandType::Kind::tensor &&
        operands[i].type->dtype == DType::boolean)
      return true;
  return false;
}

int64_t count_masked(std::span<const Tensor* const> operands, size_t first) {
  for (size_t i = first; i < operands.size(); ++i)
    if (operands[i] && operands[i]->dtype() == DType::boolean) return count_nonzero(*operands[i]);
  throw InternalError("a count is asked for where there is no mask");
}

SmallVector<Value, 6> without_masks(ComposeCall& c, size_t first, const Dim& count) {
  const Type& x = c.x().type;
  SmallVector<Value, 6> out;
  size_t dim = 0;  // of x, that the next index is for
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const Value& v = c.operands[i];
    if (i < first || !v.is_tensor() || v.dtype() != DType::boolean) {
      out.push_back(v);
      dim += i >= first;
      continue;
    }
    if (dim + v.dims().size() > x.dims.size())
      c.fail("operand {} is a mask {}, and {} has no {} dimensions from dimension {} on", i,
             to_string(v.type), to_string(x), v.dims().size(), dim);
    Dims covered;
    for (size_t d = 0; d < v.dims().size(); ++d) {
      const Dim &mine = v.dims()[d], &of_x = x.dims[dim + d];
      if (mine.is_constant() && of_x.is_constant() && !(mine == of_x))
        c.fail("operand {} is a mask {}, whose dimension {} must be that of x, {}", i,
               to_string(v.type), d, to_string(x));
      covered.push_back(of_x);
    }
    // Sizes that types do not prove equal are held equal by the expansion.
    Value mask = v.type.dims == covered ? v : expand(v, covered);
    Value places = emit<Nonzero>({mask}, {.count = count});
    for (size_t d = 0; d < covered.size(); ++d)
      out.push_back(select(places, 1, static_cast<int64_t>(d)));
    dim += covered.size();
  }
  return out;
}

std::span<const ir::Operator* const> selection_family() { return fold<SelectionOperators>(); }

}  // namespace gradus::ops
