// The inputs of a stage by name: from files, from weights, or random.
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

// Random elements that depend only on the name, the seed and the row-major index. They are the same
// on every machine and for every width of the dtype. Floating elements are samples of N(0, 1),
// rounded to the dtype. Integers and bools are 0 or 1 with equal probability, so that they can
// serve as indices. Throws Error if the number of bytes overflows, ResourceError if there is no
// memory.
Tensor random_tensor(DType dtype, std::span<const int64_t> shape, std::string_view name,
                     uint64_t seed, Context& context);
// Like random_tensor, but uniform in [low, high). Integers are the integers of this interval. Bools
// are true with probability 1/2.
Tensor uniform_tensor(DType dtype, std::span<const int64_t> shape, double low, double high,
                      std::string_view name, uint64_t seed, Context& context);

// Returns the tensor with another dtype, or the tensor itself if it has this dtype. Throws Error,
// which names `what`, if a value would change. NaN converts to NaN.
Tensor convert_exactly(const Tensor& tensor, DType dtype, std::string_view what);

// A tensor that was found by name, and the place where it was found ("weights.npz"), for messages.
struct FoundTensor {
  Tensor tensor;
  std::string origin;
};

// The sources of the inputs of a stage. Every function may be null.
struct InputSources {
  // Returns the tensor of a name, or nullopt. An undefined tensor is an absent cotangent. Called
  // once for each input of a stage.
  std::function<std::optional<FoundTensor>(std::string_view name)> find;
  // Makes an input that `find` does not return. Null: such an input is an error.
  std::function<Tensor(std::string_view name, DType dtype, std::span<const int64_t> shape)> fill;
  // Sizes of dimensions that the found tensors do not determine.
  DimSizes sizes;
  // Makes a size that is otherwise unknown. Null: such a size is an error.
  std::function<int64_t(std::string_view dimension)> guess;
};

// Sources whose `fill` is random_tensor. The context allocates the tensors.
InputSources random_sources(uint64_t seed, std::shared_ptr<Context> context);

// Returns the inputs of the state's next stage, in order. A found tensor is converted to the dtype
// of the input (convert_exactly). The sizes of filled inputs follow from the stages that have run,
// from the found tensors, from `sources.sizes` and from `sources.guess`, in this order.
//
// Throws Error for missing inputs (the message lists all), for unknown or negative sizes, for a
// conversion that changes a value, and for `sources.sizes` that contradict known sizes.
// `State::run` checks ranks and sizes of the tensors.
std::vector<Tensor> find_inputs(const State& state, const InputSources& sources);

}  // namespace gradus

#pragma GCC visibility pop
