// What machines do, as data. An operator's `bind` says its work for operands of known layouts; a
// backend's `make` gives code for it. Work has an identity that follows from its fields, prints,
// and a reference evaluator says what it means (tests/reference/work.h).
//
// The elements that work reads and writes are named by argument: the operands in order, then the
// results. Absent operands have a number, too.
//
// The comments on the kinds say what each element of a result is, to the bit. Every operation
// rounds to the type that it is computed in; a fused one is written fma. Conversions are `cast`'s.
// "In order" means row-major, without gaps. A NaN's sign and payload are not specified.
#pragma once

#include <memory>
#include <variant>

#include "gradus/work_kernel.h"
#include "work/convolution.h"
#include "work/index.h"
#include "work/kinds.h"
#include "work/move.h"
#include "work/nest.h"
#include "work/product.h"
#include "work/reduce.h"

namespace gradus::work {

// A kernel that somebody else made: what a user's own operator brings. The CPU alone runs it.
struct Foreign {
  static constexpr std::string_view name = "foreign";
  Kernel kernel;
  uint64_t number = 0;  // no two have the same
  static constexpr auto fields() { return std::tuple(field("number", &Foreign::number)); }
  friend bool operator==(const Foreign& a, const Foreign& b) { return a.number == b.number; }
};
Foreign foreign(Kernel kernel);

using Kinds = std::variant<Move, Index, IndexCheck, Reduce, Extremum, Product, Convolution, Columns,
                           MaxPool, Triangle, Range, Spacing, OneHot, Nonzero, RandomBits, Sort,
                           Scan, RunningMax, Factor, Solve, Fourier, Collective, CollectiveEnd,
                           OwnRank, OwnBlock, Pointwise, Loops, Foreign>;

template <class Kind, class... All>
constexpr bool is_one_of(const std::variant<All...>*) {
  return (std::is_same_v<std::remove_cvref_t<Kind>, All> || ...);
}

// Copied, moved and destroyed in work.cpp: a file that makes work of one kind need not compile that
// for every kind.
struct Work : Kinds {
  template <class Kind>
  requires(is_one_of<Kind>(static_cast<const Kinds*>(nullptr)))  //
      Work(Kind&& kind)
      : Kinds(std::in_place_type<std::remove_cvref_t<Kind>>, std::forward<Kind>(kind)) {}
  Work(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(const Work&);
  Work& operator=(Work&&) noexcept;
  ~Work();
};
// Shared by plans and caches; never changed.
using WorkRef = std::shared_ptr<const Work>;
WorkRef share(Work&& work);

// The kind's name.
std::string_view name_of(const Work& work);
// Equal for equal work, and for no other: bytes, not for people.
std::string key_of(const Work& work);
size_t hash_of(const Work& work);
// "reduce {reducer = sum, in = f32, ...}"
std::string print(const Work& work);
// The same, but a nest by its own text.
std::string describe(const Work& work);

}  // namespace gradus::work
