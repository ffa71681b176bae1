// A stage's inputs bound by name: from files, from weights, or at random.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/state.h"

#pragma GCC visibility push(default)

namespace gradus {

// Elements that depend on the name, the seed and their row-major index alone: the same on every
// machine, whatever the dtype's width. Floating ones are N(0, 1), rounded to the dtype; integers
// and bools are 0 or 1 with equal chance, so that they may stand for an index.
// Throws Error for sizes that overflow, ResourceError for no memory.
Tensor random_tensor(DType dtype, std::span<const int64_t> shape, std::string_view name,
                     uint64_t seed, Context& context);
// The same, uniform in [low, high): integers among those in it, bools by whether a uniform number
// is nearer to `high`.
Tensor uniform_tensor(DType dtype, std::span<const int64_t> shape, double low, double high,
                      std::string_view name, uint64_t seed, Context& context);

// The same values as `dtype`. Throws Error, which names `what`, if a value would change (NaN stays
// NaN): precision is never dropped behind the user's back.
Tensor convert_exactly(const Tensor& tensor, DType dtype, std::string_view what);

// A tensor that a name stands for, and where it was found, for messages ("weights.npz").
struct FoundTensor {
  Tensor tensor;
  std::string origin;
};

struct InputSources {
  // The tensor of that name, if there is one; it may be undefined, an absent cotangent. Called once
  // for each input of a stage.
  std::function<std::optional<FoundTensor>(std::string_view name)> find;
  // Makes an input that is not found; null: it is missing.
  std::function<Tensor(std::string_view name, DType dtype, std::span<const int64_t> shape)> fill;
  // Sizes of dimensions that the tensors found do not settle.
  DimSizes sizes;
  // Makes a size that nothing else settles; null: it is an Error.
  std::function<int64_t(std::string_view dimension)> guess;
};

// `fill` by random_tensor with memory of the context's.
InputSources random_sources(uint64_t seed, std::shared_ptr<Context> context);

// The inputs of the state's next stage, in order. A tensor found is converted to the input's dtype
// if no value changes; sizes of filled ones follow from the stages that have run, from the tensors
// found, and from `sources.sizes`, in this order.
// Throws Error for inputs that are missing (all are listed), sizes that are not known, and
// `sources.sizes` that contradict what is known. Ranks and sizes of tensors are the state's to
// check.
std::vector<Tensor> find_inputs(const State& state, const InputSources& sources);

}  // namespace gradus

#pragma GCC visibility pop
