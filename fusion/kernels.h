// Compiled kernels as whoever runs programs sees them: no compiler and no device.
#pragma once

#include <memory>
#include <string>

#include "devices/backend.h"
#include "fusion/cost.h"
#include "fusion/kernel_set.h"
#include "fusion/stage.h"
#include "gradus/context.h"
#include "gradus/kernels.h"
#include "gradus/operator.h"

namespace gradus::fusion {

// Code of one nest. Immutable, for any number of threads; keeps what it needs alive.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  virtual ~Kernel() = default;
  // Made ready for a frame that fits the nest. It is called with the first elements of loads, then
  // of stores, then of row stores, then of column stores. A store may lie where a load lies if each
  // element lies on its own and no row is reduced. A call allocates nothing; sizes split its work.
  virtual work::Kernel bind(const Frame& frame) const = 0;
};

// Makes kernels, and keeps them: what a context has of a compiler. Thread-safe. In a forked child
// of a process that has compiled, it makes no more, and has none for new states.
class Kernels {
 public:
  virtual ~Kernels() = default;
  // Tells sources apart, also those that are gone.
  virtual uint64_t id() const = 0;
  // Whether a nest is to say where its instructions stand.
  virtual bool wants_places() const { return false; }
  // Sets Nest::registers and Nest::row_size.
  virtual void suit(Nest& nest, const StatedRows& rows) const {
    static_cast<void>(nest), static_cast<void>(rows);
  }
  // Whether a kernel of the nest can be made, and is worth it for such sizes.
  virtual bool wants(const Nest& nest, const Frame& frame) const = 0;
  // What `wants` estimates for; registers of 0 bits: it estimates nothing.
  virtual Machine machine() const { return {}; }
  // Whether nests may reduce columns, where there are so many rows and columns of a dtype.
  virtual bool takes_columns(int64_t rows, int64_t columns, DType dtype) const {
    static_cast<void>(rows), static_cast<void>(columns), static_cast<void>(dtype);
    return false;
  }
  // Whether a kernel of single loops reads all that it reads of an element before it writes it, so
  // that a result may lie where an operand does.
  virtual bool reads_before_writing() const { return false; }
  // Whether one instruction alone is worth a kernel.
  virtual bool wants_single_steps() { return backend()->device() != Device(); }
  // What states with these kernels run on. Kernels are called with addresses of its memory.
  virtual std::shared_ptr<devices::Backend> backend() { return devices::cpu(); }
  // What is there now.
  virtual std::shared_ptr<const KernelSet> ready() = 0;
  // The kernel of a nest, compiled on this thread if need be. Null where no code can be made, which
  // is remembered, and told to the context's log once. `text` is print(nest).
  virtual std::shared_ptr<const Kernel> get(const Nest& nest, const std::string& text) = 0;
  // Has the kernel compiled on a thread of its own, unless it is there, on its way or has failed,
  // or too many are waiting. A later set has it.
  virtual void request(const Nest& nest, const std::string& text) = 0;
  // Which stages are to be one function (fusion/stage.h); and that function, as get() and request()
  // do it for nests. `text` is print(stage).
  virtual WholeStages whole_stages() const { return WholeStages::off; }
  virtual std::shared_ptr<const StageKernel> get_stage(const StageProgram& stage,
                                                       const std::string& text) {
    static_cast<void>(stage), static_cast<void>(text);
    return nullptr;
  }
  virtual void request_stage(const StageProgram& stage, const std::string& text) {
    static_cast<void>(stage), static_cast<void>(text);
  }
  // Returns when nothing is waiting to be compiled.
  virtual void wait() = 0;
  virtual KernelStatistics statistics() const = 0;
};

// The kernels of a context, made on first use.
std::shared_ptr<Kernels> kernels_of(Context& context);

}  // namespace gradus::fusion
