// What the ways to multiply matrices give and refuse, and their derivatives.
#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

constexpr auto none = std::monostate();

// einsum by its definition: a loop over all letters.
std::vector<double> by_definition(const std::string& inputs, const std::string& result,
                                  const std::vector<Tensor>& xs) {
  std::map<char, int64_t> size;
  std::vector<std::string> terms(1);
  for (char c : inputs) c == ',' ? terms.emplace_back() : terms.back() += c, void();
  std::string letters = result;
  for (size_t t = 0; t < terms.size(); ++t)
    for (size_t d = 0; d < terms[t].size(); ++d) {
      int64_t& s = size[terms[t][d]];
      s = std::max(s, xs[t].shape()[d]);
      if (letters.find(terms[t][d]) == std::string::npos) letters += terms[t][d];
    }
  int64_t outer = 1, total = 1;
  for (char c : letters) total *= size[c];
  for (char c : result) outer *= size[c];
  std::vector<double> out(static_cast<size_t>(outer));
  for (int64_t i = 0; i < total; ++i) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (size_t l = letters.size(); l-- > 0; rest /= size[letters[l]])
      at[letters[l]] = rest % size[letters[l]];
    double product = 1;
    for (size_t t = 0; t < terms.size(); ++t) {
      int64_t index = 0;
      for (size_t d = 0; d < terms[t].size(); ++d) {
        int64_t n = xs[t].shape()[d];
        index = index * n + (n == 1 ? 0 : at[terms[t][d]]);
      }
      product *= xs[t].item(index);
    }
    int64_t to = 0;
    for (char c : result) to = to * size[c] + at[c];
    out[static_cast<size_t>(to)] += product;
  }
  return out;
}

std::vector<EagerOperand> operands(const std::vector<Tensor>& xs) { return {xs.begin(), xs.end()}; }

Tensor einsum(const std::string& equation, const std::vector<Tensor>& xs) {
  const Operator* op = find("einsum");
  auto in = operands(xs);
  return evaluate(*op, op->read({attribute("equation", equation)}), in,
                  *Context::default_context())[0];
}

TEST(Matmul, BroadcastsBatches) {
  Tensor a = random_tensor({2, 1, 3, 4}, 1), b = random_tensor({5, 4, 2}, 2);
  Tensor y = run_one("matmul", {a, b});
  EXPECT_EQ(Sizes(y.shape()), (Sizes{2, 5, 3, 2}));
  EXPECT_EQ(y.to_doubles(), by_definition("abij,cjk", "acik", {a, b}));
  Tensor w = random_tensor({4, 6}, 3);
  EXPECT_EQ(run_one("matmul", {a, w}).to_doubles(), by_definition("abij,jk", "abik", {a, w}));
  EXPECT_EQ(run_one("matmul", {scattered(a), w}).to_doubles(),
            by_definition("abij,jk", "abik", {a, w}));
  Tensor v = random_tensor({4}, 4);
  EXPECT_EQ(run_one("matmul", {a, v}).to_doubles(), by_definition("abij,j", "abi", {a, v}));
  EXPECT_EQ(run_one("matmul", {v, b}).to_doubles(), by_definition("j,cjk", "ck", {v, b}));
  EXPECT_EQ(run_one("matmul", {v, v}).item(), inner(v, v));
  // One left matrix for all of a batch, and an operand expanded along the batch.
  Tensor l = random_tensor({3, 4}, 5);
  EXPECT_EQ(run_one("matmul", {l, b}).to_doubles(), by_definition("ij,cjk", "cik", {l, b}));
  Tensor e = run_one("expand", {l}, {ints("shape", {5, 3, 4})});
  EXPECT_EQ(run_one("bmm", {e, b}).to_doubles(), by_definition("ij,cjk", "cik", {l, b}));
}

