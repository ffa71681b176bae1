// Code: a program compiled to register instructions. Immutable, shared by any number of states.
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

// A register: where a state keeps one value. Every used value of the program has one.
enum class Register : uint32_t {};
inline constexpr Register no_register = static_cast<Register>(UINT32_MAX);
constexpr uint32_t index_of(Register r) { return static_cast<uint32_t>(r); }

class Code;

struct Instruction {
  enum class Kind : uint8_t {
    kernel,     // R[results] := op(R[operands])
    constant,   // R[result] := a tensor of the program
    undefined,  // R[result] := absent
    function,   // R[results], handle := f(R[operands]), f the user's
    eval,       // R[results], handle := gradients of a handle, by the engine
  };
  Kind kind = Kind::kernel;
  const ir::Operator* op = nullptr;
  ir::Attributes attributes;
  uint32_t first_operand = 0, operands = 0;  // slice of StageCode::operands and ::frees
  uint32_t first_result = 0, results = 0;    // slice of StageCode::results
  uint32_t node = 0;                         // of the lowered stage
  uint32_t opaque = 0;                       // index into StageCode::opaque; function and eval
  // Of what runs graphs: those that its attributes name.
  std::vector<std::shared_ptr<const Code>> bodies;
  SourceLocation where;  // in the program's text
  bool is_opaque() const { return kind == Kind::function || kind == Kind::eval; }
};

// What is particular to an opaque instruction. Its tensor operands and results are as any others';
// an eval's last operand is the handle it evaluates.
struct OpaqueInstruction {
  std::string what;                                       // "cpp_op 'swish'", for messages
  std::shared_ptr<const autograd::CppFunction> function;  // null for an eval
  SmallVector<bool, 4> requires_grad;                     // of a function, by operand
  uint32_t tensors = 0;                                   // results that are tensors
  SmallVector<bool, 4> wanted;    // of an eval, by tensor result: used, or by its handle
  Register handle = no_register;  // that it leaves, if anybody uses it
};

// A register, or one of the stage's constants: a number, a size, or `none`.
struct CodeOperand {
  Register reg = no_register;
  uint32_t constant = 0;  // index into StageCode::constants where there is no register
};

// What is planned and run in one go: an opaque instruction, if any, and the others up to the next
// one. A stage is one segment, and one more for each opaque instruction and for each size that data
// settles: that of the first instruction's result then.
struct Segment {
  uint32_t stage = 0;
  uint32_t first = 0, end = 0;     // instructions without the opaque one
  std::optional<uint32_t> opaque;  // the instruction before `first`
  std::optional<uint32_t> counts;  // the dimension (of Code::dimensions()) that data settles
  bool begins_stage = true, ends_stage = true;
};

struct StageCode {
  std::vector<Register> inputs;  // no_register: never used, never held
  std::vector<OpaqueInstruction> opaque;
  uint32_t first_segment = 0, segments = 1;
  // Where there are opaque instructions: the tensors of earlier stages that the stage reads.
  std::vector<Register> outer;
  std::vector<Instruction> instructions;
  std::vector<CodeOperand> operands;
  std::vector<ir::Operand> constants;
  std::vector<bool> frees;  // the register is released after the instruction; once per register
  std::vector<Register> results;  // of instructions; no_register: dropped at once
  std::vector<Register> returns;  // of the stage; no_register: a structural zero
  std::vector<bool> return_frees;
  // Sizes that types could not prove equal, each pair once for the whole code; checked when they
  // are known, whether or not the node that asks for it is still there. With that node's place.
  std::vector<ir::DimEquality> equalities;
  std::vector<SourceLocation> equality_places;
};

// A pass of an embedder's own. Throws Error for what it cannot have.
struct CompilePass {
  std::string name;
  std::function<void(ir::Graph&)> run;
};

struct CompileOptions {
  ir::DumpHook dump;  // called after each pass
  // How much may be held between stages, see gradus/passes.h: later stages compute again
  // what would be more. For inputs of these sizes; others are run as well, and hold what they do.
  // An Error where the budget cannot be kept.
  std::optional<ir::MemoryBudget> memory_budget;
  // Run on the verified program before it is lowered, in this order. What each leaves is verified:
  // an Error that names the pass.
  std::vector<CompilePass> passes;
};

// Of a program that speaks to other ranks.
struct RankProgram {
  std::vector<std::string> groups;  // in the order of names
  uint64_t fingerprint = 0;         // of its text
  bool messages = false;            // it sends or receives: other ranks may run another program
};

// Thread-safe: nothing in it changes but a cache of plans, which guards itself.
class Code {
 public:
  // Verifies a copy of the graph, lowers and compiles it. Throws Error with a place.
  static std::shared_ptr<const Code> compile(const ir::Graph& graph,
                                             const CompileOptions& options = {});
  ~Code();
  Code(const Code&) = delete;

  size_t stages() const { return stages_.size(); }
  size_t registers() const { return register_values_.size(); }
  const StageCode& stage(size_t s) const { return stages_[s]; }
  // The lowered program that the instructions come from.
  const ir::Graph& graph() const { return graph_; }

  // A stage's signature.
  size_t inputs(size_t stage) const { return graph_.stages[stage].inputs.size(); }
  const std::string& input_name(size_t stage, size_t i) const;
  const ir::Type& input_type(size_t stage, size_t i) const;
  const std::vector<ir::Result>& results(size_t stage) const {
    return graph_.stages[stage].results;
  }

  ir::ValueId value_of(Register r) const { return register_values_[index_of(r)]; }
  const ir::Type& type_of(Register r) const { return graph_[value_of(r)].type; }
  // "%h", or a made-up name for a value that has none.
  std::string name_of(Register r) const;
  // The tensor of a `constant` instruction's register, undefined for others.
  const Tensor& constant(Register r) const { return constants_[index_of(r)]; }
  bool is_handle(Register r) const { return !type_of(r).is_tensor(); }
  bool has_handles() const { return has_handles_; }
  // Null for a program that speaks to no group of ranks.
  const RankProgram* rank_program() const { return rank_program_.get(); }
  // Whether it, or a graph that it runs, calls what may act: the user's functions, other ranks.
  bool calls_functions() const { return calls_functions_; }
  // The segments of all stages, in order.
  size_t segments() const { return segments_.size(); }
  const Segment& segment(size_t s) const { return segments_[s]; }
  // The segment that makes the register; a stage's inputs are made by its first one, what an opaque
  // instruction gives by the one that begins with it.
  uint32_t made_in(Register r) const { return made_in_[index_of(r)]; }
  // The last segment that reads the register (as operand or result).
  uint32_t last_segment(Register r) const { return last_segment_[index_of(r)]; }
  // Whether a later stage reads it.
  bool outlives_stage(Register r, size_t stage) const {
    return segments_[last_segment(r)].stage > stage;
  }
  // Whether somebody sees it as a tensor: a stage returns it, or an opaque instruction takes it.
  bool is_seen(Register r) const { return seen_[index_of(r)]; }
  // The segments of whose values nothing is read after this one.
  std::span<const uint32_t> settled_after(size_t segment) const { return settled_[segment]; }
  // Names of dimensions in the order in which plans keep their sizes.
  const std::vector<std::string>& dimensions() const { return dimensions_; }
  // Its index there; nullopt for a name of no input.
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

// The compiled stages as text: instructions with registers, frees and places; for `gradus disasm`.
std::string disassemble(const Code& code);

}  // namespace gradus

#pragma GCC visibility pop
