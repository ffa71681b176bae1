// Large convolutions and their gradients go to cuDNN: what it is asked for, by its double, and of
// its descriptors by the library itself where it is found.
#include <dlfcn.h>

#include "devices/cuda/kernels.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/convolution_double.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

using Direction = work::Direction;

// Small whole numbers: sums of their products are exact in any order.
Tensor numbers(const ir::Type& type, uint64_t seed) {
  Sizes shape;
  for (const ir::Dim& d : type.dims) shape.push_back(d.value());
  std::vector<double> values;
  for (int64_t i = 0; i < numel(shape); ++i)
    values.push_back(
        static_cast<double>((static_cast<uint64_t>(i) * 2654435761u + seed * 40503u) >> 7 & 3) - 1);
  return Tensor::from(type.dtype, shape, values);
}
// All stages here and by the context's device, `times` over, in turn: the same bits.
void compare(const ir::Graph& graph, const std::shared_ptr<Context>& context, int times) {
  const auto code = Code::compile(graph);
  State there(code, context, {.fusion = FusionMode::first});
  State here(code, Context::default_context(), {.fusion = FusionMode::off});
  for (int run = 0; run < times; ++run) {
    if (run) there.restart(), here.restart();
    for (size_t stage = 0; stage < code->stages(); ++stage) {
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < code->inputs(stage); ++i)
        inputs.push_back(numbers(code->input_type(stage, i), 17 * stage + 5 * i + 1));
      const auto expected = here.run(inputs), got = there.run(inputs);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t r = 0; r < got.size(); ++r)
        EXPECT_TRUE(bitwise_equal(got[r], expected[r]))
            << "stage " << stage << ", result " << r << ", run " << run;
    }
  }
}
ir::Graph program(const std::string& text) { return ir::parse(text, "conv.ir").program(); }

class ConvolutionLibrary : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    convolution_double() = {};
    device_ = std::make_shared<InterpretedDevice>();
    convolution_double().memory = &device_->memory();
    device_->convolution_library =
        std::make_unique<const cuda::Convolutions>(convolution_double_table());
    context_ = std::make_shared<Context>(ContextOptions{});
    context_->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
        device_, KernelOptions{.folder = kernel_folder()}, nullptr));
  }
  void TearDown() override {
    if (!device_) return;
    EXPECT_EQ(convolution_double().faults, std::vector<std::string>());
    context_ = nullptr;
    device_->convolution_library = nullptr;
    EXPECT_EQ(convolution_double().left, 0);
  }

  void check(const ir::Graph& graph, int times = 1) { compare(graph, context_, times); }
  static size_t calls() { return convolution_double().calls.size(); }
  static size_t calls(Direction direction) {
    return static_cast<size_t>(
        std::ranges::count(convolution_double().calls, direction, &ConvolutionCall::direction));
  }

  std::shared_ptr<InterpretedDevice> device_;
  std::shared_ptr<Context> context_;
};

struct Case {
  const char *name, *x, *w, *attributes;
  DType dtype = DType::f32;
  int order = 2;
};

std::string text_of(const Case& c) {
  const std::string_view type = name_of(c.dtype);
  return fmt::format(
      "graph g {{ stage 0 (%x: {0}[{1}], %w: {0}[{2}]) {{\n"
      "  %y = convolution(%x, %w) {{{3}}}\n  return %y }} }}",
      type, c.x, c.w, c.attributes);
}

const Case cases[] = {
    {"TwoAxes", "2, 8, 22, 24", "16, 8, 3, 3", "padding = [1]"},
    {"Strides", "2, 8, 32, 30", "16, 8, 5, 3", "stride = [2, 1], padding = [0, 2]"},
    {"WindowsThatLeaveARest", "2, 8, 33, 48", "16, 8, 4, 4", "stride = [2]"},
    {"Dilation", "2, 8, 26, 22", "16, 8, 3, 3", "dilation = [2, 3], padding = [1, 3]"},
    {"Groups", "2, 16, 26, 24", "32, 4, 3, 3", "groups = 4, padding = [1]"},
    {"DepthWise", "4, 32, 32, 32", "32, 1, 3, 3", "groups = 32, padding = [1]"},
    {"OneAxis", "4, 16, 200", "16, 16, 7", "stride = [1], padding = [3], dilation = [1]"},
    {"OneAxisByTwo", "4, 16, 401", "16, 16, 7", "stride = [2], padding = [1], dilation = [2]"},
    {"ThreeAxes", "1, 4, 9, 12, 12", "16, 4, 3, 3, 3", "padding = [1, 0, 1], stride = [1, 1, 1]"},
    {"ThreeAxesByTwo", "2, 4, 15, 13, 14", "16, 4, 3, 2, 3",
     "padding = [1], stride = [2, 1, 1], dilation = [1, 1, 2]"},
    {"F64", "2, 8, 22, 24", "16, 8, 3, 3", "padding = [1]", DType::f64},
    {"F16", "2, 8, 22, 24", "16, 8, 3, 3", "padding = [1]", DType::f16, 1},
    {"Bf16", "2, 8, 22, 24", "16, 8, 3, 3", "padding = [1]", DType::bf16, 1},
};

