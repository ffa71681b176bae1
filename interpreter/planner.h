// Makes a segment's plan, in passes over its instructions: `bind` finds layouts, views and kernels
// (planner.cpp); `share_packings` has what several kernels would rearrange copied once (pack.cpp);
// `fuse` puts one kernel in the place of several (fuse.cpp, fuse_edges.cpp), and one call of a
// device's library in that of two (join_products.cpp); `place_on_device`, where there is one, finds
// code for the rest (on_device.cpp); `lay_out` says where values lie and what happens when
// (lay_out.cpp).
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "fusion/group.h"
#include "interpreter/bind_sizes.h"
#include "interpreter/find_groups.h"
#include "interpreter/plan.h"
#include "interpreter/slots.h"
#include "kernels/kernel_memo.h"

namespace gradus::interpreter {

// A register while the segment is planned.
struct Local {
  // `inside`: only a group's kernel knows it.
  enum class Kind : uint8_t { unknown, absent, constant, tensor, slot, carried, inside };
  static constexpr uint32_t never = UINT32_MAX;
  Kind kind = Kind::unknown;
  Register reg = no_register;
  Register root = no_register;  // whose memory it lies in; itself if it has its own
  int64_t offset = 0;           // bytes from the root's memory
  Layout layout;
  uint32_t last_use = never;  // of a root: the last instruction that touches its memory
  bool leaves = false;        // of a root: a value made in this segment that outlives it
  bool pinned = false;        // of a root: somebody sees it as a tensor
  bool returned = false;
  uint32_t result = UINT32_MAX;  // of the stage's results, the first that it is
  bool before = false;           // there when the segment starts
  bool held = false;             // of a root: a later segment reads its memory
  bool handed_on = false;        // of a root: its last reader's result has its slot now
  uint32_t born = never;         // of a root: the instruction that its memory is taken for
  int64_t slot = 0;              // offset in the buffer; of a carried root, in its segment's block
  int64_t extent = 0;            // of a carried root: how many bytes there
  // Of a carried root of an earlier segment of which a view outlives this one: where in this
  // segment's block its bytes are brought.
  std::optional<int64_t> brought;
  int64_t bytes() const { return layout.numel() * static_cast<int64_t>(size_of(layout.dtype)); }
};

// A kernel's pointer before memory is laid out.
struct BoundArg {
  enum class Kind : uint8_t { null, fixed, value, dropped, packed, faults } kind = Kind::null;
  Register reg = no_register;        // value
  const std::byte* fixed = nullptr;  // a number, or zeros
  int64_t bytes = 0;                 // dropped: of a result that nobody uses
  size_t packing = 0;                // packed: index into Planner::packings_; faults: the first one
};

// A copy of operand 1 of several products, which each would rearrange: made before the first of
// them, gone after the last.
struct SharedPacking {
  Register reg = no_register;        // of what; it lies as the first reader's
  work::Gemm from;                   // the first reader
  SmallVector<uint32_t, 4> readers;  // instructions, ascending
  work::WorkRef copy;
  work::Kernel kernel;
  int64_t slot = 0;  // offset in the buffer
  int64_t bytes() const { return from.k * from.n * static_cast<int64_t>(size_of(from.dtype)); }
};

// An instruction bound to layouts: its work, and code for it once that is made. Both are kept alive
// by the plan.
struct Bound {
  work::WorkRef work;
  work::KernelFunction run = nullptr;
  const void* parameters = nullptr;
  size_t scratch_bytes = 0;
  uint32_t first_arg = 0, args = 0;  // slice of the planner's
  uint32_t group = Local::never;     // index into SegmentPlan::groups of a member
  bool host = false;                 // see Step::host
  bool checks = false;               // makes no result: a group does
  bool later = false;                // on a device: the kernel of its group is being compiled
  // Of a group of one result: what it reads element by element as the result lies. The result may
  // lie there, if nobody reads that any more.
  Register in_place = no_register;
  bool acts() const { return work || run; }
  void set_code(const work::Kernel& code) {
    run = code.run;
    parameters = code.parameters.get();
    scratch_bytes = code.scratch_bytes;
  }
};

class Planner {
 public:
  Planner(const Code& code, size_t segment, std::shared_ptr<const SegmentPlan> previous,
          std::span<const Tensor> inputs, std::vector<int64_t> key, const KernelChoice& choice);
  // Once each, in this order.
  void choose_code();
  std::shared_ptr<SegmentPlan> finish(bool may_be_whole = false);
  // Between the two: whether code is being compiled, or is to be, that the plan does without.
  bool waits_for_code() const;
  void compile_code() const;

