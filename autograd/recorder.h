// Watching what runs on variables, to make a program of it.
#pragma once

#include <string_view>

#include "gradus/variable.h"

namespace gradus::autograd {

class OperatorCall;

// Told of everything that runs on variables on a thread whose state names it, and, as that state
// goes along, of what the engine runs for that thread. Library code between two calls only moves
// tensors, so a recorder knows a value by its memory and its gradient edge.
class Recorder {
 public:
  // A call that ran. Operands as the call has them: null for a number or what is left out.
  virtual void called(const OperatorCall& call, std::span<const Variable* const> operands,
                      const Variables& results) = 0;
  // Something begins that a recorder cannot see into ("custom function 'Cube'"). May throw Error.
  virtual void meets(std::string_view what) = 0;
  // Whether calls give tensors without values (autograd/shape_tensor.h): nothing runs.
  virtual bool shapes_only() const { return false; }

 protected:
  ~Recorder() = default;
};

}  // namespace gradus::autograd