class ConvolutionCases : public ConvolutionLibrary, public testing::WithParamInterface<Case> {};

// Every convolution of every stage is the library's, and has the bits of the CPU.
TEST_P(ConvolutionCases, AllDerivatives) {
  const ir::Graph graph =
      ir::differentiate(program(text_of(GetParam())), {.order = GetParam().order});
  check(graph);
  const bool twice = GetParam().order == 2;
  EXPECT_EQ(calls(Direction::result), twice ? 3u : 1u);
  EXPECT_EQ(calls(Direction::image), twice ? 2u : 1u);
  EXPECT_EQ(calls(Direction::kernel), twice ? 2u : 1u);
  for (const ConvolutionCall& call : convolution_double().calls) {
    const DType d = GetParam().dtype;
    EXPECT_EQ(call.type, d == DType::f64 ? 1 : d == DType::f32 ? 0 : d == DType::f16 ? 2 : 9);
    EXPECT_EQ(call.math, d == DType::f32 ? 3 : 1);
  }
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

INSTANTIATE_TEST_SUITE_P(All, ConvolutionCases, testing::ValuesIn(cases),
                         [](const auto& one) { return one.param.name; });

TEST_F(ConvolutionLibrary, IsToldSizesAndAttributes) {
  check(
      program("graph g { stage 0 (%x: f32[4, 16, 401], %w: f32[64, 4, 7]) {"
              "  %y = convolution(%x, %w) {stride = [2], padding = [5], dilation = [3],"
              " groups = 4} return %y } }"));
  ASSERT_EQ(calls(), 1u);
  const ConvolutionCall& c = convolution_double().calls[0];
  using List = std::vector<int>;
  EXPECT_EQ(c.image, (List{4, 16, 1, 401}));
  EXPECT_EQ(c.kernel, (List{64, 4, 1, 7}));
  EXPECT_EQ(c.result, (List{4, 64, 1, 197}));
  EXPECT_EQ(c.padding, (List{0, 5}));
  EXPECT_EQ(c.stride, (List{1, 2}));
  EXPECT_EQ(c.dilation, (List{1, 3}));
  EXPECT_EQ(c.groups, 4);
}

// Operands with gaps are copied first, since the library's kernels and algorithms want none.
TEST_F(ConvolutionLibrary, OfOperandsWithGaps) {
  check(program(R"(graph g { stage 0 (%x: f32[2, 24, 22, 8], %w: f32[8, 16, 3, 3]) {
    %xt = permute(%x) {dims = [0, 3, 1, 2]}
    %wt = permute(%w) {dims = [1, 0, 3, 2]}
    %y = convolution(%xt, %wt) {padding = [1]}
    return %y } })"));
  EXPECT_EQ(calls(), 1u);
}

// The first images of an odd number of elements are left out: our own tiles take what is left.
TEST_F(ConvolutionLibrary, IsNotGivenPointersThatAreNotAligned) {
  check(program(R"(graph g { stage 0 (%x: f32[2, 9, 33, 33], %w: f32[16, 9, 3, 3]) {
    %s = slice(%x) {dim = 0, start = 1, end = 2}
    %y = convolution(%s, %w)
    return %y } })"));
  EXPECT_GE(convolution_double().searches, 1);
  EXPECT_EQ(calls(), 0u);
}

TEST_F(ConvolutionLibrary, IsNotAskedForSmallOnes) {
  check(program(text_of({"", "1, 2, 8, 8", "3, 2, 3, 3", ""})));
  EXPECT_EQ(convolution_double().searches, 0);
}

