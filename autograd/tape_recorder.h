// A world whose operations become steps of a tape. A value is known by its slot.
#pragma once

#include "autograd/rule_tape.h"

namespace gradus::autograd {

class TapeRecorder final : public ops::World {
 public:
  explicit TapeRecorder(RuleTape& tape) : tape_(tape) {}

  // A new slot.
  ops::Value make(const ir::Type& type);
  // The value of a slot that is there.
  ops::Value at(uint32_t slot);
  SmallVector<ops::Value, 2> emit(const ir::Operator& op, ir::Attributes attributes,
                                  std::span<const ops::Value> operands) override;
  // `none` of what is no tensor of this world.
  static uint32_t slot_of(const ops::Value& v) {
    return v.world ? static_cast<uint32_t>(std::get<ir::ValueId>(v.operand)) : RuleTape::none;
  }

 private:
  RuleTape& tape_;
};

// The layout of a tensor that lies contiguously; its sizes are known.
Layout layout_of(const ir::Type& type);

}  // namespace gradus::autograd
