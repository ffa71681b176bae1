#include "bench/device/rows.h"

#include <algorithm>
#include <chrono>

#include "bench/models.h"
#include "bench/programs.h"
#include "devices/backend.h"
#include "fusion/kernels.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/text.h"

namespace gradus::bench {

namespace {

using Tensors = std::vector<Tensor>;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> v) {
  auto middle = v.begin() + static_cast<int64_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors)
    if (t.defined())
      bytes += static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
  return bytes;
}

const RunOptions staying = [] {
  RunOptions options;
  options.results_on_device = true;
  return options;
}();

StateOptions first() { return {.fusion = FusionMode::first}; }

// Waits for all that was asked of the device before: work is done in order, and a result that
// comes to the host comes last.
class Wait {
 public:
  explicit Wait(const std::shared_ptr<Context>& context)
      : state_(Code::compile(ir::parse("graph wait { stage 0 (%x: f32[1]) { %y = add(%x, %x) "
                                       "return %y } }")
                                 .program()),
               context, first()),
        inputs_{Tensor::zeros(DType::f32, Sizes{1})} {
    for (int i = 0; i < 2; ++i) (*this)();
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      const double start = now();
      (*this)();
      times.push_back(now() - start);
    }
    seconds_ = median(times);
  }
  void operator()() {
    state_.restart();
    state_.run(inputs_);
  }
  // What it takes where there is nothing to wait for.
  double seconds() const { return seconds_; }

 private:
  State state_;
  Tensors inputs_;
  double seconds_ = 0;
};

// Seconds a run, the median of batches that are each waited for once.
template <class Run>
double timed(Wait& wait, double seconds, Run run) {
  run();
  wait();
  double start = now();
  run();
  wait();
  const double one = std::max(now() - start - wait.seconds(), 1e-7);
  const int batch = std::clamp(static_cast<int>(seconds / 10 / one), 1, 10000);
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3;) {
    start = now();
    for (int i = 0; i < batch; ++i) run();
    wait();
    const double all = now() - start;
    times.push_back(std::max(all - wait.seconds(), 0.0) / batch);
    spent += all;
  }
  return median(times);
}

// Values of N(0, 1) for a stage.
Tensors drawn(const Code& code, size_t stage, const std::shared_ptr<Context>& context) {
  Tensors inputs;
  for (size_t i = 0; i < code.inputs(stage); ++i) {
    Sizes shape;
    for (const ir::Dim& d : code.input_type(stage, i).dims) shape.push_back(d.value());
    inputs.push_back(random_tensor(DType::f32, shape, code.input_name(stage, i), 1, *context));
  }
  return inputs;
}

Tensors on_device(const Tensors& host, Context& context) {
  Tensors there;
  for (const Tensor& t : host)
    there.push_back(devices::to_device(fusion::kernels_of(context)->backend(), t));
  return there;
}

struct Bench {
  const DeviceUnderTest& device;
  const DeviceSizes& sizes;
  const std::function<void(const DeviceRow&)>& said;
  Wait wait{device.context};
  std::vector<DeviceRow> rows{};

  void put(DeviceRow row) {
    if (row.moved_bytes > 0)
      row.copy_seconds = device.copy(static_cast<size_t>(row.moved_bytes / 2));
    said(row);
    rows.push_back(std::move(row));
  }

  // Each stage of the program and its derivatives, by itself. What it moves at the least: the
  // inputs of all stages up to it, and its results.
  void stages(const std::string& name, const std::string& text, int order,
              std::initializer_list<double> goals) {
    constexpr const char* named[] = {"forward", "backward", "second backward"};
    auto code = Code::compile(ir::differentiate(ir::parse(text).program(), {.order = order}));
    State state(code, device.context, first());
    double read = 0;
    for (size_t s = 0; s < code->stages(); ++s) {
      const Tensors inputs = on_device(drawn(*code, s, device.context), *device.context);
      read += bytes_of(inputs);
      DeviceRow row{.name = fmt::format("{}, {}", name, named[s]), .goal = goals.begin()[s]};
      row.moved_bytes = read + bytes_of(state.clone().run(inputs, staying));
      row.seconds = timed(wait, sizes.seconds, [&] {
        State at = state.clone();
        at.run(inputs, staying);
      });
      state.run(inputs, staying);
      row.host_copies = state.host_instructions().size();
      put(row);
    }
  }

