// What is wrong with a call is said by naming the operator and the operand or attribute.
#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

using ir::Dims;

// A sample's operands as its type rule sees them.
struct Call {
  std::vector<ir::Type> types;
  std::vector<ir::OperandType> operands;
  ir::Attributes attributes;
};

Call call_of(const Sample& s) {
  auto program = s.program(DType::f64);
  const ir::Node& node = program->stages[0].nodes[0];
  Call call;
  call.attributes = node.attributes;
  for (const ir::Operand& o : node.operands) {
    ir::OperandType t = program->type_of(o);
    call.operands.push_back(t);
    call.types.push_back(t.type ? *t.type : ir::Type());
  }
  return call;
}

// The message of the type rule, empty if it takes the call.
std::string message(const Sample& s, Call call) {
  for (size_t i = 0; i < call.operands.size(); ++i)
    if (call.operands[i].type) call.operands[i].type = &call.types[i];
  try {
    ops::infer(*s.op, call.operands, call.attributes, nullptr);
    return "";
  } catch (const Error& e) {
    return std::string(e.bare());
  }
}

std::string describe(const Call& call) {
  std::string text;
  for (size_t i = 0; i < call.operands.size(); ++i)
    text += fmt::format(" {}", call.operands[i].type ? to_string(call.types[i]) : "-");
  return text;
}

// Changes of one operand: another dtype, a dimension more or less, a size.
std::vector<ir::Type> changes(const ir::Type& t) {
  std::vector<ir::Type> list;
  for (DType d : {DType::boolean, DType::i64, DType::f32})
    if (d != t.dtype) list.emplace_back(d, t.dims, t.device);
  Dims more{ir::Dim(2)}, less = t.dims;
  more.append(t.dims.begin(), t.dims.end());
  list.emplace_back(t.dtype, more, t.device);
  if (!less.empty()) {
    less.pop_back();
    list.emplace_back(t.dtype, less, t.device);
  }
  for (size_t d = 0; d < t.dims.size(); ++d)
    for (int64_t n : {0, 1, 7}) {
      Dims dims = t.dims;
      dims[d] = n;
      list.emplace_back(t.dtype, dims, t.device);
    }
  return list;
}

TEST(Errors, OfTypesNameOperatorAndOperand) {
  int refused = 0;
  for (const Sample& s : all_samples()) {
    const Call call = call_of(s);
    for (size_t i = 0; i < call.operands.size(); ++i) {
      if (!call.operands[i].type) continue;
      for (const ir::Type& type : changes(call.types[i])) {
        Call wrong = call;
        wrong.types[i] = type;
        std::string said = message(s, wrong);
        if (said.empty()) continue;
        ++refused;
        EXPECT_TRUE(said.starts_with(std::string(s.op->name) + ": ")) << said;
        // The operand, or one that it does not go with; and what it is.
        bool operand = call.operands.size() == 1;
        for (size_t k = 0; k < call.operands.size(); ++k)
          operand |= said.find(fmt::format("'{}'", s.op->operand(k).name)) != std::string::npos;
        EXPECT_TRUE(operand) << s.text(DType::f64) << " of" << describe(wrong) << ": " << said;
        EXPECT_TRUE(said.find('[') != std::string::npos)
            << s.text(DType::f64) << " of" << describe(wrong) << ": " << said;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Errors, OfMissingAndOfTooManyOperands) {
  for (const Sample& s : all_samples()) {
    const Call call = call_of(s);
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const ir::OperandSpec& spec = s.op->operand(i);
      if (spec.optional) continue;
      Call wrong = call;
      wrong.operands[i] = {};
      std::string said = message(s, wrong);
      EXPECT_TRUE(said.starts_with(std::string(s.op->name) + ": ")) << s.text(DType::f64) << said;
      EXPECT_NE(said.find(fmt::format("'{}'", spec.name)), std::string::npos) << said;
    }
    if (!s.op->operands.empty() && s.op->operands.back().variadic) continue;
    Call wrong = call;
    ir::Type extra(DType::f64, {ir::Dim(2)});
    while (wrong.operands.size() <= s.op->operands.size()) {
      wrong.operands.push_back({ir::OperandType::Kind::tensor, &extra, {}});
      wrong.types.push_back(extra);
    }
    std::string said = message(s, wrong);
    EXPECT_TRUE(said.starts_with(std::string(s.op->name) + ": ")) << s.text(DType::f64) << said;
  }
}

// Every attribute that can be a number is tried with one that is far off; what is refused is
// refused by name.
TEST(Errors, OfAttributesNameThem) {
  int refused = 0;
  for (const Sample& s : all_samples())
    for (const ir::NamedLiteral& a : s.op->describe())
      for (const char* value : {"99", "-99", "[99]", "[0, 0]", "\"nonsense\"", "true", "none"}) {
        Sample wrong = s;
        // The attribute is replaced where the sample gives it.
        std::string attributes;
        ir::LiteralList given = s.op->write(s.program(DType::f64)->stages[0].nodes[0].attributes);
        for (const ir::NamedLiteral& g : given)
          if (g.name != a.name) attributes += fmt::format("{} = {}, ", g.name, to_string(g.value));
        wrong.attributes = fmt::format("{}{} = {}", attributes, a.name, value);
        try {
          ir::parse(wrong.text(DType::f64), "sample");
        } catch (const Error& e) {
          std::string said = e.what();
          // More or fewer results than are written is another matter.
          if (said.find("result") != std::string::npos) continue;
          ++refused;
          said = said.substr(0, std::min(said.find('\n'), said.find(" [V")));
          EXPECT_NE(said.find(s.op->name), std::string::npos) << wrong.attributes << ": " << said;
          // Or the shape that it does not fit, where there is but one.
          bool named = wrong.slots.size() == 1 && said.find('[') != std::string::npos;
          named |= said.find(fmt::format("'{}'", a.name)) != std::string::npos;
          for (size_t k = 0; k < s.op->operands.size(); ++k)
            named |= said.find(fmt::format("'{}'", s.op->operand(k).name)) != std::string::npos;
          EXPECT_TRUE(named) << wrong.attributes << ": " << said;
        }
      }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace gradus::property
