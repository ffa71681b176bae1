// Saving a state, and resuming it: a .safetensors file of what later stages read.
//
// metadata  gradus_state    the format's version
//           program, hash   its name; what its lowered text hashes to
//           stage           that runs next
//           h<r>            of a register with a handle: the recipe that makes it
//           recipe<i>       how a handle is made anew: see `Recipes`
//           r<r>            of a register: the piece of memory it lies in, and where (bytes)
// tensors   key<s>          the key of segment s's plan, from which it is planned again
//           m<k>            a piece of memory that registers share
//           c<r>            the elements of a register that is carried in a block
//           o<i>.<n>        operand n of recipe i
#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "interpreter/bind_sizes.h"
#include "interpreter/state_impl.h"
#include "ir/text/printer.h"
#include "ops/function.h"
#include "tensor/safetensors.h"

namespace gradus {

using interpreter::Handle;
using interpreter::Held;
using interpreter::SegmentPlan;

namespace {

constexpr std::string_view format_version = "1";
// A piece of memory begins at a multiple of this in its storage, and in the file.
constexpr int64_t piece_alignment = 64;

using Metadata = std::map<std::string, std::string, std::less<>>;

// Fowler, Noll and Vo's hash (FNV-1a) of the lowered program: registers are those of its compiler.
std::string hash_of(const Code& code) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : ir::print(code.graph())) h = (h ^ c) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

int64_t bytes_of(const Layout& l) { return l.extent() * static_cast<int64_t>(size_of(l.dtype)); }

size_t first_segment_left(const Code& code, size_t stage) {
  return stage < code.stages() ? code.stage(stage).first_segment : code.segments();
}

// Registers that the stages left read, made by those that ran.
std::vector<Register> registers_left(const Code& code, size_t next) {
  std::vector<Register> list;
  for (uint32_t n = 0; n < code.registers(); ++n) {
    auto r = static_cast<Register>(n);
    if (!code.constant(r).defined() && code.made_in(r) < next && code.last_segment(r) >= next)
      list.push_back(r);
  }
  return list;
}

// Handles as the calls that made them. A line is "f <marks> <operands> <name>" or
// "e <wanted> <cotangents> <recipe of the handle evaluated>"; marks and wanted are a digit each,
// the operands too: 1 where there is one (an absent cotangent: 0), '-' for none at all.
class Recipes {
 public:
  Recipes(Metadata& metadata, std::vector<std::pair<std::string, Tensor>>& tensors)
      : metadata_(metadata), tensors_(tensors) {}

  // Its number. Throws Error, naming the handle, for one that cannot be made anew.
  size_t add(const Handle& handle, const std::string& name) {
    auto known = numbers_.find(&handle);
    if (known != numbers_.end()) return known->second;
    const Handle::Recipe* recipe = handle.recipe();
    if (!recipe)
      throw Error(
          "the state holds handle '{}' of '{}', which cannot be saved: the function is not "
          "registered as replayable; save before the stage that calls it, or after the last one "
          "that evaluates it",
          name, printable(handle.function()));
    std::string parent = recipe->evaluated ? std::to_string(add(*recipe->evaluated, name)) : "";
    size_t n = numbers_.size();
    numbers_.emplace(&handle, n);
    std::string marks, given;
    for (bool mark : recipe->marks) marks += mark ? '1' : '0';
    for (size_t i = 0; i < recipe->operands.size(); ++i) {
      const Tensor& t = recipe->operands[i];
      given += t.defined() ? '1' : '0';
      if (!t.defined()) continue;
      if (t.version() != recipe->versions[i])
        throw Error("an operand of '{}' was changed in place, and handle '{}' needs it",
                    printable(handle.function()), name);
      tensors_.emplace_back(fmt::format("o{}.{}", n, i), t);
    }
    metadata_[fmt::format("recipe{}", n)] =
        fmt::format("{} {} {} {}", recipe->evaluated ? 'e' : 'f', marks.empty() ? "-" : marks,
                    given.empty() ? "-" : given, recipe->evaluated ? parent : handle.function());
    return n;
  }

