// Which instructions of a segment run together.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradus/code.h"
#include "gradus/context.h"

namespace gradus::interpreter {

// Sorts the instructions of a segment into groups as they are told of in order. What a group
// promises: it can run where its last member stands. For that
//   G1  who reads what a member makes, and is no member, stands after the last member
//   G2  what members read is made before the last member: by no group that runs later
// Whoever reads a value of a group that is open closes it, unless it joins. So a group is closed
// before anybody outside reads of it, and no two groups wait for each other.
//
// A group has the shape of its loops. Where it reduces rows, values of a row have the shape `row`;
// instructions of that shape join if they read of such a group. Where it reduces columns as well,
// these are all dimensions that a row does not have.
class GroupFinder {
 public:
  // What an instruction's loops are: of a reduction, the shape that it reduces, and its result's
  // with all dimensions kept. Those of one without shape are no loops of a group.
  struct Loops {
    std::optional<Sizes> shape, row;
    // Whether no member can read its result: it lacks dimensions of the row, or is of columns.
    bool drops = false;
    std::optional<Sizes> column = {};  // of a reduction of columns, as `row`
    // Whether it is read where its operands are: then no member may make those.
    bool edge = false;
  };
  // An instruction in its order. `makers` are the instructions of the segment whose results it
  // reads, `loads` the registers.
  void add(uint32_t index, const Loops& loops, std::span<const uint32_t> makers,
           std::span<const Register> loads);
  // Closes the open groups that the instruction, which was added last, is no member of, and of
  // which `closes` is true.
  using Closes = FunctionRef<bool(std::span<const uint32_t> members, std::span<const Register>)>;
  void close_others(uint32_t index, Closes closes);
  // Whether an open group that `maker` belongs to reduces `shape` to `row`.
  bool reduces(uint32_t maker, const Sizes& shape, const Sizes& row) const;
  // The groups, each in order.
  std::vector<std::vector<uint32_t>> take();

 private:
  struct Open {
    Sizes shape;
    std::optional<Sizes> row, column;
    std::vector<uint32_t> members, dropping;
    std::vector<Register> loads;  // each once; those that members make are there as well
    bool reads(std::span<const Register> registers) const;
    bool has(uint32_t index) const;
  };
  void close(size_t open);
  size_t join(size_t a, size_t b);
  bool fits(const Open& a, const Loops& loops, const Open* b) const;
  const Sizes* shape_for(const Loops& loops, std::span<const uint32_t> makers) const;

  std::vector<Open> open_;
  std::vector<std::vector<uint32_t>> closed_;
};

}  // namespace gradus::interpreter