 private:
  // What both passes ask. An `index` is an instruction's number in the segment.
  const Instruction& instruction(uint32_t index) const {
    return stage_code_.instructions[segment_.first + index];
  }
  std::span<const Register> results_of(uint32_t index) const {
    const Instruction& i = instruction(index);
    return std::span(stage_code_.results).subspan(i.first_result, i.results);
  }
  // Only what the segment meets: a program has many more registers. References stay good.
  Local& local(Register r);
  // A constant that nobody reads here is not.
  bool is_met(Register r) const {
    return r != no_register && local_numbers_[index_of(r)] != Local::never;
  }
  std::span<const Register> returns() const {
    return segment_.ends_stage ? std::span(stage_code_.returns) : std::span<const Register>();
  }

  // Binding.
  void reserve();
  void check_equalities() const;
  bool known(const ir::Dim& d) const;
  Error error_at(uint32_t index, const std::string& message) const;
  Sizes sizes_of(const ir::Type& type) const;
  const ir::Type& result_type(const Instruction& i, uint32_t k) const;
  void place_inputs();
  void place_tensor(Register r, bool absent, const Layout& layout);
  Local& find(Register r);
  void bind(uint32_t index);
  bool absent_sum(const Instruction& i, uint32_t index);
  void make_view(Register y, Register of, const Layout& layout, int64_t elements, uint32_t index);
  void touch(Register r, uint32_t index);
  void bind_kernel(const Instruction& i, uint32_t index);
  Layout bind_register(Register r, uint32_t index);
  bool bind_constant(const ir::Operand& o, Layout& layout);
  bool is_view_of_absent(const Instruction& i, const ops::BindCall::View& view);
  void zero_views_of_absent(Bound& bound, std::vector<std::pair<size_t, size_t>> fills);
  void place_results(const Instruction& i, uint32_t index, const ops::KernelMemo::Entry& memo);
  static constexpr size_t number_block = 4096;  // bytes of SegmentPlan::numbers' blocks
  std::byte* number_memory();

  // Sharing copies: pack.cpp.
  void share_packings();
  void find_packings();
  void read_packed(size_t packing, uint32_t index);
  void lay_out_packings(uint32_t index);
  void release_packings(uint32_t index);

  // Fusing.
  struct Members {
    SmallVector<const ir::Node*, 16> nodes;
    SmallVector<Register, 16> made, read;  // by the group; read as often as members do
    SmallVector<Register, 16> inputs;      // read, and made elsewhere
    std::vector<Layout> layouts;           // of the inputs
    SmallVector<Register, 16> stored;      // of `made`: read elsewhere; see find_stored
    // Views of `made` that say for each element of a row what the row has.
    std::vector<std::pair<ir::ValueId, ir::ValueId>> aliases;
    std::vector<fusion::Edge> edges;
    SmallVector<uint32_t, 4> edge_instructions;
  };
  void fuse();
  void count_uses();
  const ir::Node& node(uint32_t index) const;
  bool can_fuse(uint32_t index);
  GroupFinder::Loops loops_of(uint32_t index);
  bool repeats_rows(uint32_t index, const GroupFinder& finder, std::span<const uint32_t> maker);
  bool takes_memory(uint32_t index);
  bool waits_too_long(uint32_t index, std::span<const uint32_t> members,
                      std::span<const Register> loads);
  void fuse_members(std::span<const uint32_t> members);
  Members members_of(std::span<const uint32_t> members);
  void fuse_halves(std::span<const uint32_t> members);
  void find_loads(const Instruction& i, Members& m);
  void find_stored(std::span<const uint32_t> members, Members& m);
  std::shared_ptr<const fusion::Kernel> kernel_of(const fusion::Nest& nest,
                                                  const std::string& text);
  bool is_on_its_way(const std::string& nest) const;
  Register find_in_place(const Members& m, const fusion::Nest& nest);
  Local* dying_operand(uint32_t index);
  void place_group(std::span<const uint32_t> members, const Members& m, const fusion::Group& group,
                   std::shared_ptr<const fusion::Kernel> kernel);