 private:
  Metadata& metadata_;
  std::vector<std::pair<std::string, Tensor>>& tensors_;
  std::map<const Handle*, size_t> numbers_;
};

// Registers' tensors by the memory they share, of which what they look at is written.
class Pieces {
 public:
  void add(Register r, const Tensor& t) {
    auto [place, fresh] = places_.try_emplace(t.storage().get(), pieces_.size());
    if (fresh) pieces_.emplace_back();
    Piece& p = pieces_[place->second];
    auto begin = t.offset() * static_cast<int64_t>(size_of(t.dtype()));
    if (p.registers.empty()) p.begin = p.end = begin;
    p.storage = t.storage();
    p.begin = std::min(p.begin, begin / piece_alignment * piece_alignment);
    p.end = std::max(p.end, begin + bytes_of(t.layout()));
    p.registers.emplace_back(r, begin);
  }
  void write(Metadata& metadata, std::vector<std::pair<std::string, Tensor>>& tensors) const {
    size_t n = 0;
    for (const Piece& p : pieces_) {
      int64_t size = (p.end - p.begin + piece_alignment - 1) / piece_alignment * piece_alignment;
      Tensor bytes = Tensor::zeros(DType::u8, Sizes{size});
      if (p.end > p.begin)
        std::memcpy(bytes.mutable_data(), p.storage->data() + p.begin,
                    static_cast<size_t>(p.end - p.begin));
      tensors.emplace_back(fmt::format("m{}", n), std::move(bytes));
      for (auto [r, begin] : p.registers)
        metadata[fmt::format("r{}", index_of(r))] = fmt::format("{} {}", n, begin - p.begin);
      ++n;
    }
  }

 private:
  struct Piece {
    Ref<Storage> storage;
    int64_t begin = 0, end = 0;  // in bytes
    std::vector<std::pair<Register, int64_t>> registers;
  };
  std::vector<Piece> pieces_;  // in the order of their first registers
  std::map<const Storage*, size_t> places_;
};

}  // namespace

void State::save(const std::string& path) const {
  Occupy occupy(impl_->running);
  const Impl& s = *impl_;
  const Code& code = *s.code;
  if (s.poisoned)
    throw Error("{}: the state is poisoned ({}): there is nothing to save", path, s.poison);
  const size_t next = first_segment_left(code, s.stage);
  Metadata metadata{{"gradus_state", std::string(format_version)},
                    {"program", code.graph().name},
                    {"hash", hash_of(code)},
                    {"stage", std::to_string(s.stage)}};
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (size_t n = 0; n < next; ++n) {
    const auto& key = s.plans[n]->key;
    Tensor t = Tensor::empty(DType::i64, Sizes{static_cast<int64_t>(key.size())});
    if (!key.empty()) std::memcpy(t.mutable_data(), key.data(), key.size() * sizeof(int64_t));
    tensors.emplace_back(fmt::format("key{}", n), std::move(t));
  }
  Recipes recipes(metadata, tensors);
  Pieces pieces;
  for (Register r : registers_left(code, next)) {
    if (code.is_handle(r)) {
      if (const auto& handle = s.handles[index_of(r)])
        metadata[fmt::format("h{}", index_of(r))] =
            std::to_string(recipes.add(*handle, code.name_of(r)));
      continue;
    }
    const SegmentPlan& plan = *s.plans[code.made_in(r)];
    const Held& held = plan.find_held(r);
    if (held.absent) continue;
    if (!held.carried) {
      s.check_version(r, plan);
      pieces.add(r, s.registers[index_of(r)]);
      continue;
    }
    Tensor t = Tensor::empty(held.layout.dtype, held.layout.shape);
    const std::byte* from =
        s.blocks[code.made_in(r)]->data() + held.carried->memory + held.carried->offset;
    if (t.numel()) copy_elements(held.layout, from, t.layout(), t.mutable_data());
    tensors.emplace_back(fmt::format("c{}", index_of(r)), std::move(t));
  }
  pieces.write(metadata, tensors);
  write_safetensors(path, tensors, metadata);
}

