#include <algorithm>
#include <cstring>

#include "gradus/files.h"
#include "gradus/messages.h"
#include "gradus/text.h"
#include "interpreter/run/state_file.h"
#include "interpreter/run/steps.h"

namespace gradus::interpreter {

std::string hash_of(const Code& code) {
  // Fowler, Noll and Vo's (FNV-1a).
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : ir::print(code.graph())) h = (h ^ c) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

size_t first_segment_left(const Code& code, size_t stage) {
  return stage < code.stages() ? code.stage(stage).first_segment : code.segments();
}

std::vector<Register> registers_left(const Code& code, size_t next) {
  std::vector<Register> list;
  for (uint32_t n = 0; n < code.registers(); ++n) {
    auto r = static_cast<Register>(n);
    if (!code.constant(r).defined() && code.made_in(r) < next && code.last_segment(r) >= next)
      list.push_back(r);
  }
  return list;
}

namespace {

using Metadata = std::map<std::string, std::string, std::less<>>;

// A piece of memory begins at a multiple of this in its storage, and in the file.
constexpr int64_t piece_alignment = 64;

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

void save(StateData& s, const std::string& path) {
  s.join_stream();
  const Code& code = *s.code;
  if (s.poisoned)
    throw Error("{}: the state is poisoned ({}): there is nothing to save", path, s.poison);
  const size_t next = first_segment_left(code, s.stage);
  Metadata metadata{{"gradus_state", std::string(state_format)},
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
      check_version(s, r, plan);
      pieces.add(r, s.place.here(s.registers[index_of(r)]));
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

}  // namespace gradus::interpreter
