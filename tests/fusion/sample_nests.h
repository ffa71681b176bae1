// Nests that show a target all there is to translate: every pointwise operator in every dtype it
// computes in, every way to lie, conversions, reductions of rows and of columns.
#pragma once

#include "fusion/nest.h"
#include "tests/fusion/calls.h"
#include "tests/fusion/row_nests.h"

namespace gradus::fusion::test {

// Whether one call is all of its work, and random operands will do: an index has to be one. Such
// kernels run in tests/cross.
inline bool is_one_call(const Nest& nest) {
  return nest.rank <= 2 && !nest.has_edges() && nest.column_stores.empty();
}

inline constexpr DType sampled_dtypes[] = {
    DType::f64, DType::f32,     DType::f16, DType::bf16, DType::i64, DType::i32, DType::i8,
    DType::u8,  DType::boolean, DType::i16, DType::u16,  DType::u32, DType::u64};

inline std::vector<Nest> operator_nests() {
  std::vector<Nest> nests;
  constexpr std::string_view contiguous[] = {"contiguous"};
  for (const ir::Operator* op : ops::all())
    for (DType d : sampled_dtypes)
      if (op->pointwise)
        for (const std::string& attributes : attributes_of(*op))
          nests.push_back(parse_nest(call_text(*op, d, attributes, 1, contiguous)));
  return nests;
}

// To every other dtype.
inline Nest conversions_nest(DType d) {
  std::string text = fmt::format("nest 1 {{ %v0 = load {} [contiguous]\n", name_of(d)),
              stores = "%v0";
  int v = 1;
  for (DType to : sampled_dtypes) {
    text += fmt::format("%v{} = convert(%v0) : {}\n", v, name_of(to));
    stores += fmt::format(", %v{}", v++);
  }
  return parse_nest(text + "store " + stores + " }");
}

inline std::vector<Nest> row_nests() {
  std::vector<Nest> nests;
  for (DType d : sampled_dtypes) {
    const std::string_view name = name_of(d);
    nests.push_back(conversions_nest(d));
    for (std::string_view walk :
         {"strided, contiguous", "strided, strided", "broadcast, contiguous", "strided, broadcast"})
      for (std::string_view r : reducers)
        nests.push_back(parse_nest(
            fmt::format("nest 2 {{ %v0 = load {} [{}] %v1 = {} store_row %v1 store %v1, %v0 }}",
                        name, walk, reduction(r, "%v0", d))));
  }
  for (std::string_view d : {"f64", "f32", "f16", "bf16"}) {
    nests.push_back(parse_nest(softmax_nest(d)));
    nests.push_back(parse_nest(softmax_derivative_nest(d)));
  }
  return nests;
}

inline std::vector<Nest> column_nests() {
  std::vector<Nest> nests;
  for (DType d : sampled_dtypes)
    for (std::string_view r : reducers) {
      std::string reduced = reduction(r, "%v0", d);
      reduced.replace(0, 6, "reduce_columns");
      nests.push_back(parse_nest(fmt::format(
          "nest 2 {{ %v0 = load {} [strided, contiguous] %v1 = {} store %v0 store_column %v1 }}",
          name_of(d), reduced)));
    }
  return nests;
}

// Operands in parts, and picked by indices.
inline std::vector<Nest> edge_nests() {
  std::vector<Nest> nests;
  for (DType d : sampled_dtypes)
    for (std::string_view walk : {"strided, strided", "strided, broadcast"})
      nests.push_back(
          parse_nest(fmt::format("nest 2 {{ %v0 = load i64 [strided, contiguous]\n"
                                 "%v1 = load {0} [{1}] at %v0\n"
                                 "%v2 = load {0} [strided, contiguous] of 3\n"
                                 "store %v1, %v2 }}",
                                 name_of(d), walk)));
  return nests;
}

}  // namespace gradus::fusion::test
