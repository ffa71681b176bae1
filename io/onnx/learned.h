// What classical models of ai.onnx.ml have in common.
#pragma once

#include "io/onnx/call.h"

namespace gradus::onnx {

// Samples as rows [N, features], floating: of doubles, else f32.
Value sample_rows(Call& call);
// A table of the model's numbers.
Value model_table(Call& call, DType dtype, const Ints& shape, const std::vector<double>& numbers);
// Scores [N, E] after NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT.
Value transformed_scores(Call& call, const Value& scores, const std::string& how);
// The integral labels of the rows' greatest scores. Throws Unsupported for text.
Value best_labels(Call& call, const Value& scores, std::string_view integers,
                  std::string_view texts);

}  // namespace gradus::onnx
