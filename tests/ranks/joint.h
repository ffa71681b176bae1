// A program that the ranks of a group run together, here on threads.
#pragma once

#include <functional>
#include <map>

#include "gradus/code.h"
#include "gradus/communicator.h"
#include "gradus/state.h"

namespace gradus::test {

// By stage, then by input or result; by rank outside.
using StageTensors = std::vector<std::vector<Tensor>>;
using RankTensors = std::vector<StageTensors>;

// Names of groups, and for each rank its end of each.
using RankBindings = std::vector<std::map<std::string, std::shared_ptr<Communicator>>>;
// The ranks are one group, which has all these names. Where `late`, calls are done when they are
// waited for.
RankBindings one_group(int ranks, const std::vector<std::string>& names, bool late = false);

// What a rank's context is given on the rank's thread, before its state is made.
using Prepare = std::function<void(Context& context, size_t rank)>;

// Runs every stage on every rank, each rank on a thread of its own. Throws what the first rank that
// fails throws.
RankTensors run_jointly(const std::shared_ptr<const Code>& code, const RankBindings& ranks,
                        const RankTensors& inputs, FusionMode fusion = FusionMode::off,
                        int workers = 1, const Prepare& prepare = nullptr);

// Inputs of all stages up to the last: random, the same on all ranks where the type says so. A size
// is that of the group where the program says so, else 2 and the rank's number.
RankTensors random_inputs(const ir::Graph& graph, int ranks, uint64_t seed);

// The sum over all elements of x and y: of all ranks where the values vary, once where all have
// them, of the sum of the parts where `type` says that y is one.
double inner_product(const ir::Type& type, std::span<const Tensor> x, std::span<const Tensor> y);

}  // namespace gradus::test
