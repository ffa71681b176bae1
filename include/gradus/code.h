// Declares Code, a program that is compiled to register instructions. A code is immutable and
// serves any number of states.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/passes.h"
#include "gradus/small_vector.h"

namespace gradus {
class Compiler;
namespace interpreter {
class PlanCache;
}
}  // namespace gradus

#pragma GCC visibility push(default)

namespace gradus {

namespace autograd {
class CppFunction;
}

// The place of one value in a state. Every value that is used has a register.
enum class Register : uint32_t {};
inline constexpr Register no_register = static_cast<Register>(UINT32_MAX);
constexpr uint32_t index_of(Register r) { return static_cast<uint32_t>(r); }

class Code;

// One instruction of a stage: an operator with its operands and results as registers.
struct Instruction {
  enum class Kind : uint8_t {
    kernel,     // R[results] := op(R[operands])
    constant,   // R[result] := a tensor of the program
    undefined,  // R[result] := absent
    function,   // R[results], handle := f(R[operands]), f a function of the user
    eval,       // R[results], handle := gradients of a handle, computed by the engine
  };
  Kind kind = Kind::kernel;
  const ir::Operator* op = nullptr;
  ir::Attributes attributes;
  uint32_t first_operand = 0, operands = 0;  // slice of StageCode::operands and ::frees
  uint32_t first_result = 0, results = 0;    // slice of StageCode::results
  uint32_t node = 0;                         // index of the node in the lowered stage
  uint32_t opaque = 0;                       // index into StageCode::opaque, for function and eval
  // For an operator that runs graphs: the code of the graphs that its attributes name.
  std::vector<std::shared_ptr<const Code>> bodies;
  SourceLocation where;  // in the program's text
  bool is_opaque() const { return kind == Kind::function || kind == Kind::eval; }
};

// The data that only an opaque instruction has. Its tensor operands and results are stored like
// those of other instructions. The last operand of an eval is the handle that it evaluates.
struct OpaqueInstruction {
  std::string what;                                       // for messages, such as "cpp_op 'swish'"
  std::shared_ptr<const autograd::CppFunction> function;  // null for an eval
  SmallVector<bool, 4> requires_grad;                     // for a function, by operand
  uint32_t tensors = 0;                                   // number of results that are tensors
  // For an eval, by tensor result: whether the result, or the handle, uses it.
  SmallVector<bool, 4> wanted;
  Register handle = no_register;  // the handle that it returns, if any instruction uses it
};

// An operand: a register, or one of the stage's constants, which are numbers, sizes and `none`.
struct CodeOperand {
  Register reg = no_register;
  uint32_t constant = 0;  // index into StageCode::constants, if there is no register
};

// A part of a stage that is planned and run together: an opaque instruction, if any, and the
// instructions up to the next opaque one. A stage has one segment, plus one for each opaque
// instruction, and one for each size that data determine. Such a size is a size of the result of
// the segment's first instruction.
struct Segment {
  uint32_t stage = 0;
  uint32_t first = 0, end = 0;     // instructions, without the opaque one
  std::optional<uint32_t> opaque;  // the instruction before `first`
  std::optional<uint32_t> counts;  // the dimension (of Code::dimensions()) that data determine
  bool begins_stage = true, ends_stage = true;
};

// The compiled form of one stage.
struct StageCode {
  std::vector<Register> inputs;  // no_register: the input is never used and never held
  std::vector<OpaqueInstruction> opaque;
  uint32_t first_segment = 0, segments = 1;
  // If there are opaque instructions: the tensors of earlier stages that the stage reads.
  std::vector<Register> outer;
  std::vector<Instruction> instructions;
  std::vector<CodeOperand> operands;
  std::vector<ir::Operand> constants;
  // Whether the register is released after the instruction. Set once per register.
  std::vector<bool> frees;
  std::vector<Register> results;  // of instructions; no_register: dropped at once
  std::vector<Register> returns;  // of the stage; no_register: a structural zero
  std::vector<bool> return_frees;
  // Sizes that types could not prove equal, each pair once for the whole code, and the source
  // location of the node that requires each. They are checked when the sizes are known, also if the
  // node was removed.
  std::vector<ir::DimEquality> equalities;
  std::vector<SourceLocation> equality_places;
};

// A pass of the caller. `run` throws Error for a graph that it does not accept.
struct CompilePass {
  std::string name;
  std::function<void(ir::Graph&)> run;
};

// Options of Code::compile.
struct CompileOptions {
  ir::DumpHook dump;  // called after each pass
  // The limit on the memory that is held between stages, see gradus/passes.h. Later stages
  // recompute values to keep the limit. It holds for inputs of the sizes that the budget states.
  // Inputs of other sizes run as well, without a limit. Code::compile throws Error if the limit
  // cannot be kept.
  std::optional<ir::MemoryBudget> memory_budget;
  // Replaces exp, tanh, sigmoid and silu by fast_exp, fast_tanh, fast_sigmoid and fast_silu after
  // lowering, also in derivatives and in the graphs of loops. In f32, f16 and bf16 the results are
  // within 4 ulp of f32 in place of 1. They have other bits, which are the same in every engine. In
  // f64 nothing changes.
  bool fast_functions = false;
  // Run in this order on the verified program before lowering. The result of each pass is verified.
  // If it is invalid, Code::compile throws an Error that names the pass.
  std::vector<CompilePass> passes;
};

// The data of a program that communicates with other ranks.
struct RankProgram {
  std::vector<std::string> groups;  // names of groups, in alphabetical order
  uint64_t fingerprint = 0;         // of the program's text
  // The program sends or receives messages, so other ranks may run another program.
  bool messages = false;
};

// A compiled program. Thread-safe: only a cache of plans changes, which has a lock.
class Code {
 public:
  // Verifies a copy of the graph, lowers it and compiles it. Throws an Error with a source
  // location.
  static std::shared_ptr<const Code> compile(const ir::Graph& graph,
                                             const CompileOptions& options = {});
  ~Code();
  Code(const Code&) = delete;

