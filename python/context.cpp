// Context and KernelOptions in Python: workers, kernels, devices, the log.
#include "python/context.h"

#include <charconv>
#include <deque>
#include <mutex>

#include "gradus/devices.h"
#include "gradus/engine.h"
#include "gradus/messages.h"
#include "gradus/per_thread.h"
#include "python/bindings.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

WholeStages whole_stages_from(std::string_view name) {
  if (name == "off") return WholeStages::off;
  if (name == "small") return WholeStages::small;
  if (name == "always") return WholeStages::always;
  throw Error("whole_stages is 'off', 'small' or 'always', not '{}'", printable(name));
}

// Messages to functions of Python's. The library logs on any thread, also where somebody waits for
// that thread with the interpreter's lock; so messages wait for the interpreter, which calls
// `deliver` on its main thread.
class Messages {
 public:
  static Messages& all() {
    static Messages& messages = *new Messages;  // threads may log at the end
    return messages;
  }
  void send(const Kept& sink, LogLevel level, std::string_view text) {
    if (!detail::enter()) return;
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back({sink, level, std::string(text)});
      if (!asked_) asked_ = Py_AddPendingCall(deliver, nullptr) == 0;
    }
    detail::leave();
  }

 private:
  struct Message {
    Kept sink;
    LogLevel level;
    std::string text;
  };

  static int deliver(void*) {
    constexpr const char* levels[] = {"debug", "info", "warning"};
    std::deque<Message> now;
    {
      std::lock_guard lock(all().mutex_);
      now.swap(all().waiting_);
      all().asked_ = false;
    }
    IntoPython scope;
    for (const Message& m : now) try {
        m.sink.get()(levels[static_cast<int>(m.level)], m.text);
      } catch (nb::python_error& e) {
        e.discard_as_unraisable("the log of a gradus.Context");
      }
    return 0;
  }

  std::mutex mutex_;
  std::deque<Message> waiting_;
  bool asked_ = false;
};

PythonContext make_context(int workers, const std::optional<KernelOptions>& kernels, nb::object log,
                           bool multithreading, int depth_limit, int engine_workers) {
  for (int n : {workers, engine_workers})
    if (n < 0) throw Error("{} workers were asked for", n);
  if (depth_limit < 0) throw Error("depth_limit must be 0 or more, not {}", depth_limit);
  ContextOptions options;
  options.workers = workers;
  if (!log.is_none())
    options.log = [sink = Kept(std::move(log))](LogLevel level, std::string_view text) {
      Messages::all().send(sink, level, text);
    };
  return unlocked([&] {
    auto context = std::make_shared<Context>(std::move(options));
    if (kernels) set_kernel_options(*context, *kernels);
    autograd::replace_engine(context,
                             std::make_shared<autograd::Engine>(
                                 context, autograd::EngineOptions{.depth_limit = depth_limit,
                                                                  .multithreading = multithreading,
                                                                  .workers = engine_workers}));
    return PythonContext(std::move(context));
  });
}

// The contexts that a thread has entered, with the one that was current before.
struct Entered {
  std::vector<std::pair<std::shared_ptr<Context>, std::shared_ptr<Context>>> list;
};

void enter(const PythonContext& c) {
  std::shared_ptr<Context>& current = autograd::thread_state().context;
  PerThread<Entered>::get().list.emplace_back(c.context, std::exchange(current, c.context));
}

void exit(const PythonContext& c) {
  auto& list = PerThread<Entered>::get().list;
  if (list.empty() || list.back().first != c.context)
    throw Error("a context is left that is not this thread's current one");
  autograd::thread_state().context = std::move(list.back().second);
  list.pop_back();
}

nb::dict statistics_of(const PythonContext& c) {
  const KernelStatistics s = kernel_statistics(*c.context);
  nb::dict d;
  d["hits"] = s.hits, d["misses"] = s.misses, d["loaded"] = s.loaded, d["evicted"] = s.evicted;
  d["failed"] = s.failed, d["dropped"] = s.dropped, d["waiting"] = s.waiting;
  d["kernels"] = s.kernels, d["seconds"] = s.seconds;
  return d;
}

void bind_kernel_options(nb::module_& m) {
  nb::class_<KernelOptions>(m, "KernelOptions", "How kernels are made and kept; see Context.")
      .def(
          "__init__",
          [](KernelOptions* self, std::string folder, uint64_t most_folder_bytes,
             size_t most_kernels, unsigned vector_bits, bool always, std::string_view whole_stages,
             bool symbols, bool atomics) {
            new (self) KernelOptions{.most_kernels = most_kernels,
                                     .folder = std::move(folder),
                                     .most_folder_bytes = most_folder_bytes,
                                     .vector_bits = vector_bits,
                                     .always = always,
                                     .whole_stages = whole_stages_from(whole_stages),
                                     .symbols = symbols,
                                     .atomics = atomics};
          },
          nb::kw_only(), "folder"_a = "", "most_folder_bytes"_a = KernelOptions().most_folder_bytes,
          "most_kernels"_a = KernelOptions().most_kernels, "vector_bits"_a = 0, "always"_a = false,
          "whole_stages"_a = "small", "symbols"_a = false, "atomics"_a = false,
          "`folder` keeps compiled code for other processes, most_folder_bytes of it; most_kernels "
          "are kept in memory. `vector_bits`: 128, 256 or 512, 0 for the widest there are. "
          "`always`: kernels also where they are not worth it. `whole_stages`: which stages of "
          "known sizes are compiled as one function, 'off', 'small' or 'always'. `symbols` names "
          "kernels for gdb and perf. `atomics`: on a device, sums over indices in no fixed order.");
}

