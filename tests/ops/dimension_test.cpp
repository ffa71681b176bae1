// Dimensions that attributes name, as rules see them and as programs keep them.
#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/table.h"

namespace gradus::ops {
namespace {

struct NamedAttr {
  int64_t dim = -1, count = -1;
  std::optional<int64_t> maybe;
  Ints dims;
  std::optional<Ints> several;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &NamedAttr::dim), field("count", &NamedAttr::count),
                      dimension("maybe", &NamedAttr::maybe),
                      required_dimension("dims", &NamedAttr::dims),
                      dimension("several", &NamedAttr::several));
  }
};
std::vector<NamedAttr> seen;  // by rules

struct Named {
  static constexpr std::string_view name = "test.named", doc = "y = x";
  static constexpr auto batch = batch_named_dimensions;
  using Attr = NamedAttr;
  static void infer(InferCall& call, const Attr& a) {
    seen.push_back(a);
    call.out.push_back(call.tensor(0));
  }
  static void bind(BindCall& call, const Attr& a) {
    seen.push_back(a);
    call.set_view(0, 0, call.in[0], 0);
  }
  static Value dx(VjpCall& d, const Attr& a) {
    seen.push_back(a);
    return d.dy();
  }
};
// Of the result, which has a dimension more; and of an operand that has two at least.
struct NamedOfResult : Named {
  static constexpr std::string_view name = "test.named_of_result";
  static constexpr int more_dimensions = 1, least_rank = 2;
};

struct NoSizes : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

const Type cube(DType::f32, {2, 3, 4});

void infer_type(const Operator& op, const Attributes& written, const Type& x) {
  const ir::OperandType in{ir::OperandType::Kind::tensor, &x};
  infer(op, {&in, 1}, written, nullptr, ir::any_results);
}
void expect_counted(const NamedAttr& a, int64_t last) {
  EXPECT_EQ(a.dim, last);
  EXPECT_EQ(a.maybe, last - 1);
  EXPECT_EQ(a.dims, (Ints{0, last}));
  EXPECT_EQ(a.several, (Ints{last - 2, 1}));
  EXPECT_EQ(a.count, -1) << "it names no dimension";
}
std::string fault(const Operator& op, NamedAttr a, const Type& x) {
  try {
    infer_type(op, make_attributes(std::move(a)), x);
  } catch (const Error& e) {
    return e.bare();
  }
  return "none";
}

TEST(Dimensions, AreCountedFromTheFrontForEveryRule) {
  const Operator& op = operator_record<Named>;
  const Attributes written = make_attributes(NamedAttr{-1, -1, -2, {0, -1}, Ints{-3, 1}});
  seen.clear();
  infer_type(op, written, cube);

  const Layout lies(DType::f32, {2, 3, 4});
  const bool present = true, number = false;
  const NoSizes sizes;
  BindCall bind{op, {&lies, 1}, {&present, 1}, {&number, 1}, written, sizes, {lies}, {{}}, {}};
  op.bind(bind);

  TypeWorld world;
  const Value x = world.input(cube);
  const bool wanted = true;
  VjpCall d{op, world, {&x, 1}, {&x, 1}, {&x, 1}, written, {&wanted, 1}, {}};
  d.gradients.resize(1);
  op.vjp(d);
  EXPECT_TRUE(d.gradients[0].defined());

  ASSERT_EQ(seen.size(), 3u);
  for (const NamedAttr& a : seen) expect_counted(a, 2);
  EXPECT_EQ(to_string(op.write(written)[0].value), "-2") << "what is written stays";
}

TEST(Dimensions, OfABatchMoveOn) {
  // The world that the rule emits into, where the call is seen.
  struct Recorder final : World {
    SmallVector<Value, 2> emit(const Operator&, Attributes attributes,
                               std::span<const Value> operands) override {
      given = std::move(attributes);
      return {operands[0]};
    }
    Attributes given;
  } world;
  const Operator& op = operator_record<Named>;
  const Attributes written = make_attributes(NamedAttr{-1, -1, -2, {0, -1}, Ints{-3, 1}});
  Value x{&world, {}, Type(DType::f32, {5, 2, 3, 4}), {}};
  const bool batched = true;
  const Dim size = 5;
  op.batch({op, written, world, {&x, 1}, {&batched, 1}, {&cube, 1}, size});
  const auto& a = attributes_as<NamedAttr>(world.given);
  EXPECT_EQ(a.dim, 3);
  EXPECT_EQ(a.maybe, 2);
  EXPECT_EQ(a.dims, (Ints{1, 3}));
  EXPECT_EQ(a.several, (Ints{1, 2}));
  EXPECT_EQ(a.count, -1);
}

TEST(Dimensions, AreHeldToTheRank) {
  const Operator& op = operator_record<Named>;
  EXPECT_EQ(fault(op, {3, 0, {}, {}, {}}, cube),
            "test.named: dimension 3 is out of range for a tensor of rank 3 (from -3 to 2); 'x' is "
            "f32[2, 3, 4]");
  EXPECT_NE(fault(op, {0, 0, -4, {}, {}}, cube).find("dimension -4 is out"), std::string::npos);
  EXPECT_NE(fault(op, {0, 0, {}, {0, 3}, {}}, cube).find("dimension 3 is out"), std::string::npos);
  EXPECT_NE(fault(op, {0, 0, {}, {}, Ints{-4}}, cube).find("dimension -4"), std::string::npos);
  const Type scalar(DType::f32, {});
  EXPECT_EQ(fault(op, {-1, 0, {}, {}, {}}, scalar), "none") << "a scalar has one to name";
  EXPECT_NE(fault(op, {1, 0, {}, {}, {}}, scalar).find("rank 0 (from -1 to 0)"), std::string::npos);

  const Operator& of_result = operator_record<NamedOfResult>;
  EXPECT_EQ(fault(of_result, {3, 0, {}, {}, {}}, cube), "none");
  EXPECT_NE(fault(of_result, {4, 0, {}, {}, {}}, cube).find("rank 4 (from -4 to 3)"),
            std::string::npos);
  EXPECT_EQ(fault(of_result, {0, 0, {}, {}, {}}, Type(DType::f32, {2})),
            "test.named_of_result: operand 'x' is f32[2]; it needs at least two dimensions");
}

}  // namespace
}  // namespace gradus::ops
