// The reference second derivatives, by forward mode: d(sum <v, g>)/dct is the derivative of the
// outputs along v, and d(sum <v, g>)/dx the Hessian of sum <ct, out> times v.
// SPEC D8
#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/golden/case.h"

namespace gradus::golden {
namespace {

// What PyTorch answers otherwise: see golden_test.cpp.
bool comparable(const Case& c) {
  return c.order() >= 2 && c.has_reference() && c.missing_operators().empty() &&
         c.id() != "edge/prod/2" && c.id() != "op/index/5";
}

Tensor input_of(const Case& c, const std::string& name) {
  for (const Input& i : c.inputs())
    if (i.name == name) return i.value;
  return c.operand(name.starts_with("t_") ? "v." + name.substr(2) : "ct." + name.substr(2));
}

std::vector<Tensor> run(const Case& c, const std::shared_ptr<const Code>& code) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < code->inputs(0); ++i)
    inputs.push_back(input_of(c, code->input_name(0, i)));
  return State(code).run(inputs);
}

// The forward program with y = the sum of all <ct, out>.
std::string summed(const Case& c) {
  std::string text = c.forward_text();
  std::string outputs = text.substr(text.rfind("    return "));
  text.resize(text.size() - outputs.size());
  std::string inputs, sum;
  for (size_t i = 0; i < c.outputs(); ++i) {
    std::string key = fmt::format("ct.{}", i);
    if (!c.has(key) || !c.output_floating(i)) continue;
    Tensor ct = c.operand(key);
    inputs += fmt::format(", %c_{}: {}{}", i, name_of(ct.dtype()), to_string(ct.shape()));
    size_t at = outputs.find('%', outputs.find(fmt::format("o{} = ", i)));
    std::string value = outputs.substr(at, outputs.find_first_of(",\n", at) - at);
    text += fmt::format("    %q{0} = mul({1}, %c_{0})\n    %r{0} = sum(%q{0})\n", i, value);
    text += sum.empty() ? "" : fmt::format("    %s{0} = add({1}, %r{0})\n", i, sum);
    sum = sum.empty() ? fmt::format("%r{}", i) : fmt::format("%s{}", i);
  }
  text.insert(text.find(") {\n    "), inputs);
  return text + "    return y = " + sum + "\n  }\n}\n";
}

TEST(Golden, SecondDerivativesByForwardMode) {
  int ran = 0;
  for (const Json& json : all_cases()) {
    Case c(json, DType::f64);
    if (!comparable(c)) continue;
    SCOPED_TRACE(c.id());
    ir::DirectionOptions options{c.differentiated()};
    auto jvp = Code::compile(ir::jvp(ir::parse(c.forward_text(), c.id()).program(), options));
    auto tangents = run(c, jvp);
    for (size_t i = 0; i < tangents.size(); ++i) {
      const std::string& name = jvp->results(0)[i].name;
      if (!name.starts_with("t_o")) continue;
      std::string key = "ggct." + name.substr(3);
      if (c.has(key)) {
        EXPECT_EQ(c.compare(key, tangents[i]), "");
      }
    }
    auto hvp = Code::compile(ir::hvp(ir::parse(summed(c), c.id()).program(), options));
    auto products = run(c, hvp);
    for (size_t i = 1; i < products.size(); ++i)
      EXPECT_EQ(c.compare("gg." + hvp->results(0)[i].name.substr(4), products[i]), "");
    ++ran;
  }
  EXPECT_GT(ran, 600);
}

}  // namespace
}  // namespace gradus::golden
