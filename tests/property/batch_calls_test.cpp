// A batch is one call of each operator, with the bits of a call for each of it.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/inputs.h"
#include "gradus/operator.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

// A batch whose size only a run knows: there can be no call for each of it.
const ir::Dim any_size = ir::Dim::symbol("Batch");

// No operator's derivative needs one for each cotangent.
// SPEC D8
TEST(BatchCalls, OfEveryDerivativeAreOne) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    if (!s.op->traits.differentiable || s.op->traits.opaque) continue;
    auto program = s.program(DType::f64);
    bool in = false, out = false;
    for (ir::ValueId v : program->stages[0].inputs) in |= (*program)[v].type.is_floating();
    for (const ir::Result& r : program->stages[0].results)
      out |= (*program)[r.value].type.is_floating();
    if (!in || !out) continue;
    for (int order : {1, 2})
      EXPECT_NO_THROW(ir::batch_cotangents(ir::differentiate(*program, {.order = order}), any_size))
          << "derivative " << order << " of " << s.text(DType::f64);
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

using Inputs = std::vector<Tensor>;

// The same input of several calls along a new first dimension.
Tensor stacked(std::span<const Inputs> calls, const Tensor& first, size_t input) {
  Sizes shape{static_cast<int64_t>(calls.size())};
  shape.append(first.shape().begin(), first.shape().end());
  std::vector<double> all;
  for (const Inputs& call : calls) {
    const auto one = call[input].to_doubles();
    all.insert(all.end(), one.begin(), one.end());
  }
  return Tensor::from(first.dtype(), shape, all);
}

Tensor row(const Tensor& t, int64_t i) {
  Layout layout(t.dtype(), Sizes(t.shape().begin() + 1, t.shape().end()),
                Sizes(t.strides().begin() + 1, t.strides().end()));
  return t.view(layout, t.offset() + i * t.strides()[0]);
}

Inputs run(const ir::Graph& program, const Inputs& inputs) {
  return State(Code::compile(program)).run(inputs);
}

// One program, its inputs for each of a batch, and which of them differ within it.
struct Batched {
  const ir::Graph& program;
  std::vector<Inputs> calls;
  uint32_t chosen;
  bool differs(size_t i) const { return chosen >> i & 1; }

  ir::Graph whole(const ir::Dim& size) const {
    std::vector<std::string> names;
    const auto& inputs = program.stages[0].inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (differs(i)) names.push_back(program[inputs[i]].name);
    return ir::batch(program, names, size);
  }
  // The inputs of the first `size` calls.
  Inputs together(size_t size) const {
    Inputs all;
    for (size_t i = 0; i < calls[0].size(); ++i)
      all.push_back(differs(i) ? stacked({calls.data(), size}, calls[0][i], i) : calls[0][i]);
    return all;
  }
  Inputs alone(size_t call) const {
    Inputs own;
    for (size_t i = 0; i < calls[0].size(); ++i) own.push_back(calls[differs(i) ? call : 0][i]);
    return own;
  }
};

// Holds the program for a batch, of a size with a name and of one without, to the calls' bits.
void expect_same_bits(const Batched& b, const std::string& what) {
  const auto size = static_cast<int64_t>(b.calls.size());
  for (const ir::Dim& named : {any_size, ir::Dim(size)}) {
    const ir::Graph whole = b.whole(named);
    const Inputs got = run(whole, b.together(b.calls.size()));
    for (int64_t i = 0; i < size; ++i) {
      const Inputs expected = run(b.program, b.alone(static_cast<size_t>(i)));
      for (size_t r = 0; r < expected.size(); ++r)
        ASSERT_TRUE(bitwise_equal(row(got[r], i), expected[r]))
            << what << ", inputs " << b.chosen << " for each, result " << r << " of " << i << ":\n"
            << ir::print(whole);
    }
  }
  const Inputs none = run(b.whole(any_size), b.together(0));
  for (const Tensor& t : none) EXPECT_EQ(t.shape()[0], 0) << what;
}

// Subsets of the inputs, none of them empty.
std::vector<uint32_t> subsets(size_t inputs) {
  std::vector<uint32_t> all;
  for (uint32_t s = 1; s < uint32_t{1} << inputs; ++s) all.push_back(s);
  return all;
}

// What has no call for a batch, as the refusal says.
const std::set<std::string> refused = {"nonzero", "range"};

// The operator that takes no batch where the chosen inputs differ within it; empty if all do.
std::string refusing(const Batched& b) {
  try {
    b.whole(any_size);
    return "";
  } catch (const Error& e) {
    const std::string what = e.bare();
    const size_t end = what.find(": takes no batch: ");
    if (end == std::string::npos) throw;
    return what.substr(0, end);
  }
}

