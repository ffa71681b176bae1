// A program file with its cases: what to feed it, and what comes out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Uniform in [low, high), of the declared type and sizes, from the seed and the input's name.
struct RandomInput {
  double low = 0, high = 1;
  uint64_t seed = 0;
};

struct CaseInput {
  std::string name;                         // of an input of any stage
  std::variant<Tensor, RandomInput> value;  // an undefined tensor is an absent cotangent
  SourceLocation where;
};

struct CaseExpectation {
  enum class Kind : uint8_t { value, none, undefined } kind = Kind::value;
  std::string name;             // of a result
  std::optional<size_t> stage;  // where several stages have a result of that name
  Tensor value;
  // |got - expected| <= tolerance * max(1, |expected|); 0 asks for the same bits.
  double tolerance = 0;
  SourceLocation where;
};

struct CaseDifferentiation {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  bool total = false;
};

struct CaseGradcheck {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  uint64_t seed = 0;
  std::optional<double> tolerance;
};

struct Case {
  std::string name;
  size_t graph = 0;  // index into Module::graphs
  SourceLocation where;
  std::vector<std::pair<std::string, int64_t>> sizes;  // of dimensions, where inputs do not say
  std::vector<CaseInput> inputs;                       // those left out are drawn at random
  std::vector<CaseExpectation> expectations;
  std::optional<CaseDifferentiation> differentiate;  // stages appended before it runs
  std::optional<CaseGradcheck> gradcheck;
  std::optional<std::string> error;  // it fails with a message that holds this
};

struct Fixture {
  Module module;
  std::vector<Case> cases;
};

// How far a result of this dtype may be off where a case does not say: 1e-12 for f64, 1e-5 for f32,
// 1e-3 and 1e-2 for f16 and bf16, 0 for integers.
double default_tolerance(DType dtype);

}  // namespace gradus::ir

#pragma GCC visibility pop
