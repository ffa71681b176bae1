// A function between two operators, for tests of opaque instructions.
#pragma once

#include "tests/functions.h"
#include "tests/interpreter/support.h"

namespace gradus::test {

class OpaqueTest : public testing::Test {
 public:
  static void SetUpTestSuite() { register_test_functions(); }
  // No test sees the faults that another asked for, whatever their order and process.
  OpaqueTest() { disarm_faults(); }
};

// y = function(exp(x)) times `factor`, a number or %a, which is exp(x).
inline std::string calling(const std::string& function, const std::string& factor = "1.0") {
  return fmt::format(R"(graph g {{
  stage 0 (%x: f64[N]) {{
    %a = exp(%x)
    %s = cpp_op(%a) {{name = "{}"}}
    %y = mul(%s, {})
    return %y
  }}
}})",
                     function, factor);
}

}  // namespace gradus::test