// SPEC L11
TEST(BatchCalls, OfEveryOperatorHaveTheBitsOfEachCall) {
  std::set<std::string> found;
  int checked = 0;
  for (const Sample& s : all_samples())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i32}) {
      auto program = s.program(dtype);
      if (!program || program->stages[0].inputs.empty()) continue;
      std::vector<Inputs> calls;
      for (uint64_t seed : {21, 22, 23}) calls.push_back(s.inputs(dtype, seed));
      for (uint32_t chosen : subsets(calls[0].size())) {
        const Batched batched{*program, calls, chosen};
        if (const std::string name = refusing(batched); !name.empty()) {
          found.insert(name);
          EXPECT_TRUE(refused.contains(name)) << name << " in " << s.text(dtype);
          continue;
        }
        expect_same_bits(batched, s.text(dtype));
        ++checked;
      }
    }
  EXPECT_EQ(found, refused);
  EXPECT_GT(checked, 2000);
}

// The same of a program of one stage, for every subset of its inputs.
void expect_same_bits(const std::string& stage) {
  const auto program =
      ir::parse(fmt::format("graph p {{ stage 0 {} return %z }} }}", stage), "text").graphs[0];
  std::vector<Inputs> calls(3);
  for (size_t i = 0; i < calls.size(); ++i)
    for (ir::ValueId v : program->stages[0].inputs) {
      const ir::Value& x = (*program)[v];
      Sizes shape;
      for (const ir::Dim& d : x.type.dims) shape.push_back(d.value());
      calls[i].push_back(
          random_tensor(x.type.dtype, shape, x.name, 31 + i, *Context::default_context()));
    }
  for (uint32_t chosen : subsets(calls[0].size()))
    expect_same_bits({*program, calls, chosen}, stage);
}

// What is 0-d has less say in the dtype than what is not, and for a batch nothing is 0-d.
TEST(BatchCalls, HaveTheDtypeOfEachCall) {
  for (const char* stage :
       {"(%x: f32[3], %y: f64[]) { %z = mul(%x, %y)", "(%x: f32[], %y: f64[]) { %z = div(%x, %y)",
        "(%x: f16[2], %y: f64[]) { %z = atan2(%x, %y)", "(%x: f32[3], %y: f64[]) { %z = lt(%x, %y)",
        "(%x: i32[2], %y: i64[]) { %z = add(%x, %y)", "(%x: i32[2], %y: f64[]) { %z = sub(%x, %y)",
        "(%x: bool[], %y: f32[2]) { %z = where(%x, %y, 0.5)", "(%x: bool[]) { %z = sum(%x)",
        "(%x: f64[0], %y: f32[2, 3]) { %z = cat(%x, %y)"})
    expect_same_bits(stage);
}

// Sums in several parts are cut as those of one are.
TEST(BatchCalls, OfManyElementsHaveTheBitsOfEachCall) {
  for (const char* stage :
       {"(%x: f32[50, 61]) { %z = sum(%x)", "(%x: f64[29, 36]) { %z = prod(%x)",
        "(%x: f32[50, 61]) { %z = argmax(%x)", "(%x: f32[7, 2, 300]) { %z = sum(%x) {dim = [0, 2]}",
        "(%x: f32[3, 2000]) { %z = cumsum(%x) {dim = 1}",
        "(%x: f16[2, 90], %i: i64[300], %y: f16[2, 300]) "
        "{ %z = index_add(%x, %i, %y) {dim = 1, alpha = 0.3}",
        "(%x: bf16[3, 90], %y: bf16[2, 300], %i: i64[2, 1], %j: i64[300]) "
        "{ %z = index_put(%x, %y, %i, %j) {accumulate = true}",
        "(%x: f32[17, 40], %y: f32[40, 9]) { %z = matmul(%x, %y)",
        "(%x: f32[5, 4, 9, 8], %w: f32[6, 2, 3, 3]) { %z = convolution(%x, %w) {groups = 2}",
        "(%x: f32[5, 6, 7, 6], %w: f32[6, 2, 3, 3]) "
        "{ %z = convolution_input(%x, %w) {groups = 2, size = [9, 8]}",
        "(%x: f32[7, 4, 9, 8], %y: f32[7, 6, 7, 6]) "
        "{ %z = convolution_weight(%x, %y) {groups = 2, kernel = [3, 3]}",
        "(%x: f64[18, 40, 5], %y: f64[18, 2, 4]) { %z = convolution_weight(%x, %y) {kernel = 2}"})
    expect_same_bits(stage);
}

}  // namespace
}  // namespace gradus::property
