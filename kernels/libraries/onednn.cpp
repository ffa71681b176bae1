#include "kernels/libraries/onednn.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/slots.h"
#include "gradus/error.h"

// OpenMP's own functions, without its compiler flag: nothing here is compiled for it.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace gradus::kernels::onednn {

namespace {

using dnnl::memory;

// While it lives, the library forms no team on this thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

const dnnl::engine& engine() {
  // Never destroyed: kernels that static objects hold may outlive this one.
  static const auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *e;
}

memory::data_type data_type(DType d) {
  return d == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

bool takes(DType d) {
  if (d == DType::f32) return true;
  // Elsewhere bf16 is emulated, or is not there.
  constexpr int wanted = dnnl_cpu_isa_avx512_core_bf16;
  static const bool bf16 = (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  return d == DType::bf16 && bf16;
}

// The library's own plain loops are no faster than ours.
bool is_plain_loop(const char* implementation) {
  std::string_view name = implementation;
  return name.starts_with("ref") || name.starts_with("gemm:ref") || name.starts_with("simple");
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Calls make(); null where it is refused.
template <class F>
auto unless_refused(F make) -> decltype(make()) {
  try {
    OneThread one;
    return make();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw ResourceError("oneDNN has no memory: {}", e.what());
    return {};
  }
}

// A primitive and all that a run of it needs, as many times as there may be runs at once.
class Primitive {
 public:
  struct Argument {
    int name;
    memory::desc layout;
  };
  // The attributes of every primitive: scratch memory is the caller's.
  static dnnl::primitive_attr attributes() {
    dnnl::primitive_attr a;
    a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return a;
  }

  template <class Descriptor>
  Primitive(dnnl::primitive primitive, const Descriptor& d, std::vector<Argument> arguments)
      : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    scratch_bytes_ = d.scratchpad_desc().get_size();
    if (scratch_bytes_ > page) scratch_bytes_ += page - 64;
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()});
    for (int64_t i = 0; i < most_slots(); ++i) lanes_.push_back(std::make_unique<Lane>(arguments_));
  }

  size_t scratch_bytes() const { return scratch_bytes_; }

  // `pointers` in the order of the arguments.
  void run(std::initializer_list<const std::byte*> pointers, std::byte* scratch) const {
    OneThread one;
    Taken lane(*this);
    size_t i = 0;
    auto set = [&](const std::byte* p) {
      // Reading and writing memory are one type there.
      check(dnnl_memory_set_data_handle(lane->memories[i++].get(), const_cast<std::byte*>(p)));
    };
    for (const std::byte* p : pointers) set(p);
    set(scratch_bytes_ ? scratch_at(scratch) : nullptr);
    check(dnnl_primitive_execute(primitive_.get(), lane->stream.get(),
                                 static_cast<int>(lane->arguments.size()), lane->arguments.data()));
  }

 private:
  // What is rearranged into it runs about 1 % faster from the start of a page.
  static constexpr size_t page = 4096;
  const std::byte* scratch_at(const std::byte* scratch) const {
    const size_t past = reinterpret_cast<uintptr_t>(scratch) % page;
    return scratch_bytes_ > page && past ? scratch + (page - past) : scratch;
  }

  struct Lane {
    explicit Lane(const std::vector<Argument>& args) : stream(engine()) {
      for (const Argument& a : args) {
        memories.emplace_back(a.layout, engine(), nullptr);
        arguments.push_back({a.name, memories.back().get()});
      }
    }
    std::atomic<bool> taken{false};
    dnnl::stream stream;
    std::vector<memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  // A lane of one's own: one made before, or a new one if more threads run than there are cores.
  class Taken {
   public:
    explicit Taken(const Primitive& p) {
      const size_t start = std::hash<std::thread::id>()(std::this_thread::get_id());
      for (size_t i = 0; i < p.lanes_.size(); ++i) {
        Lane& l = *p.lanes_[(start + i) % p.lanes_.size()];
        if (!l.taken.exchange(true, std::memory_order_acquire)) {
          lane_ = &l;
          return;
        }
      }
      own_ = std::make_unique<Lane>(p.arguments_);
      lane_ = own_.get();
    }
    ~Taken() { lane_->taken.store(false, std::memory_order_release); }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    Lane* operator->() const { return lane_; }

   private:
    std::unique_ptr<Lane> own_;
    Lane* lane_;
  };

  static void check(dnnl_status_t status) {
    if (status == dnnl_out_of_memory) throw ResourceError("oneDNN has no memory");
    GRADUS_CHECK(status == dnnl_success);
  }

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  size_t scratch_bytes_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// Whether a matrix is one that the library reads where it lies.
bool is_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

class OneProduct final : public Product {
 public:
  explicit OneProduct(std::unique_ptr<Primitive> primitive) : primitive_(std::move(primitive)) {}
  size_t scratch_bytes() const override { return primitive_->scratch_bytes(); }
  void run(const std::byte* a, const std::byte* b, std::byte* c,
           std::byte* scratch) const override {
    primitive_->run({a, b, c}, scratch);
  }

 private:
  std::unique_ptr<Primitive> primitive_;
};

memory::desc matrices(const ProductSizes& s, int64_t rows, int64_t columns, int64_t entry,
                      int64_t row, int64_t column) {
  const memory::data_type type = data_type(s.dtype);
  if (s.entries == 1) return memory::desc({rows, columns}, type, {row, column});
  return memory::desc({entry ? s.entries : 1, rows, columns}, type,
                      {entry ? entry : rows * columns, row, column});
}

}  // namespace

std::shared_ptr<const Product> Product::make(const ProductSizes& s) {
  if (!takes(s.dtype) || std::min({s.m, s.n, s.k}) < 1 || std::max({s.m, s.n, s.k}) > INT32_MAX ||
      !is_matrix(s.m, s.k, s.a_row, s.a_column) || !is_matrix(s.k, s.n, s.b_row, s.b_column))
    return nullptr;
  return unless_refused([&]() -> std::shared_ptr<const Product> {
    const memory::desc a = matrices(s, s.m, s.k, s.a_entry, s.a_row, s.a_column),
                       b = matrices(s, s.k, s.n, s.b_entry, s.b_row, s.b_column),
                       c = matrices(s, s.m, s.n, s.m * s.c_row, s.c_row, 1);
    dnnl::matmul::primitive_desc d(dnnl::matmul::desc(a, b, c), Primitive::attributes(), engine());
    if (is_plain_loop(d.impl_info_str())) return nullptr;
    return std::make_shared<OneProduct>(std::make_unique<Primitive>(
        dnnl::matmul(d), d,
        std::vector<Primitive::Argument>{
            {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}));
  });
}

namespace {

// An operand of a convolution: as the caller has it, as the library wants it, and what leads from
// one to the other (nothing where they are the same).
struct Operand {
  memory::desc plain, wanted;
  std::unique_ptr<Primitive> reorder;

  // `inward`: from the caller's to the library's. `apart`: even where they are the same.
  void settle(const memory::desc& library, bool inward, bool apart = false) {
    wanted = library;
    if (plain == wanted && !apart) return;
    const memory::desc &from = inward ? plain : wanted, &to = inward ? wanted : plain;
    dnnl::reorder::primitive_desc d(engine(), from, engine(), to, Primitive::attributes());
    reorder = std::make_unique<Primitive>(
        dnnl::reorder(d), d,
        std::vector<Primitive::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }
  size_t bytes() const { return reorder ? aligned(wanted.get_size()) : 0; }
  size_t scratch_bytes() const { return reorder ? reorder->scratch_bytes() : 0; }
};

// Where the parts of a run's scratch memory begin; the steps' own scratch memory is shared.
class OneConvolution final : public Convolution {
 public:
  OneConvolution(const ConvolutionSizes& s, Operand source, Operand other, Operand target,
                 std::unique_ptr<Primitive> primitive)
      : direction_(s.direction),
        partial_(s.partial),
        source_(std::move(source)),
        other_(std::move(other)),
        target_(std::move(target)),
        primitive_(std::move(primitive)) {
    steps_ = std::max({source_.scratch_bytes(), other_.scratch_bytes(), target_.scratch_bytes(),
                       primitive_->scratch_bytes()});
  }

  size_t partial_bytes() const override { return target_.wanted.get_size(); }
  bool adds_up_with(const Convolution& other) const override {
    return target_.wanted == static_cast<const OneConvolution&>(other).target_.wanted;
  }
  void finish(const std::byte* sum, std::byte* target, std::byte* scratch) const override {
    target_.reorder->run({sum, target}, scratch);
  }

  size_t shared_bytes() const override {
    return direction_ == Direction::kernel ? 0 : other_.bytes() + aligned(other_.scratch_bytes());
  }
  size_t scratch_bytes() const override {
    return source_.bytes() + target_.bytes() + aligned(steps_) +
           (direction_ == Direction::kernel ? other_.bytes() : 0);
  }

  void prepare(const std::byte* w, std::byte* shared) const override {
    if (direction_ != Direction::kernel && other_.reorder)
      other_.reorder->run({w, shared}, shared + other_.bytes());
  }

  void run(const std::byte* source, const std::byte* other, std::byte* target,
           const std::byte* shared, std::byte* scratch) const override {
    std::byte* next = scratch + aligned(steps_);
    auto rearranged = [&](const Operand& o, const std::byte* from) {
      if (!o.reorder) return from;
      std::byte* to = std::exchange(next, next + o.bytes());
      o.reorder->run({from, to}, scratch);
      return static_cast<const std::byte*>(to);
    };
    source = rearranged(source_, source);
    if (direction_ == Direction::kernel)
      other = rearranged(other_, other);
    else if (other_.reorder)
      other = shared;
    const bool rearranges = target_.reorder && !partial_;
    primitive_->run({source, other, rearranges ? next : target}, scratch);
    if (rearranges) target_.reorder->run({next, target}, scratch);
  }

 private:
  Direction direction_;
  bool partial_;
  Operand source_, other_, target_;
  std::unique_ptr<Primitive> primitive_;
  size_t steps_ = 0;
};

// A tensor's layout as the library says it. Null where elements may be read twice.
std::optional<memory::desc> descriptor(const Layout& l, int64_t groups) {
  int64_t extent = 1;
  for (int d = 0; d < l.rank(); ++d) {
    if (l.strides[d] < 1 && l.shape[d] > 1) return std::nullopt;
    extent += (l.shape[d] - 1) * l.strides[d];
  }
  if (extent < l.numel()) return std::nullopt;
  memory::dims shape, strides;
  if (groups > 1) {
    shape = {groups};
    strides = {l.shape[0] / groups * l.strides[0]};
  }
  shape.insert(shape.end(), l.shape.begin(), l.shape.end());
  for (int64_t s : l.strides) strides.push_back(std::max<int64_t>(s, 1));
  if (groups > 1) shape[1] /= groups;
  return memory::desc(shape, data_type(l.dtype), strides);
}

memory::desc as_liked(const memory::desc& d, memory::data_type type) {
  return memory::desc(d.dims(), type, memory::format_tag::any);
}
memory::desc as_liked(const memory::desc& d) { return as_liked(d, d.data_type()); }

struct Geometry {
  memory::dims strides, dilations, before, after;

  explicit Geometry(const ConvolutionSizes& s) {
    for (int d = work::conv_axes - (s.x.rank() - 2); d < work::conv_axes; ++d) {
      const ConvAxis& a = s.axes[d];
      strides.push_back(a.stride);
      dilations.push_back(a.dilation - 1);
      before.push_back(a.padding);
      // Such that the windows are those that y has.
      after.push_back((a.windows - 1) * a.stride + a.dilation * (a.kernel - 1) + 1 - a.image -
                      a.padding);
    }
  }
};

// Where the library rearranges what it gains nothing from: single elements of an image times a
// matrix, and image gradients of few channels, which its own layouts fill up to 16.
bool lies_well(const ConvolutionSizes& s) {
  const int64_t channels = s.w.shape[1];
  bool single = s.groups == 1;
  for (const ConvAxis& a : s.axes)
    single = single && a.kernel == 1 && a.stride == 1 && a.padding == 0;
  return single || (s.direction == Direction::image && channels < 8 && s.groups == 1);
}

struct Descriptors {
  memory::desc x, w, y;
};

std::shared_ptr<const Convolution> make_with(const ConvolutionSizes& s, const Descriptors& plain,
                                             const Descriptors& liked) {
  using Argument = Primitive::Argument;
  const Geometry g(s);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto attributes = Primitive::attributes();
  // For the gradients a hint only; a partial dw is of another dtype than w.
  const memory::desc kernel =
      s.direction == Direction::kernel ? as_liked(plain.w, plain.x.data_type()) : liked.w;
  dnnl::convolution_forward::primitive_desc forward(
      dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, algorithm, liked.x, kernel,
                                      liked.y, g.strides, g.dilations, g.before, g.after),
      attributes, engine());
  Operand x{plain.x, {}, {}}, w{plain.w, {}, {}}, y{plain.y, {}, {}};
  auto finish = [&](dnnl::primitive p, const auto& d, Operand source, Operand other, Operand target,
                    std::array<int, 3> names) -> std::shared_ptr<const Convolution> {
    if (is_plain_loop(d.impl_info_str())) return nullptr;
    std::vector<Argument> arguments{
        {names[0], source.wanted}, {names[1], other.wanted}, {names[2], target.wanted}};
    return std::make_shared<OneConvolution>(
        s, std::move(source), std::move(other), std::move(target),
        std::make_unique<Primitive>(std::move(p), d, std::move(arguments)));
  };
  if (s.direction == Direction::result) {
    x.settle(forward.src_desc(), true);
    w.settle(forward.weights_desc(), true);
    y.settle(forward.dst_desc(), false);
    return finish(dnnl::convolution_forward(forward), forward, std::move(x), std::move(w),
                  std::move(y), {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
  }
  if (s.direction == Direction::image) {
    dnnl::convolution_backward_data::primitive_desc d(
        dnnl::convolution_backward_data::desc(algorithm, liked.x, liked.w, liked.y, g.strides,
                                              g.dilations, g.before, g.after),
        attributes, engine(), forward);
    y.settle(d.diff_dst_desc(), true);
    w.settle(d.weights_desc(), true);
    x.settle(d.diff_src_desc(), false);
    return finish(dnnl::convolution_backward_data(d), d, std::move(y), std::move(w), std::move(x),
                  {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
  }
  dnnl::convolution_backward_weights::primitive_desc d(
      dnnl::convolution_backward_weights::desc(algorithm, liked.x, liked.w, liked.y, g.strides,
                                               g.dilations, g.before, g.after),
      attributes, engine(), forward);
  x.settle(d.src_desc(), true);
  y.settle(d.diff_dst_desc(), true);
  w.settle(d.diff_weights_desc(), false, s.partial);
  return finish(dnnl::convolution_backward_weights(d), d, std::move(x), std::move(y), std::move(w),
                {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS});
}

}  // namespace

std::shared_ptr<const Convolution> Convolution::make(const ConvolutionSizes& s) {
  if (!takes(s.x.dtype) || std::min({s.x.numel(), s.w.numel(), s.y.numel()}) < 1) return nullptr;
  for (const Layout* l : {&s.x, &s.w, &s.y})
    for (int64_t n : l->shape)
      if (n > INT32_MAX) return nullptr;
  return unless_refused([&]() -> std::shared_ptr<const Convolution> {
    auto x = descriptor(s.x, 1), w = descriptor(s.w, s.groups), y = descriptor(s.y, 1);
    if (!x || !w || !y) return nullptr;
    const Descriptors plain{*x, *w, *y};
    Descriptors computed = plain;
    if (s.partial) computed.w = *descriptor(Layout(DType::f32, s.w.shape), s.groups);
    if (lies_well(s))
      if (auto c = unless_refused([&] { return make_with(s, plain, computed); })) return c;
    return make_with(s, plain, {as_liked(computed.x), as_liked(computed.w), as_liked(computed.y)});
  });
}

}  // namespace gradus::kernels::onednn