namespace {

// A file that was saved, with what may be asked of it.
class Saved {
 public:
  Saved(const std::string& path, const Code& code) : file_(path), code_(code) {
    const std::string* version = find("gradus_state");
    if (!version) fail("it is no saved state");
    if (*version != format_version)
      fail(fmt::format("it is a state of format {}, of a newer release; this one reads {}",
                       printable(*version), format_version));
    if (text("hash") != hash_of(code))
      fail(fmt::format("it is a state of another program ('{}', not '{}' as it is now)",
                       printable(text("program")), code.graph().name));
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
  const Code& code_;
};

// A tensor of which a plan looks at the layout only.
Tensor without_memory(const Layout& layout, Device device) {
  auto storage = make_ref<Storage>(nullptr, static_cast<size_t>(bytes_of(layout)), device, [] {});
  return Tensor(std::move(storage), layout);
}

// What append_input_key made a key of: the segment's inputs, and the count behind them.
class KeyReader {
 public:
  KeyReader(const Saved& saved, const Tensor& key)
      : saved_(saved), words_(key.data_as<int64_t>(), static_cast<size_t>(key.numel())) {
    if (key.dtype() != DType::i64 || key.rank() != 1) saved_.damaged();
  }
  Tensor tensor() {
    int64_t word = next();
    if (word == -1) return {};
    int64_t dtype = word & 0xff, rank = word >> 8 & 0xffffffff;
    bool contiguous = word >> 40 & 1;
    // Of a device there is nothing to be resumed.
    if (dtype >= dtype_count || rank > 64 || word >> 41 != 0) saved_.damaged();
    Layout layout(static_cast<DType>(dtype), sizes(rank));
    if (!checked_numel(layout.shape)) saved_.damaged();
    if (!contiguous) layout.strides = sizes(rank);
    auto extent = layout.checked_extent();
    if (!extent || *extent > INT64_MAX / 16) saved_.damaged();
    return without_memory(layout, Device());
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
  std::span<const int64_t> words_;
};

}  // namespace

// Plans the segments that ran as they were planned, and gives back what they left.
struct State::Resume {
  Impl& s;
  const Code& code;
  const Saved& saved;
  std::map<int64_t, Ref<Storage>> pieces;
  std::map<int64_t, Ref<const Handle>> made;

  void plan_segment(size_t n) {
    const Segment& segment = code.segment(n);
    KeyReader key(saved, saved.read(fmt::format("key{}", n), *s.context));
    std::vector<Tensor> inputs;
    std::span<const Register> registers = interpreter::inputs_of(code, n);
    for (size_t i = 0; i < registers.size(); ++i) inputs.push_back(key.tensor());
    std::optional<int64_t> count;
    if (segment.counts) count = key.next();
    if (!key.at_end() || (count && *count < 0)) saved.damaged();
    if (!segment.begins_stage) check_opaque(n, registers, inputs);
    s.plans[n] = s.find_plan(n, inputs, count);
  }
  // What opaque instructions gave was checked when they ran; a stage's inputs are by the planner.
  void check_opaque(size_t n, std::span<const Register> registers, std::span<const Tensor> inputs) {
    interpreter::SizesByName sizes(code, s.plans[n - 1]->sizes);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (registers[i] == no_register || !inputs[i].defined()) continue;
      const ir::Type& type = code.type_of(registers[i]);
      if (type.dtype != inputs[i].dtype() || type.rank() != inputs[i].rank()) saved.damaged();
      for (int d = 0; d < type.rank(); ++d)
        if (type.dims[d].evaluate(sizes) != inputs[i].shape()[d]) saved.damaged();
    }
  }

