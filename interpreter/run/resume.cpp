#include <algorithm>
#include <charconv>
#include <cstring>

#include "gradus/files.h"
#include "gradus/messages.h"
#include "interpreter/plan/bind_sizes.h"
#include "interpreter/run/state_file.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

namespace {

// A file that was saved, with what may be asked of it.
class Saved {
 public:
  Saved(const std::string& path, const Code& code) : file_(opened(path)) {
    const std::string* version = find("gradus_state");
    if (!version) fail("it is no saved state");
    if (*version != state_format)
      fail(fmt::format("it is a state of format {}, of a newer release; this one reads {}",
                       printable(*version), state_format));
    if (text("hash") != hash_of(code))
      fail(fmt::format(
          "it is a state of another program ('{}'); resume it with the program, and the memory "
          "budget, that it was saved with",
          printable(text("program"))));
  }
  static SafetensorsFile opened(const std::string& path) {
    try {
      return SafetensorsFile(path);
    } catch (const Error& e) {
      throw Error("{}; a saved state is a file that State::save or gradus run --save-state wrote",
                  e.bare());
    }
  }
  [[noreturn]] void fail(std::string_view why) const { throw Error("{}: {}", file_.path(), why); }
  [[noreturn]] void damaged() const { fail("the saved state is damaged; save it again"); }

  const std::string* find(std::string_view key) const {
    auto it = file_.metadata().find(key);
    return it == file_.metadata().end() ? nullptr : &it->second;
  }
  const std::string& text(std::string_view key) const {
    const std::string* found = find(key);
    if (!found) damaged();
    return *found;
  }
  // The numbers of a line.
  std::vector<int64_t> numbers(std::string_view line) const {
    std::vector<int64_t> list;
    while (!line.empty()) {
      int64_t n = 0;
      auto [end, fault] = std::from_chars(line.data(), line.data() + line.size(), n);
      if (fault != std::errc() || n < 0) damaged();
      list.push_back(n);
      line.remove_prefix(static_cast<size_t>(end - line.data()));
      if (line.starts_with(' ')) line.remove_prefix(1);
    }
    return list;
  }
  bool contains(const std::string& name) const { return file_.contains(name); }
  Tensor read(const std::string& name, Context& context) const {
    if (!file_.contains(name)) damaged();
    return file_.read(name, context);
  }

 private:
  SafetensorsFile file_;
};

// A tensor of which a plan looks at the layout only.
Tensor without_memory(const Layout& layout, Device device) {
  auto storage = make_ref<Storage>(nullptr, static_cast<size_t>(bytes_of(layout)), device, [] {});
  return Tensor(std::move(storage), layout);
}

// What append_input_key made a key of: the segment's inputs, and the count behind them.
class KeyReader {
 public:
  KeyReader(const Saved& saved, const Tensor& key, Device place)
      : saved_(saved),
        place_(place),
        words_(key.data_as<int64_t>(), static_cast<size_t>(key.numel())) {
    if (key.dtype() != DType::i64 || key.rank() != 1) saved_.damaged();
  }
  Tensor tensor() {
    int64_t word = next();
    if (word == -1) return {};
    int64_t dtype = word & 0xff, rank = word >> 8 & 0xffffffff;
    bool contiguous = word >> 40 & 1;
    // Where it ran does not say where it goes on.
    const auto kind = word >> 41 & 1;
    if (dtype >= dtype_count || rank > 64 || word >> (kind ? 58 : 41) != 0) saved_.damaged();
    Sizes shape = sizes(rank);
    if (!checked_numel(shape)) saved_.damaged();
    Layout layout(static_cast<DType>(dtype), std::move(shape));
    if (!contiguous) layout.strides = sizes(rank);
    auto extent = layout.checked_extent();
    if (!extent || *extent > INT64_MAX / 16) saved_.damaged();
    return without_memory(layout, place_);
  }
  int64_t next() {
    if (words_.empty()) saved_.damaged();
    int64_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  bool at_end() const { return words_.empty(); }

 private:
  Sizes sizes(int64_t rank) {
    Sizes list;
    for (int64_t i = 0; i < rank; ++i) {
      list.push_back(next());
      if (list.back() < 0) saved_.damaged();
    }
    return list;
  }
  const Saved& saved_;
  const Device place_;
  std::span<const int64_t> words_;
};

// Plans the segments that ran as they were planned, and gives back what they left.
struct Resume {
  StateData& s;
  const Code& code;
  const Saved& saved;
  std::map<int64_t, Ref<Storage>> pieces;
  std::map<int64_t, Ref<const Handle>> made;

  void plan_segment(size_t n) {
    const Segment& segment = code.segment(n);
    KeyReader key(saved, saved.read(fmt::format("key{}", n), *s.place.context),
                  s.place.kernels.place());
    std::vector<Tensor> inputs;
    std::span<const Register> registers = inputs_of(code, n);
    for (size_t i = 0; i < registers.size(); ++i) inputs.push_back(key.tensor());
    std::optional<int64_t> count;
    if (segment.counts) count = key.next();
    if (!key.at_end() || (count && *count < 0)) saved.damaged();
    if (!segment.begins_stage) check_opaque(n, registers, inputs);
    s.plans[n] = find_plan(s, n, inputs, count);
  }
  // What opaque instructions gave was checked when they ran; a stage's inputs are by the planner.
  void check_opaque(size_t n, std::span<const Register> registers, std::span<const Tensor> inputs) {
    SizesByName sizes(code, s.plans[n - 1]->sizes);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (registers[i] == no_register || !inputs[i].defined()) continue;
      const ir::Type& type = code.type_of(registers[i]);
      if (type.dtype != inputs[i].dtype() ||
          !std::ranges::equal(inputs[i].shape(), sizes_of(type, sizes)))
        saved.damaged();
    }
  }

