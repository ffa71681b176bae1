// Which instructions of a segment run together.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradus/code.h"
#include "gradus/context.h"

namespace gradus::interpreter {

// Sorts the instructions of a segment into groups as they are told of in order. A group runs where
// its last member stands, or an earlier one. For that
//   G1  who reads what a member makes, and is no member, stands behind that place
//   G2  what members read is made before it: by no group that runs later
// Whoever reads a value of a group that is open closes it, unless it joins. So a group is closed
// before anybody outside reads of it, and no two groups wait for each other. A reader that leaves
// little, as the sum that is a loss, settles the group's place instead: who reads nothing made
// later still joins, until something else takes memory.
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
    bool leaves_little = false;  // its results are small beside what it reads
  };
  struct Found {
    std::vector<uint32_t> members;  // in order
    uint32_t place;                 // the member where it can run
  };
  // An instruction in its order. `makers` are the instructions of the segment whose results it
  // reads, `loads` the registers.
  void add(uint32_t index, const Loops& loops, std::span<const uint32_t> makers,
           std::span<const Register> loads);
  // Closes the open groups that the instruction, which was added last and takes memory, is no
  // member of, and of which `closes` is true or the place is settled.
  using Closes = FunctionRef<bool(std::span<const uint32_t> members, std::span<const Register>)>;
  void close_others(uint32_t index, Closes closes);
  // Whether an open group that `maker` belongs to reduces `shape` to `row`.
  bool reduces(uint32_t maker, const Sizes& shape, const Sizes& row) const;
  std::vector<Found> take();

 private:
  struct Open {
    Sizes shape;
    std::optional<Sizes> row, column;
    std::vector<uint32_t> members, dropping;
    std::vector<Register> loads;         // each once; those that members make are there as well
    std::optional<uint32_t> place = {};  // settled
    bool ends_with_edge = false;
    bool reads(std::span<const Register> registers) const;
    bool has(uint32_t index) const;
  };
  void close(size_t open);
  size_t join(size_t a, size_t b);
  bool fits(const Open& a, const Loops& loops, const Open* b) const;
  static bool settle(Open& open, std::span<const uint32_t> makers);
  bool in_time(const Open& open, std::span<const uint32_t> makers) const;
  uint32_t run_at(uint32_t maker) const;
  const Sizes* shape_for(const Loops& loops, std::span<const uint32_t> makers) const;

  std::vector<Open> open_;
  std::vector<Found> closed_;
};

}  // namespace gradus::interpreter
