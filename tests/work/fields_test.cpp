// Every field of every kind of work has a say: in equality, in the key, in the hash, in the text.
#include <functional>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "gradus/registry.h"
#include "work/work.h"

namespace gradus::work {
namespace {

using Check = std::function<void(const std::string& path)>;

// Changes each part of x in turn, and calls `check` while it is changed.
template <class T>
void mutate(T& x, const std::string& path, const Check& check);

template <class T>
void set(T& x, T other, const std::string& path, const Check& check) {
  const T old = x;
  x = other;
  check(path);
  x = old;
}

template <class List>
void mutate_list(List& x, const std::string& path, const Check& check) {
  for (size_t i = 0; i < x.size(); ++i) mutate(x[i], fmt::format("{}[{}]", path, i), check);
  const List old = x;
  x.push_back({});
  check(path + " with one more");
  x = old;
}

template <class T>
struct IsArray : std::false_type {};
template <class T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
void mutate(T& x, const std::string& path, const Check& check) {
  if constexpr (std::is_same_v<T, bool>) {
    set(x, !x, path, check);
  } else if constexpr (std::is_same_v<T, Real>) {
    set(x, Real(x + 1), path, check);
    set(x, Real(-x), path + " negated", check);  // a zero's sign, too
  } else if constexpr (std::is_enum_v<T>) {
    set(x, static_cast<T>(static_cast<int>(x) ? 0 : 1), path, check);
  } else if constexpr (std::is_integral_v<T>) {
    set(x, static_cast<T>(x + 1), path, check);
    set(x, static_cast<T>(x + (int64_t{1} << (8 * sizeof(T) - 2))), path + " much more", check);
  } else if constexpr (std::is_same_v<T, const ir::Operator*>) {
    set(x, ops::find("mul"), path, check);
  } else if constexpr (std::is_same_v<T, Call>) {
    const ir::Operator* sub = ops::find("sub");
    set(x, Call{sub, sub->read({{"alpha", 3.0, {}}})}, path + " by attribute", check);
    set(x, Call{ops::find("mul"), ops::find("mul")->read({})}, path, check);
  } else if constexpr (std::is_same_v<T, ir::Number>) {
    for (auto other : {ir::Number::of(int64_t{2}), ir::Number::of(true), ir::Number::of(-0.0)})
      set(x, other, path, check);
  } else if constexpr (std::is_same_v<T, SourceLocation>) {
    mutate(x.line, path + ".line", check);
    mutate(x.column, path + ".column", check);
  } else if constexpr (std::is_same_v<T, std::string>) {
    set(x, x + " ", path, check);
  } else if constexpr (IsOptional<T>::value) {
    set(x, T(), path + " without", check);
    mutate(*x, path, check);
  } else if constexpr (std::is_same_v<T, Layout>) {
    mutate(x.dtype, path + ".dtype", check);
    mutate(x.shape, path + ".shape", check);
    mutate(x.strides, path + ".strides", check);
  } else if constexpr (HasFields<T>) {
    for_each_field(x, [&](std::string_view name, auto& member) {
      mutate(member, fmt::format("{}.{}", path, name), check);
    });
  } else if constexpr (IsArray<T>::value) {
    for (size_t i = 0; i < x.size(); ++i) mutate(x[i], fmt::format("{}[{}]", path, i), check);
  } else {
    mutate_list(x, path, check);
  }
}

// Something of each kind, with an element in every list.
std::vector<Work> samples() {
  const Layout l(DType::f32, {2, 3});
  const ir::Operator* sub = ops::find("sub");
  const Window from{0, DType::f32, {3, 1}, 5}, to{1, DType::f32, {1, 2}, 0};
  const Copy copy{{2, 3}, from, to, false, {}};
  Index index;
  index.op = sub;
  index.shape = index.plain = index.indexed = {2, 3};
  index.serial = {true, false};
  index.indices.push_back({1, DType::i64, {1, 0}, 7, 3, false, 0});
  index.begin = index.end = {copy};
  Gemm gemm{DType::f32, 2, 3, 4, 4, 1, 3, 1, {{2, 8, 12}}};
  Scan scan;
  scan.in = {l};
  Pointwise pointwise{{sub, sub->read({})}, Compute::f32, {6}, {{DType::f32, {1}}}, DType::f32};
  Reduce sum;
  sum.kept = sum.reduced = {{2, 3}};
  Extremum greatest;
  greatest.kept = greatest.reduced = {{2, 3}};
  Step step{{sub, sub->read({})}, Reducer::max, false, {0, 1}, Compute::f32, DType::f32, {3, 4}};
  Loops loops{{2,
               {{DType::i64, {Walk::strided}, 1, 0}},
               {ir::Number::of(0.0)},
               {step},
               {2},
               {2},
               {2},
               256,
               3,
               "p"},
              {{2, 3}, {{3, 1}}, {{{{0, 0}, {2, 3}, {3, 1}}}}, {4}}};
  Columns columns;
  columns.columns = {1, 2, 3};
  return {Move{{copy}, 0},
          index,
          index_check(*sub, {0, DType::i64, {1}, 7, 3, false, 0}, {4}),
          sum,
          greatest,
          Product{gemm},
          Convolution{Direction::result, {}, 1, l, l, l},
          columns,
          MaxPool{},
          Triangle{l},
          Range{},
          Spacing{},
          OneHot{l, 3},
          Nonzero{l, 2},
          RandomBits{},
          Sort{l},
          scan,
          RunningMax{l, 1},
          Factor{sub, MatrixFunction::inverse, l},
          Solve{sub, l, l},
          Fourier{l, 1},
          Collective{CollectiveKind::shift, CollectiveReducer::max, "g", l, 1, 3, false},
          CollectiveEnd{"g"},
          OwnRank{"g"},
          OwnBlock{"g", l},
          pointwise,
          loops,
          foreign({})};
}

TEST(Work, HasASampleOfEveryKind) {
  std::set<size_t> kinds;
  for (const Work& w : samples()) kinds.insert(w.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Kinds>);
}

TEST(Work, EveryFieldHasASay) {
  for (Work& work : samples()) {
    const Work same = work;
    const std::string key = key_of(work), text = print(work);
    const size_t hash = hash_of(work);
    EXPECT_EQ(key, key_of(same));
    int mutations = 0;
    std::visit(
        [&](auto& w) {
          mutate(w, std::string(w.name), [&](const std::string& path) {
            ++mutations;
            EXPECT_FALSE(work == same) << path;
            EXPECT_NE(key_of(work), key) << path;
            EXPECT_NE(hash_of(work), hash) << path;
            EXPECT_NE(print(work), text) << path;
          });
        },
        work);
    EXPECT_GT(mutations, 0) << name_of(work);
    EXPECT_TRUE(work == same) << name_of(work);
    EXPECT_EQ(key_of(work), key) << name_of(work);
  }
}

// A byte that belongs to no listed field may not change equality: it is a gap, and no member that
// the list forgot.
template <class T>
void expect_all_listed(const T& sample) {
  alignas(T) std::byte raw[sizeof(T)];
  std::memset(raw, 0, sizeof raw);
  T& x = *new (raw) T(sample);
  std::vector<bool> listed(sizeof(T), false);
  for_each_field(x, [&](std::string_view, auto& member) {
    const auto at = static_cast<size_t>(reinterpret_cast<std::byte*>(&member) - raw);
    std::fill_n(listed.begin() + static_cast<int64_t>(at), sizeof member, true);
  });
  for (size_t b = 0; b < sizeof(T); ++b) {
    if (listed[b]) continue;
    raw[b] ^= std::byte{0x41};
    EXPECT_TRUE(x == sample) << "byte " << b << " of " << sizeof(T);
    raw[b] ^= std::byte{0x41};
  }
  x.~T();
}

TEST(Work, NoMemberIsForgotten) {
  for (const Work& work : samples()) std::visit([](const auto& w) { expect_all_listed(w); }, work);
  expect_all_listed(Window{});
  expect_all_listed(Pattern{});
  expect_all_listed(Copy{});
  expect_all_listed(IndexOperand{});
  expect_all_listed(IndexSides{});
  expect_all_listed(Axis{});
  expect_all_listed(Gemm{});
  expect_all_listed(Gemm::Batch{});
  expect_all_listed(ConvAxis{});
  expect_all_listed(ConvTensor{});
  expect_all_listed(PointwiseOperand{});
  expect_all_listed(Load{});
  expect_all_listed(Step{});
  expect_all_listed(Nest{});
  expect_all_listed(Frame{});
  expect_all_listed(Frame::Part{});
}

// Kernels are kept by the texts of their nests.
TEST(Work, EveryFieldOfANestIsInItsText) {
  for (const Work& work : samples()) {
    if (!std::holds_alternative<Loops>(work)) continue;
    for (const bool reduces : {false, true}) {
      Nest nest = std::get<Loops>(work).nest;
      if (reduces) nest.steps[0].call = {};
      const std::string text = print(nest);
      mutate(nest, "nest", [&](const std::string& path) {
        // Where an operator is called, nothing is reduced.
        const bool counts = reduces || (path.find("reducer") == std::string::npos &&
                                        path.find("columns") == std::string::npos);
        EXPECT_EQ(print(nest) != text, counts) << path;
      });
    }
  }
}

TEST(Work, KindsDoNotMix) {
  std::set<std::string> keys;
  const std::vector<Work> all = samples();
  for (const Work& w : all) keys.insert(key_of(w));
  EXPECT_EQ(keys.size(), all.size());
  // Where one list ends and the next begins is part of a key.
  Copy a, b;
  a.shape = {1, 2};
  a.source.strides = {3};
  b.shape = {1};
  b.source.strides = {2, 3};
  EXPECT_NE(key_of(Move{{a}}), key_of(Move{{b}}));
}

TEST(Work, Prints) {
  EXPECT_EQ(print(Triangle{Layout(DType::f32, {2, 3}), 1, false}),
            "triangle {x = f32 [2, 3] by [3, 1], diagonal = 1, lower = false}");
  const ir::Operator* sub = ops::find("sub");
  EXPECT_EQ((Call{sub, sub->read({{"alpha", 2.0, {}}})}.text()), "sub {alpha = 2.0}");
}

}  // namespace
}  // namespace gradus::work
