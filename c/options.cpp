// Options of contexts, derivatives and compiling.
#include "c/objects.h"
#include "gradus/devices.h"
#include "gradus/text.h"

namespace gradus::c {

namespace {

WholeStages whole_stages_of(gradus_whole_stages mode) {
  using enum WholeStages;
  constexpr WholeStages by_number[] = {small, off, always};
  if (mode < 0 || mode > GRADUS_WHOLE_STAGES_ALWAYS)
    throw Error("{} says of no stages that they are whole", mode);
  return by_number[mode];
}

KernelOptions kernel_options(const gradus_kernel_options* given) {
  const gradus_kernel_options o = known(given);
  KernelOptions options;
  if (o.folder) options.folder = o.folder;
  if (o.most_folder_bytes) options.most_folder_bytes = o.most_folder_bytes;
  if (o.most_kernels) options.most_kernels = o.most_kernels;
  options.vector_bits = o.vector_bits;
  options.always = o.always != 0;
  options.whole_stages = whole_stages_of(o.whole_stages);
  options.symbols = o.symbols != 0;
  options.atomics = o.atomics != 0;
  return options;
}

}  // namespace

DimSizes sizes_of(const gradus_dimension* sizes, size_t count) {
  DimSizes all;
  if (count) given(sizes, "the list of sizes");
  for (size_t i = 0; i < count; ++i)
    all.emplace(&given(sizes[i].name, "a dimension's name"), sizes[i].size);
  return all;
}

gradus_status context_set_kernels(gradus_context* context, const gradus_kernel_options* options) {
  return guarded([&] { set_kernel_options(*context_of(context), kernel_options(options)); });
}

gradus_status context_kernel_statistics(gradus_context* context,
                                        gradus_kernel_statistics* statistics) {
  return guarded([&] {
    const KernelStatistics s = kernel_statistics(*context_of(context));
    given(statistics, "where the statistics go") = {.hits = s.hits,
                                                    .misses = s.misses,
                                                    .loaded = s.loaded,
                                                    .evicted = s.evicted,
                                                    .failed = s.failed,
                                                    .dropped = s.dropped,
                                                    .waiting = s.waiting,
                                                    .kernels = s.kernels,
                                                    .seconds = s.seconds};
  });
}

gradus_status context_wait_for_kernels(gradus_context* context) {
  return guarded([&] { wait_for_kernels(*context_of(context)); });
}

gradus_status context_use_cuda(gradus_context* context, int32_t device,
                               const gradus_kernel_options* options) {
  return guarded([&] {
    if (device < 0 || device > UINT16_MAX) throw Error("cuda:{} is no device", device);
    use_device(*context_of(context), {DeviceKind::cuda, static_cast<uint16_t>(device)},
               kernel_options(options));
  });
}

gradus_status program_derive(const gradus_program* program,
                             const gradus_differentiate_options* options,
                             gradus_program** derived) {
  return guarded([&] {
    const gradus_differentiate_options o = known(options);
    if (o.order < 0) throw Error("derivatives of order {} are none", o.order);
    ir::DifferentiateOptions pass{
        .order = o.order, .cotangents = o.inputs_only == 0, .total = o.total != 0};
    if (o.wrt) {
      pass.wrt.emplace();
      for (size_t i = 0; i < o.wrt_count; ++i)
        pass.wrt->push_back(&given(o.wrt[i], "the name of an input"));
    }
    const gradus_program& from = given(program, "the program");
    auto graph = std::make_shared<const ir::Graph>(ir::differentiate(*from.graph, pass));
    given(derived, "where the program goes") = new gradus_program{std::move(graph), from.weights};
  });
}

gradus_status code_compile_with(const gradus_program* program,
                                const gradus_compile_options* options, gradus_code** code) {
  return guarded([&] {
    const gradus_compile_options o = known(options);
    CompileOptions compile;
    if (o.memory_budget)
      compile.memory_budget = {*o.memory_budget, sizes_of(o.sizes, o.size_count)};
    compile.fast_functions = o.fast_functions != 0;
    if (o.dump)
      compile.dump = [&o](std::string_view pass, const ir::Graph& graph) {
        o.dump(std::string(pass).c_str(), ir::print(graph).c_str(), o.user);
      };
    auto compiled = Code::compile(*given(program, "the program").graph, compile);
    given(code, "where the code goes") = new gradus_code{std::move(compiled)};
  });
}

}  // namespace gradus::c