constexpr Case refused{"", "1, 8, 32, 32", "16, 8, 3, 3", "padding = [1]"};

TEST_F(ConvolutionLibrary, MayHaveNothing) {
  convolution_double().find_status = 3000;
  check(program(text_of(refused)));
  EXPECT_GE(convolution_double().searches, 1);
  EXPECT_EQ(calls(), 0u);
}

// Neither what goes by transforms, nor what differs from run to run, nor what fails, nor what takes
// too much memory.
TEST_F(ConvolutionLibrary, MayHaveNoAlgorithmThatWillDo) {
  convolution_double().offered = {
      {6, 0, 1, 0, 1, 3, {}}, {1, 0, 1, 0, 0, 3, {}}, {1, 3000, 1, 0, 1, 3, {}}};
  check(program(text_of(refused)));
  convolution_double().offered = {};
  convolution_double().workspace_bytes = size_t{33} << 20;
  const int searches = convolution_double().searches;
  check(program(text_of(refused)));
  EXPECT_GT(convolution_double().searches, searches);
  EXPECT_EQ(calls(), 0u);
}

// What fails is told with its place and the library's own word for it.
TEST_F(ConvolutionLibrary, FailsWithItsPlaceAndStatus) {
  convolution_double().run_status = 5000;
  try {
    check(program(text_of(refused)));
    FAIL() << "it ran";
  } catch (const ResourceError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("conv.ir:2:"), std::string::npos) << what;
    EXPECT_NE(what.find("CUDNN_STATUS_EXECUTION_FAILED"), std::string::npos) << what;
  }
}

TEST_F(ConvolutionLibrary, MayNotStart) {
  convolution_double().create_status = 1001;
  try {
    const cuda::Convolutions none(convolution_double_table());
    FAIL() << "it started";
  } catch (const ResourceError& e) {
    EXPECT_EQ(std::string(e.what()), "cuDNN does not start: CUDNN_STATUS_NOT_INITIALIZED");
  }
}

TEST_F(ConvolutionLibrary, IsRecordedInGraphs) {
  check(program(R"(graph g { stage 0 (%x: f32[1, 8, 32, 32], %w: f32[8, 8, 5, 5]) {
    %a = convolution(%x, %w) {padding = [2]}
    %b = softmax(%a) {dim = 1}
    %c = sum(%b) {dim = [0]}
    %d = cumsum(%c) {dim = 0}
    %e = flip(%d) {dims = [0]}
    return %a, %e } })"),
        4);
  EXPECT_EQ(device_->recordings, 1u);
  EXPECT_GE(device_->replays, 2u);
  EXPECT_EQ(calls(), 4u);
}

// On the device at hand, if there is one with the library: sums of whole numbers are the same in
// any order.
TEST(ConvolutionsOnGpu, AllDerivatives) {
  if (const std::string why = cuda::why_no_device(0); !why.empty()) GTEST_SKIP() << why;
  const auto& library = cuda::convolution_library().library;
  if (!library) GTEST_SKIP() << library.fault;
  ASSERT_NE(cuda::open_device(0)->convolutions(), nullptr) << "it does not start";
  auto context = std::make_shared<Context>(ContextOptions{});
  cuda::use_device(*context, 0, {.folder = kernel_folder()});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    // The third run is of recorded launches.
    compare(ir::differentiate(program(text_of(c)), {.order = c.order}), context, 3);
  }
}

work::Convolution form(Direction direction, Sizes image, Sizes kernel, Sizes result,
                       work::ConvAxis axis) {
  work::Convolution f;
  f.direction = direction;
  for (size_t d = image.size(), a = 3; d-- > 2;) {
    f.axes[--a] = axis;
    f.axes[a].image = image[d], f.axes[a].kernel = kernel[d], f.axes[a].windows = result[d];
  }
  f.groups = image[1] / kernel[1];
  const Layout x(DType::f32, image), w(DType::f32, kernel), y(DType::f32, result);
  f.first = direction == Direction::image ? y : x;
  f.second = direction == Direction::kernel ? y : w;
  f.result = direction == Direction::result ? y : direction == Direction::image ? x : w;
  return f;
}

