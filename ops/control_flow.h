// Loops over graphs of the same file. Passes differentiate and batch them by their graphs
// (ir/passes/loops.h); what a step does is planned once (interpreter/plan/loop.cpp).
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

// What a loop says of its operands, the first of which are carries, and of its steps.
struct LoopForm {
  int64_t carries = 0, sequences = 0;
  std::optional<Dim> length;  // of the sequences, where it is not written
  bool reverse = false;       // the last slice first
  // Lengths of segments, each shorter than the one before. A derivative keeps the carries before
  // each segment, and takes the steps of one again when it comes to it: those of [1] one by one.
  // Empty: it keeps what it reads of every step.
  Ints checkpoint;
  // Instead: how many bytes it may keep, of which lengths follow where sizes are numbers.
  std::optional<int64_t> memory;
};

// The body is a graph of one stage. It takes the carries, a slice of each sequence along its first
// dimension, and the constants; it gives the next carries, then the step's results. The results are
// the last carries, then the steps' results along a new first dimension, each at its step's place.
struct Scan {
  static constexpr std::string_view name = "scan",
                                    doc =
                                        "the steps of a graph: its first results are its first "
                                        "inputs in the next step, others are stacked";
  static constexpr std::array inputs{"x..."sv};  // carries, sequences, constants
  static constexpr std::array results{"y..."sv};
  static constexpr bool loop = true;
  static constexpr auto recompute_cost = ir::again::multiplies;
  struct Attr : LoopForm {
    GraphName body;
    static constexpr auto fields() {
      return std::tuple(required("body", &Attr::body), field("carries", &Attr::carries),
                        field("sequences", &Attr::sequences), field("length", &Attr::length),
                        field("reverse", &Attr::reverse), field("checkpoint", &Attr::checkpoint),
                        field("memory", &Attr::memory));
    }
  };
  static void infer(InferCall&);
  static void compose(ComposeCall&);  // unrolls it; its length has to be a number
};

// A loop whose end depends on data. Both graphs take the operands: what the carries are, then the
// constants. The condition gives a bool[], the body the next carries. `max_trips` bounds the steps:
// a loop that would take more is an Error, which says `failure` where there is one.
struct While {
  static constexpr std::string_view name = "while",
                                    doc =
                                        "the steps of a graph, `body`, for as long as another, "
                                        "`condition`, holds before them: the last carries";
  static constexpr std::array inputs{"x..."sv};  // carries, constants
  static constexpr std::array results{"y..."sv};
  static constexpr bool loop = true;
  static constexpr auto recompute_cost = ir::again::multiplies;
  struct Attr {
    GraphName condition, body;
    int64_t carries = 0;
    std::optional<Dim> max_trips;
    std::optional<std::string> failure;
    Ints checkpoint;  // of the scan that it is where it is differentiated
    static constexpr auto fields() {
      return std::tuple(required("condition", &Attr::condition), required("body", &Attr::body),
                        field("carries", &Attr::carries), field("max_trips", &Attr::max_trips),
                        field("failure", &Attr::failure), field("checkpoint", &Attr::checkpoint));
    }
  };
  static void infer(InferCall&);
  static void compose(ComposeCall&);  // its steps, in a world that has values
};

// Only the graph that the predicate chooses runs.
struct If {
  static constexpr std::string_view name = "if",
                                    doc =
                                        "the results of `then` where the predicate holds, else "
                                        "those of `else`, both of the operands behind it";
  static constexpr std::array inputs{"predicate"sv, "x..."sv};
  static constexpr std::array results{"y..."sv};
  static constexpr bool loop = true;
  static constexpr auto recompute_cost = ir::again::multiplies;
  struct Attr {
    GraphName then, otherwise;
    static constexpr auto fields() {
      return std::tuple(required("then", &Attr::then), required("else", &Attr::otherwise));
    }
  };
  static void infer(InferCall&);
  static void compose(ComposeCall&);  // what runs, in a world that has values
};

// A scan in parts. Borrows the attributes.
struct Loop {
  const LoopForm* form;
  const ir::Graph* body;
  size_t carries, sequences, constants;  // operands, in this order
  size_t first_constant() const { return carries + sequences; }
};
// Nothing of any other node.
std::optional<Loop> loop_in(const Operator& op, const Attributes& attributes, size_t operands);
std::optional<Loop> loop_in(const ir::Node& node);
// A `while` in parts; nothing of any other node.
struct DataLoop {
  const ir::Graph *condition, *body;
  size_t carries;
  // The attributes' own.
  const std::optional<Dim>* max_trips;
  const std::optional<std::string>* failure;
  const Ints* checkpoint;
};
[[noreturn]] void fail_after_most_trips(int64_t trips, const std::optional<std::string>& failure);
std::optional<DataLoop> data_loop_in(const Operator& op, const Attributes& attributes);
// How many steps it takes, by the types of its operands.
Dim steps_of(const LoopForm& form, std::span<const ir::OperandType> operands);

const Operator& scan_operator();
Attributes scan_attributes(LoopForm form, GraphName body);
const Operator& while_operator();
Attributes while_attributes(int64_t carries, GraphName condition, GraphName body,
                            std::optional<Dim> max_trips = std::nullopt, Ints checkpoint = {},
                            std::optional<std::string> failure = std::nullopt);
const Operator& if_operator();
Attributes if_attributes(GraphName then, GraphName otherwise);

// What a graph gives for operands of these types; `part` is what it is of the operator.
SmallVector<Type, 2> types_given(const InferCall& call, std::span<const ir::OperandType> in,
                                 const GraphName& named, std::string_view part);

struct Root;  // solvers.h
struct LinearSolve;
using ControlFlowOperators = std::tuple<Scan, While, If, Root, LinearSolve>;

}  // namespace gradus::ops
