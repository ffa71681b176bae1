// Values of every operator: in every dtype, however operands lie, and with no elements.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/state.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

std::vector<Tensor> run(const ir::Graph& program, std::span<const Tensor> inputs) {
  return State(Code::compile(program)).run(inputs);
}

// |a - r| <= bound * max(1, |r|), where r was worked out in f64 from the same operands. A step of
// the dtype is 2^-24, 2^-11, 2^-8; compositions round in between.
double bound_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 2e-6;
    case DType::f16:
      return 6e-3;
    case DType::bf16:
      return 5e-2;
    default:
      return 0;
  }
}

// What a number that was worked out in f64 is in an integer dtype, which wraps.
double wrapped(double v, DType dtype) {
  if (!std::isfinite(v)) return v;
  if (dtype == DType::boolean) return v != 0;
  return Tensor::scalar(DType::f64, v).to(DType::i64).to(dtype).item();
}

std::string differ(const Tensor& got, const Tensor& reference, double bound) {
  if (!std::equal(got.shape().begin(), got.shape().end(), reference.shape().begin(),
                  reference.shape().end()))
    return fmt::format("is {}, {} in f64", describe(got), describe(reference));
  auto a = got.to_doubles(), r = reference.to_doubles();
  for (size_t i = 0; i < a.size(); ++i) {
    double expected = is_floating(got.dtype()) ? r[i] : wrapped(r[i], got.dtype());
    double scale = std::max(1.0, std::fabs(expected));
    if (std::isnan(a[i]) && std::isnan(expected)) continue;
    if (a[i] == expected || std::fabs(a[i] - expected) <= bound * scale) continue;
    return fmt::format("element {} of {} is {}, {} in f64", i, describe(got), a[i], expected);
  }
  return "";
}

// The operands as f64, but for indices and masks.
std::vector<Tensor> in_f64(const Sample& s, std::span<const Tensor> inputs) {
  std::vector<Tensor> exact;
  for (const Slot& slot : s.slots)
    if (slot.tensor()) {
      const Tensor& t = inputs[exact.size()];
      exact.push_back(slot.floating() ? t.to(DType::f64) : t);
    }
  return exact;
}

bool takes_floats(const Sample& s) {
  return std::any_of(s.slots.begin(), s.slots.end(), [](const Slot& t) { return t.floating(); });
}

TEST(Values, AgreeWithF64) {
  std::map<DType, int> checked;
  for (const Sample& s : all_samples())
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i8,
                        DType::u8, DType::boolean}) {
      auto program = s.program(dtype);
      if (!program || !takes_floats(s)) continue;
      std::vector<Tensor> inputs = s.inputs(dtype, 1);
      auto got = run(*program, inputs);
      auto expected = run(*s.program(DType::f64), in_f64(s, inputs));
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(differ(got[i], expected[i], bound_of(got[i].dtype())), "")
            << s.text(dtype) << " result " << i;
      ++checked[dtype];
    }
  for (auto [dtype, count] : checked) EXPECT_GT(count, 50) << name_of(dtype);
}

// Bytes of the memory that an operand lies in.
std::vector<std::byte> memory_of(const Tensor& t) {
  std::vector<std::byte> bytes(static_cast<size_t>(t.storage()->bytes()));
  if (!bytes.empty()) std::memcpy(bytes.data(), t.storage()->data(), bytes.size());
  return bytes;
}

// The same bits however operands lie, and operands are left alone.
TEST(Values, DoNotDependOnLayout) {
  for (const Sample& s : all_samples())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      auto program = s.program(dtype);
      if (!program) continue;
      std::vector<Tensor> inputs = s.inputs(dtype, 2);
      auto expected = run(*program, inputs);
      for (Lie lie : {Lie::contiguous, Lie::transposed, Lie::sliced}) {
        std::vector<Tensor> laid;
        std::vector<std::vector<std::byte>> before;
        for (const Tensor& t : inputs) {
          laid.push_back(lay(t, lie));
          before.push_back(memory_of(laid.back()));
        }
        auto got = run(*program, laid);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(bitwise_equal(got[i], expected[i]))
              << s.text(dtype) << " result " << i << ", layout " << static_cast<int>(lie);
        for (size_t i = 0; i < laid.size(); ++i)
          EXPECT_EQ(memory_of(laid[i]), before[i]) << s.text(dtype) << " operand " << i;
      }
    }
}

// One element, or one row, stretched over the operand's shape by strides of zero.
TEST(Values, OfExpandedOperands) {
  for (const Sample& s : all_samples())
    for (size_t kept : {0, 1}) {
      std::vector<Tensor> expanded, dense;
      auto inputs = s.inputs(DType::f64, 3);
      for (size_t i = 0, k = 0; i < s.slots.size(); ++i) {
        if (!s.slots[i].tensor()) continue;
        const Tensor& t = inputs[k++];
        // Equal indices, and equal rows of a matrix, are another matter.
        bool keep = s.slots[i].kind == Slot::Kind::distinct ||
                    s.slots[i].kind == Slot::Kind::matrix || t.rank() < static_cast<int>(kept);
        Layout layout = t.layout();
        for (size_t d = 0; d + kept < layout.strides.size(); ++d) layout.strides[d] = 0;
        expanded.push_back(keep ? t : t.view(layout, 0));
        dense.push_back(expanded.back().copy());
      }
      auto program = s.program(DType::f64);
      auto got = run(*program, expanded), expected = run(*program, dense);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(bitwise_equal(got[i], expected[i])) << s.text(DType::f64) << " result " << i;
    }
}

// Runs all stages, with cotangents of 0.5.
void run_stages(const ir::Graph& program, const Sample& s) {
  State state(Code::compile(program));
  for (size_t k = 0; !state.finished(); ++k) {
    std::vector<Tensor> inputs = k == 0 ? s.inputs(DType::f64, 4) : std::vector<Tensor>();
    for (size_t i = inputs.size(); i < state.code()->inputs(k); ++i) {
      const ir::Type& type = state.input_type(i);
      Sizes shape = sizes_of(type, state);
      std::vector<double> halves(static_cast<size_t>(numel(shape)), 0.5);
      inputs.push_back(Tensor::from(type.dtype, shape, halves));
    }
    state.run(inputs);
  }
}

// Every size of every sample made 0, wherever it stands: the type rule and the kernel agree about
// what comes out, or it is refused with the operator's name; so are the derivatives.
TEST(Values, OfEmptyOperands) {
  int ran = 0;
  for (const Sample& s : all_samples()) {
    std::set<int64_t> sizes;
    for (const Slot& slot : s.slots) sizes.insert(slot.shape.begin(), slot.shape.end());
    for (int64_t size : sizes) {
      Sample empty = s;
      for (Slot& slot : empty.slots)
        std::replace(slot.shape.begin(), slot.shape.end(), size, int64_t{0});
      auto program = empty.program(DType::f64);
      if (!program) continue;
      try {
        const int order = s.op->traits.differentiable ? 2 : 0;
        run_stages(ir::differentiate(*program, {.order = order}), empty);
        ++ran;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(s.op->name), std::string::npos)
            << empty.text(DType::f64) << ": " << e.what();
      }
    }
  }
  EXPECT_GT(ran, 200);
}

}  // namespace
}  // namespace gradus::property