  void restore(Register r) {
    const SegmentPlan& plan = *s.plans[code.made_in(r)];
    const Held& held = plan.find_held(r);
    if (held.absent) return;
    if (!held.carried) {
      Tensor& t = s.registers[index_of(r)];
      t = tensor(r, held.layout);
      s.versions[index_of(r)] = t.version();
      return;
    }
    auto& block = s.blocks[plan.segment];
    if (!block)
      block = make_ref<Storage>(s.context->allocator(), static_cast<size_t>(plan.block_bytes));
    Tensor t = tensor(r, Layout(held.layout.dtype, held.layout.shape));
    std::byte* to = block->data() + held.carried->memory + held.carried->offset;
    if (t.numel()) copy_elements(t.layout(), t.data(), held.layout, to);
  }
  // A value of this layout, however it was kept when it was saved.
  Tensor tensor(Register r, const Layout& layout) {
    std::string name = fmt::format("c{}", index_of(r));
    if (saved.contains(name)) {
      Tensor t = saved.read(name, *s.context);
      if (t.dtype() != layout.dtype || !std::ranges::equal(t.shape(), layout.shape))
        saved.damaged();
      auto memory =
          make_ref<Storage>(s.context->allocator(), static_cast<size_t>(bytes_of(layout)));
      Tensor own(std::move(memory), layout);
      if (t.numel()) copy_elements(t.layout(), t.data(), layout, own.mutable_data());
      return own;
    }
    auto line = saved.numbers(saved.text(fmt::format("r{}", index_of(r))));
    if (line.size() != 2) saved.damaged();
    const auto item = static_cast<int64_t>(size_of(layout.dtype));
    Ref<Storage>& memory = pieces[line[0]];
    if (!memory) {
      Tensor bytes = saved.read(fmt::format("m{}", line[0]), *s.context);
      auto size = static_cast<size_t>(bytes.numel());
      if (bytes.dtype() != DType::u8) saved.damaged();
      memory = make_ref<Storage>(s.context->allocator(), size);
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
                               ? saved.read(fmt::format("o{}.{}", n, i), *s.context).copy()
                               : Tensor());
    if (!is_function) {
      auto parent = saved.numbers(line);
      // A recipe's own come before it.
      if (parent.size() != 1 || parent[0] >= n) saved.damaged();
      Ref<const Handle> of = handle(parent[0]);
      if (operands.size() != of->roots().size() || marks.size() != of->inputs().size())
        saved.damaged();
      return made[n] = interpreter::evaluate_handle(of, operands, marks, true, s.context).handle;
    }
    auto function =
        std::dynamic_pointer_cast<const autograd::CppFunction>(ops::find_function(line));
    if (!function) throw Error(ops::no_function(line));
    if (operands.size() != marks.size() ||
        !std::ranges::all_of(operands, [](const Tensor& t) { return t.defined(); }))
      saved.damaged();
    return made[n] = interpreter::call_function(*function, operands, marks, true, s.context).handle;
  }
};

State State::resume(std::shared_ptr<const Code> code, const std::string& path,
                    std::shared_ptr<Context> context, const StateOptions& options) {
  State state(code, std::move(context), options);
  Impl& s = *state.impl_;
  Saved saved(path, *code);
  auto stage = saved.numbers(saved.text("stage"));
  if (stage.size() != 1 || stage[0] > static_cast<int64_t>(code->stages())) saved.damaged();
  const size_t next = first_segment_left(*code, static_cast<size_t>(stage[0]));
  Resume resume{s, *code, saved, {}, {}};
  for (size_t n = 0; n < next; ++n) {
    s.stage = code->segment(n).stage;
    resume.plan_segment(n);
  }
  s.stage = static_cast<size_t>(stage[0]);
  for (Register r : registers_left(*code, next)) {
    if (!code->is_handle(r)) {
      resume.restore(r);
    } else if (const std::string* recipe = saved.find(fmt::format("h{}", index_of(r)))) {
      auto number = saved.numbers(*recipe);
      if (number.size() != 1) saved.damaged();
      s.handles[index_of(r)] = resume.handle(number[0]);
    } else {
      saved.damaged();
    }
  }
  return state;
}

}  // namespace gradus
