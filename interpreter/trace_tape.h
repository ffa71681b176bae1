// A trace while it is recorded.
#pragma once

#include <deque>

#include "gradus/trace.h"
#include "interpreter/trace_values.h"

namespace gradus::interpreter {

class TraceTape;

// What was recorded. Outlives what it was recorded from.
struct TracedProgram {
  struct Flags {
    std::string name;
    bool defined = true, requires_grad = false;
  };
  TraceOptions options;
  std::weak_ptr<TraceTape> tape;

  std::mutex mutex;                  // of what follows
  ir::Graph graph;                   // stages that are done
  std::vector<Flags> inputs;         // of stage 0
  std::vector<std::string> unread;   // cotangents that were absent
  std::shared_ptr<const Code> code;  // compiled when first asked for
};

// Records stage after stage, one thread at a time.
class TraceTape final : public std::enable_shared_from_this<TraceTape> {
 public:
  explicit TraceTape(std::shared_ptr<TracedProgram> program);

  // Stage 0. Gives the outputs, led on to the node that records stage 1.
  autograd::Variables run(const VariableFunction& f, std::span<const autograd::Variable> inputs);
  // Whether it failed for want of values (TraceOptions::shapes_only).
  bool needs_values() const { return values_.needs_values(); }
  // Before the run: see TraceValues.
  void capture_leading() { values_.capture_leading(); }
  void capture_from(TraceValues* around) { values_.capture_from(around); }
  const autograd::Variables& captured() const { return values_.captured(); }
  // Stage k, of these cotangents (as its node has inputs) of the results of stage k - 1 as it was
  // recorded under the number `before`. Gives the gradients, led on if `go_on`.
  autograd::Variables run_backward(size_t k, uint64_t before, const autograd::Variables& cotangents,
                                   bool go_on);

 private:
  struct Input {
    std::string name;
    ir::Type type;
    autograd::Variable leaf;  // undefined: absent, or not recorded
    autograd::Edge outer;     // where its gradient goes
    bool differentiated;
  };
  struct Output {
    std::string name;
    ir::Type type;  // of a structural zero that of the input whose gradient it is
    autograd::Variable value;
  };
  struct Stage {
    uint64_t number;     // of this recording of it
    size_t first_value;  // of the graph
    std::vector<Input> inputs;
    std::vector<Output> outputs;
  };
  class Busy;
  class Recording;

  void begin_stage(size_t k);
  void end_stage();
  void drop_stages(size_t first);
  autograd::Variables differentiate(const autograd::Variables& cotangents);
  Input& add_input(Input input, const Tensor& tensor, bool requires_grad);
  void add_output(std::string name, const autograd::Variable& v, ir::Type type);
  void finish_constant_stages();
  autograd::Variables lead_on(bool go_on, size_t of);
  std::string input_name(size_t i) const;
  std::string output_name(size_t i) const;

  const std::shared_ptr<TracedProgram> program_;
  const TraceOptions& options_;
  std::shared_ptr<Context> context_;  // whose engine keeps to the thread
  std::atomic<bool> busy_{false};
  ir::Graph graph_;
  std::deque<Stage> stages_;
  uint64_t next_number_ = 1;
  std::vector<TracedProgram::Flags> flags_;
  std::vector<std::vector<std::string>> unread_;  // by stage
  TraceValues values_{graph_};
};

}  // namespace gradus::interpreter
