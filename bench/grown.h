// Programs of more elements than the corpus has: rows of few and many, as operands lie, whose
// groups the cost model has to judge as well.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/corpus/subject.h"

namespace gradus::bench {

// What one program computes of x, of `rows` by `columns`; r is one row, c one column.
struct Body {
  const char* name;
  const char* text;
};
constexpr Body grown_bodies[] = {
    {"chain", "%p = mul(%x, %r) %s = add(%p, %x) %y = mul(%s, %x)"},
    {"columns", "%p = mul(%x, %c) %s = add(%p, %x) %y = mul(%s, %c)"},
    {"tanh", "%p = mul(%x, %r) %t = tanh(%p) %y = add(%t, %x)"},
    {"transposed", "%t = transpose(%z) {dim0 = 0, dim1 = 1} %p = mul(%x, %t) %y = add(%p, %x)"},
    {"softmax", "%y = softmax(%x) {dim = 1}"},
    {"squares", "%p = square(%x) %s = sum(%p) {dim = [1]} %y = sqrt(%s)"},
    {"norm",
     "%s = mean(%x) {dim = [1], keepdim = true} %d = sub(%x, %s) %q = square(%d)\n"
     "%v = mean(%q) {dim = [1], keepdim = true} %w = add(%v, 1) %i = rsqrt(%w) %y = mul(%d, %i)"},
    {"bias", "%p = mul(%x, %x) %q = add(%p, %r) %y = sum(%q) {dim = [0]}"},
};
struct Extent {
  int64_t rows, columns;
};
constexpr Extent grown_sizes[] = {{30, 3},    {10000, 3}, {300, 6},   {3000, 10},  {40, 10},
                                  {2000, 16}, {2000, 17}, {1000, 24}, {1000, 31},  {800, 40},
                                  {300, 100}, {8, 100},   {200, 257}, {100, 1024}, {4, 65536}};

inline corpus::Subject grown_subject(const Body& body, const Extent& n, DType dtype) {
  const std::string_view d = name_of(dtype);
  const auto module = ir::parse(
      fmt::format("graph g {{ stage 0 (%x: {0}[{1}, {2}], %r: {0}[{2}], %c: {0}[{1}, 1], %z: "
                  "{0}[{2}, {1}]) {{\n{3}\nreturn %y }} }}",
                  d, n.rows, n.columns, body.text),
      "grown");
  corpus::Subject s;
  s.graph = *module.graphs[0];
  s.code = Code::compile(s.graph);
  std::vector<Tensor>& inputs = s.inputs.emplace_back();
  for (size_t i = 0; i < s.code->inputs(0); ++i) {
    Sizes sizes;
    for (const ir::Dim& dim : s.code->input_type(0, i).dims) sizes.push_back(dim.value());
    inputs.push_back(
        random_tensor(dtype, sizes, s.code->input_name(0, i), 1, *Context::default_context()));
  }
  return s;
}

inline std::vector<std::pair<std::string, corpus::Subject>> grown_subjects() {
  std::vector<std::pair<std::string, corpus::Subject>> all;
  for (const Body& body : grown_bodies)
    for (const Extent& n : grown_sizes)
      for (DType dtype : {DType::f32, DType::f64})
        all.emplace_back(
            fmt::format("grown/{}/{}x{}/{}", body.name, n.rows, n.columns, name_of(dtype)),
            grown_subject(body, n, dtype));
  return all;
}

}  // namespace gradus::bench