  size_t stages() const { return stages_.size(); }
  size_t registers() const { return register_values_.size(); }
  const StageCode& stage(size_t s) const { return stages_[s]; }
  // The lowered program, from which the instructions are made.
  const ir::Graph& graph() const { return graph_; }

  // The signature of a stage.
  size_t inputs(size_t stage) const { return graph_.stages[stage].inputs.size(); }
  const std::string& input_name(size_t stage, size_t i) const;
  const ir::Type& input_type(size_t stage, size_t i) const;
  const std::vector<ir::Result>& results(size_t stage) const {
    return graph_.stages[stage].results;
  }

  ir::ValueId value_of(Register r) const { return register_values_[index_of(r)]; }
  const ir::Type& type_of(Register r) const { return graph_[value_of(r)].type; }
  // The name of the register's value, such as "%h", or a generated name for a value without one.
  std::string name_of(Register r) const;
  // The tensor of a register that a `constant` instruction sets. Undefined for other registers.
  const Tensor& constant(Register r) const { return constants_[index_of(r)]; }
  bool is_handle(Register r) const { return !type_of(r).is_tensor(); }
  bool has_handles() const { return has_handles_; }
  // Null for a program that uses no group of ranks.
  const RankProgram* rank_program() const { return rank_program_.get(); }
  // Whether the program, or a graph that it runs, calls functions with possible side effects: the
  // user's functions, or exchanges with other ranks.
  bool calls_functions() const { return calls_functions_; }
  // The segments of all stages, in order.
  size_t segments() const { return segments_.size(); }
  const Segment& segment(size_t s) const { return segments_[s]; }
  // The segment that sets the register. The inputs of a stage belong to its first segment. The
  // results of an opaque instruction belong to the segment that begins with the instruction.
  uint32_t made_in(Register r) const { return made_in_[index_of(r)]; }
  // The last segment that reads the register, as an operand or as a result.
  uint32_t last_segment(Register r) const { return last_segment_[index_of(r)]; }
  // Whether a later stage reads the register.
  bool outlives_stage(Register r, size_t stage) const {
    return segments_[last_segment(r)].stage > stage;
  }
  // Whether the register's value must be a tensor: a stage returns it, or an opaque instruction
  // reads it.
  bool is_seen(Register r) const { return seen_[index_of(r)]; }
  // The segments of which no value is read after this segment.
  std::span<const uint32_t> settled_after(size_t segment) const { return settled_[segment]; }
  // Names of dimensions, in the order of the sizes in a plan.
  const std::vector<std::string>& dimensions() const { return dimensions_; }
  // The index of a name in `dimensions()`. nullopt if no input has a dimension of this name.
  std::optional<size_t> dimension_index(std::string_view name) const {
    auto it = dimension_index_.find(name);
    return it == dimension_index_.end() ? std::nullopt : std::optional(it->second);
  }

  interpreter::PlanCache& plans() const { return *plans_; }

 private:
  friend class Compiler;
  Code();
  ir::Graph graph_;
  std::vector<StageCode> stages_;
  std::vector<ir::ValueId> register_values_;
  std::vector<Tensor> constants_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> made_in_, last_segment_;   // by register
  std::vector<bool> seen_;                         // by register
  std::vector<SmallVector<uint32_t, 1>> settled_;  // by segment
  bool has_handles_ = false, calls_functions_ = false;
  std::vector<std::string> dimensions_;
  std::map<std::string, size_t, std::less<>> dimension_index_;
  std::unique_ptr<const RankProgram> rank_program_;
  std::unique_ptr<interpreter::PlanCache> plans_;
};

// Formats the compiled stages as text: instructions with registers, releases and source locations.
// `gradus disasm` prints it.
std::string disassemble(const Code& code);

}  // namespace gradus

#pragma GCC visibility pop
