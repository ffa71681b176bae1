// What the tests of python_op need of C++: threads that Python knows nothing of.
#include <atomic>
#include <thread>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gradus/apply.h"
#include "gradus/engine.h"
#include "gradus/gradcheck.h"
#include "gradus/opaque_function.h"
#include "gradus/text.h"

namespace {

namespace nb = nanobind;
using namespace gradus;
using autograd::Variable;
using autograd::Variables;

// Runs `f(i)` on so many threads at once and rethrows the first exception.
template <class F>
void on_threads(int count, F&& f) {
  nb::gil_scoped_release unlocked;
  std::vector<std::exception_ptr> faults(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        f(i);
      } catch (...) {
        faults[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
}

// Whether the program, read anew, passes on each of the threads.
bool gradcheck_on_threads(const std::string& text, int order, int threads) {
  std::atomic<int> passed{0};
  on_threads(threads, [&](int i) {
    ir::Module module = ir::parse(text);
    auto context = Context::default_context();
    auto report = gradcheck(module.program(), random_sources(static_cast<uint64_t>(i), context),
                            {.order = order}, context);
    passed += report.passed();
  });
  return passed == threads;
}

// Whether all stages give the same bits on each of the threads, which share the code.
bool run_on_threads(const std::string& text, int threads, int runs) {
  ir::Module module = ir::parse(text);
  auto code = Code::compile(module.program());
  auto context = Context::default_context();
  InputSources sources = random_sources(1, context);
  sources.sizes["N"] = 100;
  auto run = [&] {
    std::vector<Tensor> results;
    State state(code, context);
    while (!state.finished())
      for (Tensor& t : state.run(find_inputs(state, sources))) results.push_back(std::move(t));
    return results;
  };
  std::vector<Tensor> expected;
  {
    nb::gil_scoped_release unlocked;
    expected = run();
  }
  std::atomic<bool> same{true};
  on_threads(threads, [&](int) {
    for (int n = 0; n < runs; ++n) {
      std::vector<Tensor> got = run();
      for (size_t i = 0; i < got.size(); ++i)
        if (got[i].defined() && !bitwise_equal(got[i], expected[i])) same = false;
    }
  });
  return same;
}

// The second derivative of the sum over branches of f(x_i) by each x_i, by an engine with workers:
// each branch is independent, so that they may run at the same time.
std::vector<double> second_derivatives(const std::string& function, int branches, int workers) {
  nb::gil_scoped_release unlocked;
  auto context = std::make_shared<Context>();
  autograd::replace_engine(
      context, std::make_shared<autograd::Engine>(
                   context, autograd::EngineOptions{.multithreading = true, .workers = workers}));
  autograd::ThreadState state = autograd::thread_state();
  state.context = context;
  autograd::StateGuard guard(state);
  Variables x, y;
  for (int i = 0; i < branches; ++i) {
    x.emplace_back(Tensor::scalar(DType::f64, 0.1 * i), true);
    y.push_back(call_function(function, std::array{x.back()})[0]);
  }
  Variables first = autograd::grad(y, x, {}, {.keep_graph = true, .create_graph = true});
  Variables second = autograd::grad(first, x);
  std::vector<double> values;
  for (const Variable& v : second) values.push_back(v.data().item());
  return values;
}

// A thread that goes on calling a function until the process ends.
void call_for_ever(const std::string& function) {
  std::thread([function] {
    Variable x(Tensor::scalar(DType::f64, 1.0), true);
    try {
      for (;;) call_function(function, std::array{x});
    } catch (const std::exception&) {
      return;  // the interpreter has ended
    }
  }).detach();
}

// A tensor on a device that no code may touch: its memory is no address of the host's.
Variable on_device() {
  const Device device{DeviceKind::cuda, 7};
  void* nowhere = reinterpret_cast<void*>(uintptr_t{64});
  return Variable(Tensor(make_ref<Storage>(nowhere, size_t{16}, device, std::function<void()>()),
                         Layout(DType::f64, {2})));
}

}  // namespace

NB_MODULE(gradus_native, m) {
  m.def("gradcheck_on_threads", gradcheck_on_threads);
  m.def("run_on_threads", run_on_threads);
  m.def("second_derivatives", second_derivatives);
  m.def("call_for_ever", call_for_ever);
  m.def("on_device", on_device);
}