  void restore(Register r) {
    const SegmentPlan& plan = *s.plans[code.made_in(r)];
    const Held& held = plan.find_held(r);
    if (held.absent) return;
    if (!held.carried) {
      Tensor& t = s.registers[index_of(r)];
      t = s.place.there(tensor(r, held.layout), true);
      s.versions[index_of(r)] = t.version();
      return;
    }
    auto& block = s.blocks[plan.segment];
    if (!block)
      block =
          make_ref<Storage>(s.place.context->allocator(), static_cast<size_t>(plan.block_bytes));
    Tensor t = tensor(r, Layout(held.layout.dtype, held.layout.shape));
    std::byte* to = block->data() + held.carried->memory + held.carried->offset;
    if (t.numel()) copy_elements(t.layout(), t.data(), held.layout, to);
  }
  // A value of this layout, however it was kept when it was saved.
  Tensor tensor(Register r, const Layout& layout) {
    std::string name = fmt::format("c{}", index_of(r));
    if (saved.contains(name)) {
      Tensor t = saved.read(name, *s.place.context);
      if (t.dtype() != layout.dtype || !std::ranges::equal(t.shape(), layout.shape))
        saved.damaged();
      auto memory =
          make_ref<Storage>(s.place.context->allocator(), static_cast<size_t>(bytes_of(layout)));
      Tensor own(std::move(memory), layout);
      if (t.numel()) copy_elements(t.layout(), t.data(), layout, own.mutable_data());
      return own;
    }
    auto line = saved.numbers(saved.text(fmt::format("r{}", index_of(r))));
    if (line.size() != 2) saved.damaged();
    const auto item = static_cast<int64_t>(size_of(layout.dtype));
    Ref<Storage>& memory = pieces[line[0]];
    if (!memory) {
      Tensor bytes = saved.read(fmt::format("m{}", line[0]), *s.place.context);
      auto size = static_cast<size_t>(bytes.numel());
      if (bytes.dtype() != DType::u8) saved.damaged();
      memory = make_ref<Storage>(s.place.context->allocator(), size);
      if (size) std::memcpy(memory->data(), bytes.data(), size);
    }
    if (line[1] % item != 0 || line[1] > static_cast<int64_t>(memory->bytes()) - bytes_of(layout))
      saved.damaged();
    return Tensor(memory, layout, line[1] / item);
  }

  // The handle of a recipe, made anew.
  Ref<const Handle> handle(int64_t n) {
    auto known = made.find(n);
    if (known != made.end()) return known->second;
    std::string_view line = saved.text(fmt::format("recipe{}", n));
    auto word = [&] {
      size_t space = line.find(' ');
      if (space == line.npos) saved.damaged();
      std::string_view w = line.substr(0, space);
      line.remove_prefix(space + 1);
      return w;
    };
    bool is_function = word() == "f";
    SmallVector<bool, 4> marks;
    std::vector<Tensor> operands;
    if (std::string_view m = word(); m != "-")
      for (char c : m) marks.push_back(c == '1');
    if (std::string_view given = word(); given != "-")
      for (size_t i = 0; i < given.size(); ++i)
        operands.push_back(given[i] == '1'
                               ? saved.read(fmt::format("o{}.{}", n, i), *s.place.context).copy()
                               : Tensor());
    if (!is_function) {
      auto parent = saved.numbers(line);
      // A recipe's own come before it.
      if (parent.size() != 1 || parent[0] >= n) saved.damaged();
      Ref<const Handle> of = handle(parent[0]);
      if (operands.size() != of->roots().size() || marks.size() != of->inputs().size())
        saved.damaged();
      return made[n] = evaluate_handle(of, operands, marks, true, s.place.context).handle;
    }
    auto function =
        std::dynamic_pointer_cast<const autograd::CppFunction>(ops::find_function(line));
    if (!function) throw Error(ops::no_function(line));
    if (operands.size() != marks.size() ||
        !std::ranges::all_of(operands, [](const Tensor& t) { return t.defined(); }))
      saved.damaged();
    return made[n] = call_function(*function, operands, marks, true, s.place.context).handle;
  }
};

}  // namespace

void resume(StateData& s, const std::string& path) {
  const Code& code = *s.code;
  const Saved saved(path, code);
  auto stage = saved.numbers(saved.text("stage"));
  if (stage.size() != 1 || stage[0] > static_cast<int64_t>(code.stages())) saved.damaged();
  const size_t next = first_segment_left(code, static_cast<size_t>(stage[0]));
  Resume resumed{s, code, saved, {}, {}};
  for (size_t n = 0; n < next; ++n) {
    s.stage = code.segment(n).stage;
    resumed.plan_segment(n);
  }
  s.stage = static_cast<size_t>(stage[0]);
  for (Register r : registers_left(code, next)) {
    if (!code.is_handle(r)) {
      resumed.restore(r);
    } else if (const std::string* recipe = saved.find(fmt::format("h{}", index_of(r)))) {
      auto number = saved.numbers(*recipe);
      if (number.size() != 1) saved.damaged();
      s.handles[index_of(r)] = resumed.handle(number[0]);
    } else {
      saved.damaged();
    }
  }
}

}  // namespace gradus::interpreter