  void step(const std::string& name, const Model& model) {
    auto code = Code::compile(ir::parse(model.text()).program());
    State state(code, device.context, first());
    Tensors inputs = drawn(*code, 0, device.context);
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<double> values = inputs[i].to_doubles();
      for (double& v : values) v *= model.inputs[i].scale;
      inputs[i] = Tensor::from(DType::f32, model.inputs[i].shape, values);
    }
    inputs = on_device(inputs, *device.context);
    DeviceRow row{.name = name};
    row.seconds = timed(wait, sizes.seconds, [&] {
      state.restart();
      state.run(inputs, staying);
    });
    row.host_copies = state.host_instructions().size();
    put(row);
  }

  // Views keep the instructions apart: each is a kernel of its own.
  void instructions() {
    const int64_t n = sizes.instructions;
    std::string text = "graph tiny { stage 0 (%x: f32[64], %w0: f32[64], %w1: f32[1, 64]) {\n";
    std::string last = "x";
    for (int64_t i = 0; i < n; ++i) {
      text += fmt::format("%v{0} = {1}(%{2}, %w{3})\n%g{0} = reshape(%v{0}) {{shape = [{4}64]}}\n",
                          i, i % 3 ? "add" : "mul", last, i % 2, i % 2 ? "" : "1, ");
      last = fmt::format("g{}", i);
    }
    auto code = Code::compile(ir::parse(text + "return %" + last + " } }").program());
    State state(code, device.context, first());
    const Tensors inputs = on_device(drawn(*code, 0, device.context), *device.context);
    DeviceRow row{.name = fmt::format("{} tiny instructions", n), .goal = 1.5};
    row.seconds = timed(wait, sizes.seconds, [&] {
      state.restart();
      state.run(inputs, staying);
    });
    row.each = row.seconds * 1e6 / static_cast<double>(n);
    row.host_copies = state.host_instructions().size();
    put(row);
  }
};

std::string softmax_text(int64_t rows, int64_t columns) {
  return fmt::format(
      "graph softmax {{ stage 0 (%x: f32[{}, {}]) {{ %y = softmax(%x) {{dim = -1}} return %y }} }}",
      rows, columns);
}

std::string layer_norm_text(int64_t rows, int64_t columns) {
  return fmt::format(
      "graph layer_norm {{ stage 0 (%x: f32[{0}, {1}], %w: f32[{1}], %b: f32[{1}]) {{ %y = "
      "layer_norm(%x, %w, %b) {{normalized_shape = [{1}]}} return %y }} }}",
      rows, columns);
}

}  // namespace

DeviceSizes DeviceSizes::tiny() {
  return {.chain_bytes = 12 * 256,
          .rows = 2,
          .columns = 64,
          .steps = 2,
          .batch = 2,
          .hidden = 4,
          .critic_batch = 2,
          .critic_in = 4,
          .critic_hidden = 4,
          .blocks_batch = 1,
          .length = 4,
          .width = 8,
          .instructions = 4,
          .seconds = 0};
}

std::vector<DeviceRow> run_device_rows(const DeviceUnderTest& device, const DeviceSizes& sizes,
                                       const std::function<void(const DeviceRow&)>& said) {
  Bench bench{.device = device, .sizes = sizes, .said = said};
  const int64_t chain = sizes.chain_bytes / 12;
  bench.put({.name = "device-to-device copy",
             .seconds = device.copy(static_cast<size_t>(sizes.chain_bytes)),
             .moved_bytes = 2.0 * static_cast<double>(sizes.chain_bytes)});
  bench.stages("pointwise chain", gated_chain_text(chain), 2, {0.9, 0.85, 0.85});
  bench.stages("softmax", softmax_text(sizes.rows, sizes.columns), 2, {0.85, 0.85, 0.85});
  bench.stages("layer norm", layer_norm_text(sizes.rows, sizes.columns), 2, {0.85, 0.85, 0.85});
  bench.step("LSTM step", lstm(sizes.batch, sizes.hidden, sizes.steps));
  bench.step("WGAN-GP step", wgan_gp(sizes.critic_batch, sizes.critic_in, sizes.critic_hidden));
  bench.step("transformer step", transformer(sizes.blocks_batch, sizes.length, sizes.width, 4));
  bench.instructions();
  return std::move(bench.rows);
}

}  // namespace gradus::bench
