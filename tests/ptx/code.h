// A module's decoded form: what the interpreter runs. Data only; made once by the parser and then
// never changed, so that any number of launches may share it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/ptx/shadow.h"
#include "tests/ptx/type.h"

namespace gradus::ptx {

// A warp's lanes, one bit each.
using Mask = uint32_t;
inline constexpr unsigned warp_size = 32;
inline constexpr Mask all_lanes = ~Mask{0};

class Warp;
struct Instruction;

// What an instruction does to the lanes of a mask.
using Run = void (*)(Warp&, const Instruction&, Mask);

// A register of a function: 32 values of `width` bytes each at `offset` of a frame's registers, or
// a lane mask for a predicate (width 0). `index` counts the function's registers.
struct Reg {
  uint32_t offset = 0;
  uint32_t index = no_register;
  uint8_t width = 0;
  static constexpr uint32_t no_register = ~uint32_t{0};
  explicit operator bool() const { return index != no_register; }
};

// param is a call's, entry_param the kernel's.
enum class Space : uint8_t { generic, global, constant, shared, local, param, entry_param };
std::string_view name_of(Space);

struct Instruction {
  static constexpr size_t max_registers = 10;

  Run run = nullptr;
  Reg guard;  // runs in lanes where it holds (does not, if `unless`)
  bool unless = false;
  uint8_t mode = 0;   // what the handler makes of it
  uint8_t count = 0;  // elements of a vector
  Space space{};      // of an access to memory
  Access access{};
  Type type{};
  std::array<Reg, max_registers> r;  // as the instruction writes them, vectors spread out
  int64_t immediate = 0;             // an offset, a target, a number in a table
  uint32_t line = 0;                 // of the PTX
  uint32_t place = 0;                // number in Module's places, 0: none
};

// A variable with an address. Its initial bytes may be fewer than its size; the rest is zeros.
struct Variable {
  std::string name;
  Space space = Space::global;
  uint64_t bytes = 0;
  uint64_t align = 1;
  uint64_t offset = 0;   // in its function's params or locals
  bool dynamic = false;  // extern shared: as long as the launch says
  bool initialised = false;
  std::vector<std::byte> initial;
  struct Pointer {  // where the address of another variable stands in the initial bytes
    uint64_t at;
    uint32_t variable;
    int64_t addend;
  };
  std::vector<Pointer> pointers;
};

// Registers that read as something the program does not write.
enum class Special : uint8_t {
  value,     // a number
  variable,  // the address of a variable, plus a number
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  dynamic_smem_size,
  total_smem_size,
};

struct Fill {
  Reg reg;
  Special what = Special::value;
  uint64_t value = 0;     // or what is added to the address
  uint32_t variable = 0;  // a number in the module's or (locals, params) in the function's list
  bool own = false;       // the function's
};

struct Call {
  uint32_t function = 0;
  std::vector<uint32_t> arguments, results;  // variables of the caller, in the order of the formals
};

struct Function {
  std::string name;
  bool entry = false;
  bool defined = false;  // else only declared
  std::vector<Instruction> code;
  std::vector<Variable> variables;        // params, formal and of calls, and locals
  std::vector<uint32_t> params, results;  // the formal ones, in `variables`
  std::vector<Fill> fills;
  std::vector<Call> calls;
  std::vector<std::vector<uint32_t>> tables;  // of brx.idx
  std::vector<uint32_t> shared;               // module variables in shared memory that it names
  uint32_t register_bytes = 0;
  uint32_t registers = 0;
  uint32_t approximate = 0;     // the first line with an instruction that has no exact result
  uint64_t param_bytes = 0;     // of a call's params, its own and those of calls it makes
  uint64_t argument_bytes = 0;  // of an entry
  uint64_t local_bytes = 0;
  std::array<uint32_t, 3> required_threads{};  // .reqntid; 0: not said
  uint32_t max_threads = 0;                    // .maxntid; 0: not said
};

struct Place {
  uint32_t file = 0, line = 0, column = 0;
};

struct Code {
  std::string text;
  std::vector<Function> functions;
  std::vector<Variable> variables;
  std::vector<Place> places{{}};
  std::unordered_map<uint32_t, std::string> files;

  std::string_view line(uint32_t number) const;
};

}  // namespace gradus::ptx