TEST(Matmul, OfNothing) {
  for (auto [m, k, n] : {std::array<int64_t, 3>{0, 3, 2}, {2, 0, 3}, {2, 3, 0}}) {
    Tensor y = run_one("mm", {random_tensor({m, k}, 1), random_tensor({k, n}, 2)});
    EXPECT_EQ(Sizes(y.shape()), (Sizes{m, n}));
    for (double v : y.to_doubles()) EXPECT_EQ(v, 0);
  }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  auto refused = [](std::string_view op, std::initializer_list<EagerOperand> in, const char* why,
                    const LiteralList& a = {}) {
    std::string message = error_of([&] { evaluate(op, in, a); });
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  Tensor a = counting({2, 3}), v = counting({3}), s = Tensor::scalar(DType::f64, 1);
  refused("matmul", {a, a}, "sizes 3 and 2 differ");
  refused("matmul", {a, s}, "at least one dimension");
  refused("matmul", {a, v.to(DType::f32)}, "one dtype");
  refused("matmul", {a.to(DType::boolean), v.to(DType::boolean)}, "bool");
  refused("matmul", {a, number(2)}, "tensor");
  refused("matmul", {counting({2, 3, 3}), counting({4, 3, 3})}, "batch dimension");
  refused("mm", {a, v}, "2 dimensions");
  refused("bmm", {counting({1, 3, 3}), counting({4, 3, 3})}, "stack");
  refused("mv", {a, a}, "1 dimension");
  refused("dot", {v, counting({4})}, "differ");
  refused("outer", {a, v}, "1 dimension");
  refused("addmm", {counting({3, 3}), a, counting({3, 3})}, "does not broadcast");
  refused("addmm", {counting({2, 2, 3}), a, counting({3, 3})}, "does not broadcast");
  refused("addmm", {counting({3}, DType::i64), a.to(DType::i64), counting({3, 3}, DType::i64)},
          "cannot hold", {attribute("alpha", 0.5)});
  refused("linear", {a, counting({4, 3}), counting({2, 4})}, "'b'");
  refused("trace", {v}, "2 dimensions");
}

TEST(Matmul, SymbolicSizes) {
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  EXPECT_EQ(types_of("matmul", {Type(DType::f32, {n, 3}), Type(DType::f32, {m, 4})}),
            "f32[N, 4] if 3 == M");
  EXPECT_EQ(types_of("linear", {Type(DType::f32, {n, m, 3}), Type(DType::f32, {4, 3})}),
            "f32[N, M, 4]");
  EXPECT_EQ(types_of("einsum", {Type(DType::f32, {n, m}), Type(DType::f32, {m, 4})},
                     {attribute("equation", "ij,jk->ki")}),
            "f32[4, N]");
}

TEST(Matmul, FamilyMeans) {
  Tensor a = random_tensor({2, 3}, 1), b = random_tensor({3, 4}, 2), c = random_tensor({4}, 3);
  Tensor ab = run_one("mm", {a, b});
  Tensor want =
      run_one("add", {run_one("mul", {ab, number(-2)}), run_one("mul", {c, number(0.5)})});
  LiteralList scales{attribute("beta", 0.5), attribute("alpha", int64_t{-2})};
  EXPECT_EQ(run_one("addmm", {c, a, b}, scales).to_doubles(), want.to_doubles());
  // beta = 0 leaves c unread.
  Tensor nan = Tensor::from(DType::f64, Sizes{4}, std::vector<double>(4, NAN));
  EXPECT_EQ(run_one("addmm", {nan, a, b}, {attribute("beta", int64_t{0})}).to_doubles(),
            ab.to_doubles());
  Tensor x = random_tensor({2, 5, 3}, 4), w = random_tensor({4, 3}, 5);
  EXPECT_EQ(run_one("linear", {x, w, none}).to_doubles(), by_definition("abi,oi", "abo", {x, w}));
  Tensor w3 = random_tensor({4, 3, 2}, 6), x2 = random_tensor({2, 5, 2}, 7);
  EXPECT_EQ(run_one("bilinear", {x, x2, w3}).to_doubles(),
            by_definition("abi,abj,oij", "abo", {x, x2, w3}));
  EXPECT_EQ(run_one("trace", {counting({2, 3})}).item(), 4);
  EXPECT_EQ(run_one("trace", {counting({2, 3}, DType::u8)}).dtype(), DType::i64);
  EXPECT_EQ(run_one("outer", {c, random_tensor({2}, 8)}).to_doubles(),
            by_definition("i,j", "ij", {c, random_tensor({2}, 8)}));
  expect_all_layouts("matmul", {a, b}, {}, false);
}

TEST(Einsum, IsItsDefinition) {
  auto check = [](const std::string& in, const std::string& out, const std::vector<Tensor>& xs) {
    SCOPED_TRACE(in + "->" + out);
    EXPECT_EQ(einsum(in + "->" + out, xs).to_doubles(), by_definition(in, out, xs));
  };
  Tensor m = random_tensor({3, 4}, 1), n = random_tensor({4, 3}, 2), s = random_tensor({3, 3}, 3);
  Tensor t = random_tensor({2, 3, 4}, 4), u = random_tensor({2, 4, 5}, 5),
         v = random_tensor({3}, 6);
  check("ij", "ji", {m});
  check("ij", "", {m});
  check("ii", "i", {s});
  check("ii", "", {s});
  check("iij", "ji", {random_tensor({3, 3, 2}, 7)});
  check("iiji", "j", {random_tensor({2, 2, 3, 2}, 8)});
  check("ij,jk", "ki", {m, n});
  check("ij,ji", "", {m, n});
  check("bij,bjk", "bki", {t, u});
  check("bij,bjk", "ik", {t, u});
  check("bij,cjk", "bcik", {t, u});
  check("i,j,k", "kij", {v, v, random_tensor({2}, 9)});
  check("ij,ij,ij", "i", {m, m, m});
  check("bij,bjk,i,kl", "lb", {t, u, v, random_tensor({5, 2}, 10)});
  check("ij,kj", "ik", {m, random_tensor({5, 1}, 11)});
  check("i,i", "", {v, random_tensor({1}, 12)});
  check("ij,jk", "ik", {random_tensor({3, 0}, 1), random_tensor({0, 2}, 1)});
  check("Ab,bA", "A", {m, n});
}

TEST(Einsum, EllipsisAndImplicitResults) {
  Tensor a = random_tensor({2, 1, 3, 4}, 1), b = random_tensor({5, 4, 2}, 2);
  Tensor y = einsum("...ij, ...jk -> ...ik", {a, b});
  EXPECT_EQ(Sizes(y.shape()), (Sizes{2, 5, 3, 2}));
  EXPECT_EQ(y.to_doubles(), run_one("matmul", {a, b}).to_doubles());
  EXPECT_EQ(einsum("ba", {counting({2, 3})}).to_doubles(),
            by_definition("ba", "ab", {counting({2, 3})}));
  EXPECT_EQ(einsum("ij,jk", {counting({2, 3}), counting({3, 2})}).to_doubles(),
            by_definition("ij,jk", "ik", {counting({2, 3}), counting({3, 2})}));
  EXPECT_EQ(Sizes(einsum("i...->...", {a}).shape()), (Sizes{1, 3, 4}));
  EXPECT_EQ(Sizes(einsum("...i", {a}).shape()), (Sizes{2, 1, 3, 4}));
}

TEST(Einsum, RefusesWhatMeansNothing) {
  Tensor a = counting({2, 3});
  auto refused = [&](const char* equation, std::vector<Tensor> xs, const char* why) {
    std::string message = error_of([&] { einsum(equation, xs); });
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused("ij,jk->ik", {a}, "names 2 operands, 1 are given");
  refused("i->i", {a}, "names 1 dimensions");
  refused("ijk->i", {a}, "names 3 dimensions");
  refused("ij->k", {a}, "in no operand");
  refused("ij->ii", {a}, "twice");
  refused("ii->i", {a}, "sizes 2 and 3");
  refused("ij,ij->ij", {a, counting({2, 4})}, "sizes 3 and 4");
  refused("i1->i", {a}, "neither a letter");
  refused("i.j->i", {a}, "neither a letter");
  refused("......", {a}, "twice");
  refused("", {a}, "names 0 dimensions");
}

TEST(MatmulDerivative, OfEveryShape) {
  auto pair = [](std::initializer_list<int64_t> a, std::initializer_list<int64_t> b) {
    return std::vector<EagerOperand>{uniform(Sizes(a), -1, 1, 1), uniform(Sizes(b), -1, 1, 2)};
  };
  expect_smooth_derivatives("matmul", pair({3}, {3}));
  expect_smooth_derivatives("matmul", pair({2, 3}, {3}));
  expect_smooth_derivatives("matmul", pair({3}, {3, 4}));
  expect_smooth_derivatives("matmul", pair({2, 3}, {3, 4}));
  expect_smooth_derivatives("matmul", pair({2, 1, 2, 3}, {4, 3, 2}));
  expect_smooth_derivatives("matmul", pair({5, 2, 3}, {3}));
  expect_smooth_derivatives("matmul", pair({3}, {2, 3, 4}));
  expect_smooth_derivatives("matmul", pair({2, 5, 3}, {3, 2}));
  expect_smooth_derivatives("matmul", pair({5, 3}, {2, 3, 2}));
  expect_smooth_derivatives("mm", pair({2, 0}, {0, 4}));
  expect_smooth_derivatives("bmm", pair({2, 2, 3}, {2, 3, 1}));
  expect_smooth_derivatives("outer", pair({2}, {3}));
}

TEST(MatmulDerivative, OfTheFamily) {
  auto u = [](std::initializer_list<int64_t> s, uint64_t seed) {
    return uniform(Sizes(s), -1, 1, seed);
  };
  LiteralList scales{attribute("beta", 0.5), attribute("alpha", -2.0)};
  expect_smooth_derivatives("addmm", {u({4}, 1), u({2, 3}, 2), u({3, 4}, 3)}, scales);
  expect_smooth_derivatives("baddbmm", {u({2, 1, 4}, 1), u({2, 2, 3}, 2), u({2, 3, 4}, 3)}, scales);
  expect_smooth_derivatives("linear", {u({2, 5, 3}, 1), u({4, 3}, 2), u({4}, 3)});
  expect_smooth_derivatives("linear", {u({3}, 1), u({4, 3}, 2)});
  expect_smooth_derivatives("bilinear", {u({2, 3}, 1), u({2, 2}, 2), u({4, 3, 2}, 3), u({4}, 4)});
  expect_smooth_derivatives("trace", {u({3, 2}, 1)});
  auto sum_of = [&](const char* equation, std::vector<EagerOperand> xs) {
    expect_smooth_derivatives("einsum", xs, {attribute("equation", equation)});
  };
  sum_of("ij,jk->ik", {u({2, 3}, 1), u({3, 4}, 2)});
  sum_of("ii->i", {u({3, 3}, 1)});
  sum_of("ij,ij,ij->i", {u({2, 3}, 1), u({2, 3}, 2), u({2, 3}, 3)});
  sum_of("...ij,...jk->...ik", {u({2, 2, 3}, 1), u({3, 2}, 2)});
  sum_of("bij,cj->", {u({2, 2, 3}, 1), u({2, 1}, 2)});
}

}  // namespace
}  // namespace gradus::ops::test