void run_on(Context& context, std::string_view device,
            const std::optional<KernelOptions>& kernels) {
  unlocked([&] { use_device(context, device_from(device), kernels.value_or(KernelOptions())); });
}

void bind_devices(nb::module_& m) {
  m.def(
      "use_device",
      [](std::string_view device, const std::optional<KernelOptions>& kernels) {
        run_on(*autograd::current_context(), device, kernels);
      },
      "device"_a, "kernels"_a = nb::none(),
      "Has the current context's programs run on a device ('cuda:0') from now on, and operators on "
      "tensors that lie there. Raises ResourceError, which says why, where it cannot be used.");
}

}  // namespace

Device device_from(std::string_view text) {
  if (text == "cpu") return {};
  uint16_t number = 0;
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    const auto [end, fault] = std::from_chars(digits.begin(), digits.end(), number);
    if (fault == std::errc() && end == digits.end()) return {DeviceKind::cuda, number};
  }
  throw Error("'{}' is no device; 'cpu', 'cuda:0', 'cuda:1', … are", printable(text));
}

std::shared_ptr<Context> context_from(nb::handle object) {
  if (object.is_none()) return autograd::current_context();
  return nb::cast<PythonContext&>(object).context;
}

void bind_context(nb::module_& m) {
  bind_kernel_options(m);
  bind_devices(m);
  nb::class_<PythonContext>(
      m, "Context",
      "Workers, kernels, engine and log. Within `with context:` states, programs and tensors of "
      "this thread use it. There is a default one for those who enter none.")
      .def(
          "__init__",
          [](PythonContext* self, int workers, const std::optional<KernelOptions>& kernels,
             nb::object log, bool multithreading, int depth_limit, int engine_workers) {
            new (self) PythonContext(make_context(workers, kernels, std::move(log), multithreading,
                                                  depth_limit, engine_workers));
          },
          "workers"_a = 0, "kernels"_a = nb::none(), "log"_a = nb::none(),
          "multithreading"_a = true, "depth_limit"_a = autograd::EngineOptions().depth_limit,
          "engine_workers"_a = 0,
          nb::sig("def __init__(self, workers: int = 0, kernels: KernelOptions | None = None, log: "
                  "collections.abc.Callable[[str, str], object] | None = None, multithreading: "
                  "bool = True, depth_limit: int = 60, engine_workers: int = 0) -> None"),
          "`workers`: threads for one loop, the caller included; 0: one per core. No number of "
          "them changes a bit. `log` is called with a level ('debug', 'info', 'warning') and a "
          "message, on the main thread. Of backward passes: without `multithreading` all of it "
          "runs on the caller; beyond `depth_limit` nested calls move to other threads; "
          "`engine_workers` run independent branches, 0: as many as `workers`.")
      .def(
          "__enter__",
          [](nb::object self) {
            enter(nb::cast<PythonContext&>(self));
            return self;
          },
          nb::sig("def __enter__(self) -> Context"))
      .def("__exit__", [](const PythonContext& c, const nb::args&) { exit(c); })
      .def("__eq__",
           [](const PythonContext& c, nb::handle other) {
             return nb::isinstance<PythonContext>(other) &&
                    nb::cast<PythonContext&>(other).context == c.context;
           })
      .def("__hash__",
           [](const PythonContext& c) { return reinterpret_cast<Py_hash_t>(c.context.get()) >> 4; })
      .def_prop_ro("workers", [](const PythonContext& c) { return c.context->workers().workers(); })
      .def(
          "set_kernels",
          [](const PythonContext& c, const KernelOptions& options) {
            unlocked([&] { set_kernel_options(*c.context, options); });
          },
          "kernels"_a, "Begins anew with these. States that are there keep what they have.")
      .def("kernel_statistics", statistics_of,
           nb::sig("def kernel_statistics(self) -> dict[str, float]"),
           "How many kernels were found ('hits'), compiled ('misses'), 'loaded' from the folder, "
           "'evicted', have 'failed', were 'dropped' or are 'waiting', are there ('kernels'), and "
           "the 'seconds' spent compiling.")
      .def(
          "wait_for_kernels",
          [](const PythonContext& c) { unlocked([&] { wait_for_kernels(*c.context); }); },
          "Returns when nothing is waiting to be compiled.")
      .def(
          "use_device",
          [](const PythonContext& c, std::string_view device,
             const std::optional<KernelOptions>& kernels) { run_on(*c.context, device, kernels); },
          "device"_a, "kernels"_a = nb::none(), "As gradus.use_device, for this context.");
  m.def(
      "current_context", [] { return PythonContext(autograd::current_context()); },
      "This thread's current context.");
  // Told apart by these while something keeps them.
  m.def("current_context_id",
        [] { return reinterpret_cast<uintptr_t>(autograd::current_context().get()); });
}

}  // namespace gradus::python
