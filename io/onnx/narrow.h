// Element types of ONNX that Gradus has no tensors of: floats of 8, 6 and 4 bits, integers of 4 and
// 2. Their numbers are held in a wider dtype, exactly; what is cast to them is rounded to numbers
// that they have.
#pragma once

#include <span>
#include <string_view>

#include "io/onnx/call.h"

namespace gradus::onnx {

struct NarrowType {
  // Which codes are no finite numbers.
  enum class Codes : uint8_t {
    integers,  // none; two's complement where there is a sign
    finite,    // none
    last_nan,  // all bits but the sign's: NaN; there are no infinities
    zero_nan,  // minus zero's: NaN; there are no infinities
    ieee,      // those of the greatest exponent: infinities and NaN
    powers,    // 2^(code - 127), without a sign; the last one is NaN
  };
  int number;  // ONNX's
  std::string_view name;
  int bits;
  Codes codes;
  DType held;          // what its numbers are held in
  int mantissa = 0;    // bits of a float's fraction
  int bias = 0;        // of a float's exponent
  double least, most;  // the finite numbers

  bool integral() const { return codes == Codes::integers; }
};

// Null for a number of another element type.
const NarrowType* narrow_type(int element_type);

// The bytes that so many elements take.
int64_t narrow_bytes(const NarrowType& type, int64_t elements);
// The numbers of packed codes, of which the first has the lowest bits.
Tensor decoded(const NarrowType& type, std::span<const uint8_t> codes, const Sizes& shape);

// How a number between two is rounded to a power of two.
enum class RoundMode : uint8_t { up, down, nearest };
// x as numbers of the type, in the dtype that holds them, as Cast rounds. What lies outside is the
// nearest finite number with `saturate`, else an infinity or NaN. Integers: digits behind the point
// and high bits are dropped.
Value narrowed(const Value& x, const NarrowType& type, bool saturate,
               RoundMode mode = RoundMode::up);
// Gives numbers of the type as the next result.
void give_narrow(Call& call, Value held, const NarrowType& type);

// What the results of a node are of that only moves elements: its input's type; null where that is
// no narrow one. Throws Unsupported for an operator that has no meaning for narrow types.
const NarrowType* narrow_type_moved(std::string_view op, std::span<const ItemPtr> inputs);

}  // namespace gradus::onnx