// Gradients of convolutions with fewer windows than fit are for our own tiles.
TEST_F(ConvolutionLibrary, TakesAllWindowsAlone) {
  const work::ConvAxis by_two{.stride = 2};
  const auto& library = *device_->convolution_library;
  for (Direction d : {Direction::image, Direction::kernel}) {
    EXPECT_NE(library.make(form(d, {1, 2, 9, 9}, {3, 2, 3, 3}, {1, 3, 4, 4}, by_two)), nullptr);
    EXPECT_EQ(library.make(form(d, {1, 2, 9, 9}, {3, 2, 3, 3}, {1, 3, 4, 3}, by_two)), nullptr);
  }
  EXPECT_EQ(convolution_double().searches, 2);
}

// The library itself, which needs no device for that, finds our descriptors to fit. Only what asks
// a device is the double's.
struct RealLibrary {
  int (*output)(cuda::CudnnWhat*, cuda::CudnnTensor*, cuda::CudnnFilter*, int, int*) = nullptr;
  int (*tensor)(cuda::CudnnTensor*, int, int*, int*, int*, int*) = nullptr;
  std::vector<int> result, expected;

  void look(cuda::CudnnTensor* x, cuda::CudnnFilter* w, cuda::CudnnWhat* c, cuda::CudnnTensor* y) {
    int type = 0, rank = 0, sizes[8] = {}, strides[8] = {}, out[8] = {};
    if (tensor(y, 8, &type, &rank, sizes, strides) || output(c, x, w, rank, out)) return;
    result.assign(sizes, sizes + rank);
    expected.assign(out, out + rank);
  }
};
RealLibrary& real() {
  static RealLibrary self;
  return self;
}
constexpr int no_device = 3000;

TEST(ConvolutionLibraryItself, TakesOurDescriptors) {
  const auto& late = cuda::convolution_library();
  if (!late.library) GTEST_SKIP() << late.library.fault;
  auto find = [&](auto*& f, const char* name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(late.library.handle, name));
    ASSERT_NE(f, nullptr) << name;
  };
  find(real().output, "cudnnGetConvolutionNdForwardOutputDim");
  find(real().tensor, "cudnnGetTensorNdDescriptor");
  cuda::ConvolutionTable table = late.table;
  table.create = [](cuda::CudnnHandle** h) {
    *h = nullptr;
    return 0;
  };
  table.destroy = [](cuda::CudnnHandle*) { return 0; };
  table.find_result = [](cuda::CudnnHandle*, cuda::CudnnTensor* x, cuda::CudnnFilter* w,
                         cuda::CudnnWhat* c, cuda::CudnnTensor* y, int, int*, cuda::CudnnFound*) {
    real().look(x, w, c, y);
    return no_device;
  };
  table.find_image = [](cuda::CudnnHandle*, cuda::CudnnFilter* w, cuda::CudnnTensor* y,
                        cuda::CudnnWhat* c, cuda::CudnnTensor* x, int, int*, cuda::CudnnFound*) {
    real().look(x, w, c, y);
    return no_device;
  };
  table.find_kernel = [](cuda::CudnnHandle*, cuda::CudnnTensor* x, cuda::CudnnTensor* y,
                         cuda::CudnnWhat* c, cuda::CudnnFilter* w, int, int*, cuda::CudnnFound*) {
    real().look(x, w, c, y);
    return no_device;
  };
  const cuda::Convolutions library(table);
  for (Direction d : {Direction::result, Direction::image, Direction::kernel})
    for (const auto& [f, sizes] :
         {std::pair{form(d, {2, 6, 19}, {4, 3, 3}, {2, 4, 8}, {.stride = 2, .dilation = 2}),
                    std::vector{2, 4, 1, 8}},
          {form(d, {2, 6, 9, 8}, {4, 6, 3, 3}, {2, 4, 9, 8}, {.padding = 1}),
           std::vector{2, 4, 9, 8}},
          {form(d, {2, 6, 9, 8, 7}, {4, 2, 3, 3, 3}, {2, 4, 4, 3, 3}, {.stride = 2}),
           std::vector{2, 4, 4, 3, 3}}}) {
      real().result = real().expected = {};
      EXPECT_EQ(library.make(f), nullptr);
      EXPECT_EQ(real().result, sizes);
      EXPECT_EQ(real().expected, sizes);
    }
}

}  // namespace
}  // namespace gradus::fusion::test