  // Code for what is no group.
  void make_code();
  const work::Kernel& code_of(const work::WorkRef& work);

  // On a device: on_device.cpp.
  void join_products();
  bool join_sum(uint32_t index, std::span<const uint32_t> products);
  bool has_row(const Local& row, const Layout& sum) const;
  bool meets_kernels(uint32_t index);
  void place_on_device();
  bool has_results(uint32_t index) const;
  bool make_on_device(uint32_t index);
  void run_on_host(uint32_t index);
  const std::byte* number_there(const std::byte* number);
  const std::byte* constant_there(Register r);
  void send_numbers();
  bool is_recordable() const;

  size_t least_members() const { return choice_.source->wants_single_steps() ? 1 : 2; }

  // Edges of groups: fuse_edges.cpp.
  std::optional<fusion::Edge> edge_at(uint32_t index);
  void find_edges();
  bool add_edge(uint32_t index, GroupFinder& finder, std::span<const uint32_t> makers,
                std::span<const Register> loads);
  const fusion::Edge* edge_of(uint32_t member) const;
  SmallVector<uint32_t, 16> with_edges(std::span<const uint32_t> members, bool none) const;
  void place_edges(const Members& m, const fusion::Group& group, uint32_t last);
  void place_checks(const Members& m);

  // Laying out.
  void find_leaving();
  void leave(Register r);
  void choose_carried();
  void sort_deaths();
  void lay_out(uint32_t index);
  void lay_out_kernel(const Bound& bound, Step& step, uint32_t index);
  void place_result(Register y, uint32_t index);
  void place_view(Register y);
  int64_t carry(int64_t bytes);
  Arg arg_of(Register r);
  void die(Register r);
  void settle_slots();
  void note_peak(uint32_t index, int64_t scratch);
  void record_peak();
  void finish_patches();
  void record_held();
  void hold(Register r);

  const Code& code_;
  size_t number_;
  const Segment& segment_;
  const StageCode& stage_code_;
  std::shared_ptr<SegmentPlan> plan_;
  std::span<const Tensor> inputs_;
  std::span<const Register> input_registers_;
  SizesByName sizes_;
  std::vector<uint32_t> local_numbers_;  // by register: index into locals_
  std::deque<Local> locals_;
  const KernelChoice& choice_;
  std::vector<Bound> bound_;    // by instruction
  std::vector<uint32_t> uses_;  // by local, while groups are made
  // Edges by who stands for them in groups: the instruction, or a view of its result that is all
  // that reads it.
  struct PlacedEdge {
    uint32_t instruction;
    fusion::Edge edge;
  };
  std::map<uint32_t, PlacedEdge> edges_;
  std::vector<bool> seen_by_view_;  // by instruction: a view stands for it
  std::vector<BoundArg> args_;
  std::vector<uint32_t> first_death_;  // by instruction, one more at the end: slices of deaths_
  std::vector<Register> deaths_;
  ops::KernelMemo memo_;
  std::unordered_map<const work::Work*, work::Kernel> made_;  // code that the plan keeps alive
  std::vector<SharedPacking> packings_;                       // by their first readers
  std::vector<std::pair<uint32_t, size_t>> packing_ends_;     // last readers, and whose
  size_t next_packing_ = 0, ended_packings_ = 0;
  int64_t tensor_bytes_ = 0;            // of tensors made here and not let go
  uint32_t peak_index_ = Local::never;  // see SegmentPlan::Peak
  SlotPlan slots_;
  size_t number_at_ = 0;  // in the last of SegmentPlan::numbers
  // What a device reads of the plan's numbers, by block, and of constants.
  std::vector<std::byte*> numbers_there_;
  std::map<Register, const std::byte*> constants_there_;
};

}  // namespace gradus::interpreter
