#include "ops/convolution.h"

#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/families.h"
#include "ops/image_axes.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

// Both operands are images or kernels of one floating dtype; returns the spatial dimensions.
int check_operands(const InferCall& call, const ConvAttr& a) {
  const Type &x = call.tensor(0), &w = call.tensor(1);
  std::string_view first = call.op.operands[0].name, second = call.op.operands[1].name;
  if (!x.is_floating() || x.dtype != w.dtype)
    call.fail("'{}' is {} and '{}' is {}; both must have one floating dtype, cast them", first,
              to_string(x), second, to_string(w));
  const int spatial = x.rank() - 2;
  if (spatial < 1 || spatial > work::conv_axes || w.rank() != x.rank())
    call.fail("'{}' is {} and '{}' is {}; both must have 3, 4 or 5 dimensions, [N, C, ..]", first,
              to_string(x), second, to_string(w));
  check_list(call, "stride", a.stride, spatial, 1);
  check_list(call, "padding", a.padding, spatial, 0);
  check_list(call, "dilation", a.dilation, spatial, 1);
  if (a.groups.is_constant() && (a.groups.value() < 1 || a.groups.value() > window_limit))
    call.fail("'groups' is {}; it must be from 1 to {}", a.groups.value(), window_limit);
  return spatial;
}

void check_divides(const InferCall& call, const ConvAttr& a, const Dim& channels,
                   std::string_view what) {
  if (channels.is_constant() && a.groups.is_constant() && channels.value() % a.groups.value() != 0)
    call.fail("'groups' is {}, which does not divide the {} {}", a.groups.value(), channels.value(),
              what);
}

// How many windows fit along axis d.
Dim windows(const ConvAttr& a, int d, const Dim& image, const Dim& kernel) {
  return window_count(image, kernel, along(a.stride, d), along(a.padding, d), along(a.dilation, d));
}

void check_windows(const InferCall& call, const ConvAttr& a, int d, const Dim& image,
                   const Dim& kernel, const Dim* given) {
  if (!image.is_constant() || !kernel.is_constant()) return;
  if (kernel.value() < 1 || kernel.value() > window_limit || image.value() < 0)
    call.fail("an image of size {} and a kernel of size {} along spatial dimension {}",
              image.value(), kernel.value(), d);
  int64_t most = windows(a, d, image, kernel).value();
  if (most < 1)
    call.fail("a kernel of {} with dilation {} is larger than the image of {} with padding {}",
              kernel.value(), along(a.dilation, d), image.value(), along(a.padding, d));
  if (given && given->is_constant() && given->value() > most)
    call.fail("'dy' has {} windows along spatial dimension {}; {} fit", given->value(), d, most);
}

// Whether channels and samples go together. An empty batch may have no groups.
bool fits(int64_t groups, const Layout& image, const Layout& kernel, const Layout& result) {
  if (groups < 0 || result.shape[1] != kernel.shape[0] || result.shape[0] != image.shape[0])
    return false;
  if (groups == 0) return kernel.shape[0] == 0 && image.shape[1] == 0;
  return kernel.shape[0] % groups == 0 && image.shape[1] % groups == 0 &&
         image.shape[1] / groups == kernel.shape[1];
}

// The sizes of a run, checked: images of `image`, kernels of `kernel`, results of `result`.
work::ConvAxes axes_of(const BindCall& call, const ConvAttr& a, const Layout& image,
                       const Layout& kernel, const Layout& result) {
  work::ConvAxes axes;
  const int spatial = image.rank() - 2;
  if (const int64_t groups = call.size(a.groups); !fits(groups, image, kernel, result))
    call.fail("with {} groups, images {}, kernels {} and results {} do not go together", groups,
              to_string(image.shape), to_string(kernel.shape), to_string(result.shape));
  for (int d = 0; d < spatial; ++d) {
    work::ConvAxis& x = axes[work::conv_axes - spatial + d];
    x = {image.shape[d + 2], result.shape[d + 2], kernel.shape[d + 2],
         along(a.stride, d), along(a.padding, d), along(a.dilation, d)};
    if (x.kernel < 1 || x.kernel > window_limit || x.image < 0 || x.image > image_limit)
      call.fail("an image of size {} and a kernel of size {} along spatial dimension {}", x.image,
                x.kernel, d);
    int64_t room = x.image + 2 * x.padding - x.dilation * (x.kernel - 1) - 1;
    if (room < 0)
      call.fail("a kernel of {} with dilation {} is larger than the image of {} with padding {}",
                x.kernel, x.dilation, x.image, x.padding);
    if (x.windows > room / x.stride + 1)
      call.fail("'dy' has {} windows along spatial dimension {}; {} fit", x.windows, d,
                room / x.stride + 1);
  }
  return axes;
}

Dims spatial_of(const Type& t) { return Dims(t.dims.begin() + 2, t.dims.end()); }

// The convolution, less windows that `dims` does not have.
Value convolve(const Value& x, const Value& w, const ConvAttr& a, const Dims& dims) {
  Value y = emit<Convolution>({x, w}, a);
  for (int d = 2; d < y.rank(); ++d)
    if (y.dims()[d] != dims[d]) y = slice(y, d, 0, dims[d]);
  return y;
}
Value input_gradient(const Value& dy, const Value& w, const ConvAttr& a, const Type& x) {
  return emit<ConvolutionInput>({dy, w}, {a, spatial_of(x)});
}
Value weight_gradient(const Value& x, const Value& dy, const ConvAttr& a, const Type& w) {
  return emit<ConvolutionWeight>({x, dy}, {a, spatial_of(w)});
}

void set_convolution(BindCall& call, work::Direction direction, const work::ConvAxes& axes,
                     const Dim& groups) {
  const int64_t n = call.size(groups);
  if (n == 0) return call.set_work(work::Move());
  call.set_work(work::Convolution{direction, axes, n, call.in[0], call.in[1], call.out[0]});
}

// The first two dimensions of images [N, C, ..] or kernels [O, C / groups, ..], with the groups
// apart: [N, groups, C / groups] or [groups, O / groups, C / groups].
enum class Side : uint8_t { images, kernels };
Dims with_groups(const Dims& dims, Side side, const Dim& groups) {
  Dims apart = side == Side::images ? Dims{dims[0], groups, floor_div(dims[1], groups)}
                                    : Dims{groups, floor_div(dims[0], groups), dims[1]};
  apart.append(dims.begin() + 2, dims.end());
  return apart;
}
Dims without_groups(const Dims& apart, Side side) {
  Dims dims = side == Side::images ? Dims{apart[0], apart[1] * apart[2]}
                                   : Dims{apart[0] * apart[1], apart[2]};
  dims.append(apart.begin() + 3, apart.end());
  return dims;
}
// Where the groups are among those.
int place_of_groups(Side side) { return side == Side::images ? 1 : 0; }

Value moved(const Value& x, int from, int to) {
  Ints order;
  for (int d = 0; d < x.rank(); ++d) order.push_back(d);
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return from == to ? x : permute(x, order);
}

// Operand i with the batch as a part of its dimension `place` with the groups apart.
Value with_batch_in(const BatchedCall& c, size_t i, Side side, int place, const Dim& groups) {
  const Value x = c.stretched(i);
  Dims dims = with_groups(Dims(x.dims().begin() + 1, x.dims().end()), side, groups);
  Value y = moved(reshape(x, c.with_batch(dims)), 0, place);
  dims[place] = c.size * dims[place];
  return reshape(y, without_groups(dims, side));
}
// Takes the batch out of a result that has it so.
Value batch_out_of(const BatchedCall& c, const Value& y, Side side, int place, const Dim& groups) {
  Dims dims = with_groups(c.results[0].dims, side, groups);
  dims.insert(dims.begin() + place, c.size);
  return reshape(moved(reshape(y, dims), place, 0), c.with_batch(c.results[0].dims));
}

// Each of the batch has groups of its own.
template <class Attr>
BatchedResults batch_as_groups(const BatchedCall& c, Attr a, Side second, Side result) {
  const Dim groups = a.groups;
  if (c.size == Dim(0))
    return {zeros_of(c.world, Type(c.results[0].dtype, c.with_batch(c.results[0].dims)))};
  const Value x = with_batch_in(c, 0, Side::images, place_of_groups(Side::images), groups);
  const Value w = with_batch_in(c, 1, second, place_of_groups(second), groups);
  a.groups = c.size * groups;
  Value y = c.world.emit(c.op, make_attributes(a), std::array{x, w})[0];
  return {batch_out_of(c, y, result, place_of_groups(result), groups)};
}

// Of images and kernels, which give images: where one side is the same for all of the batch there
// are more samples, or more of the kernels' dimension `own` and so of the result's channels.
template <class Attr>
BatchedResults batch_images(const BatchedCall& c, const Attr& a, int own) {
  if (!c.batched[1]) return batch_samples(c);
  if (c.batched[0]) return batch_as_groups(c, a, Side::kernels, Side::images);
  const Value w = with_batch_in(c, 1, Side::kernels, own, a.groups);
  Value y = c.world.emit(c.op, c.attributes, std::array{c.operands[0], w})[0];
  return {batch_out_of(c, y, Side::images, 2, a.groups)};
}

}  // namespace

void Convolution::infer(InferCall& call, const Attr& a) {
  const int spatial = check_operands(call, a);
  const Type &x = call.tensor(0), &w = call.tensor(1);
  check_divides(call, a, w.dims[0], "output channels of 'w'");
  call.require_equal(x.dims[1], w.dims[1] * a.groups,
                     "the channels of 'x', and groups * dimension 1 of 'w'");
  Dims dims{x.dims[0], w.dims[0]};
  for (int d = 0; d < spatial; ++d) {
    check_windows(call, a, d, x.dims[d + 2], w.dims[d + 2], nullptr);
    dims.push_back(windows(a, d, x.dims[d + 2], w.dims[d + 2]));
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Convolution::bind(BindCall& call, const Attr& a) {
  set_convolution(call, work::Direction::result,
                  axes_of(call, a, call.in[0], call.in[1], call.out[0]), a.groups);
}
void Convolution::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return input_gradient(d.dy(), d.x(1), a, d.x_type(0)); });
  d.give(1, [&] { return weight_gradient(d.x(0), d.dy(), a, d.x_type(1)); });
}

BatchedResults Convolution::batch(const BatchedCall& c, const Attr& a) {
  return batch_images(c, a, 1);
}

void ConvolutionInput::infer(InferCall& call, const Attr& a) {
  const int spatial = check_operands(call, a);
  const Type &dy = call.tensor(0), &w = call.tensor(1);
  if (static_cast<int>(a.size.size()) != spatial)
    call.fail("'size' is {}; it must name {} spatial sizes", to_string(a.size), spatial);
  check_divides(call, a, w.dims[0], "output channels of 'w'");
  call.require_equal(dy.dims[1], w.dims[0], "the channels of 'dy', and dimension 0 of 'w'");
  Dims dims{dy.dims[0], w.dims[1] * a.groups};
  for (int d = 0; d < spatial; ++d) {
    check_windows(call, a, d, a.size[d], w.dims[d + 2], &dy.dims[d + 2]);
    dims.push_back(a.size[d]);
  }
  call.out.emplace_back(dy.dtype, std::move(dims), dy.device);
}
void ConvolutionInput::bind(BindCall& call, const Attr& a) {
  if (!checked_numel(call.out[0].shape))
    call.fail("the shape {} is not one", to_string(call.out[0].shape));
  set_convolution(call, work::Direction::image,
                  axes_of(call, a, call.out[0], call.in[1], call.in[0]), a.groups);
}
void ConvolutionInput::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return convolve(d.dy(), d.x(1), a, d.x_type(0).dims); });
  d.give(1, [&] { return weight_gradient(d.dy(), d.x(0), a, d.x_type(1)); });
}

BatchedResults ConvolutionInput::batch(const BatchedCall& c, const Attr& a) {
  return batch_images(c, a, 2);
}

void ConvolutionWeight::infer(InferCall& call, const Attr& a) {
  const int spatial = check_operands(call, a);
  const Type &x = call.tensor(0), &dy = call.tensor(1);
  if (static_cast<int>(a.kernel.size()) != spatial)
    call.fail("'kernel' is {}; it must name {} spatial sizes", to_string(a.kernel), spatial);
  check_divides(call, a, x.dims[1], "channels of 'x'");
  check_divides(call, a, dy.dims[1], "channels of 'dy'");
  call.require_equal(x.dims[0], dy.dims[0], "the batches of 'x' and 'dy'");
  Dims dims{dy.dims[1], floor_div(x.dims[1], a.groups)};
  for (int d = 0; d < spatial; ++d) {
    check_windows(call, a, d, x.dims[d + 2], a.kernel[d], &dy.dims[d + 2]);
    dims.push_back(a.kernel[d]);
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void ConvolutionWeight::bind(BindCall& call, const Attr& a) {
  if (!checked_numel(call.out[0].shape))
    call.fail("the shape {} is not one", to_string(call.out[0].shape));
  set_convolution(call, work::Direction::kernel,
                  axes_of(call, a, call.in[0], call.out[0], call.in[1]), a.groups);
}
void ConvolutionWeight::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return input_gradient(d.x(1), d.dy(), a, d.x_type(0)); });
  d.give(1, [&] { return convolve(d.x(0), d.dy(), a, d.x_type(1).dims); });
}
BatchedResults ConvolutionWeight::batch(const BatchedCall& c, const Attr& a) {
  return batch_as_groups(c, a, Side::images, Side::kernels);
}

namespace {

// x as a batch, of one where a sample comes alone.
Value as_batch(const ComposeCall& c, int spatial) {
  const Value &x = floating_operand(c, 0), &w = floating_operand(c, 1);
  if (x.rank() != spatial + 2 && x.rank() != spatial + 1)
    c.fail("operand 'x' is {}; it must have {} dimensions, or {} for one sample", to_string(x.type),
           spatial + 2, spatial + 1);
  if (w.rank() != spatial + 2)
    c.fail("operand 'w' is {}; it must have {} dimensions", to_string(w.type), spatial + 2);
  return x.rank() == spatial + 2 ? x : unsqueeze(x, 0);
}

void give_with_bias(ComposeCall& c, Value y) {
  if (Value b = per_channel(c, 2, y); b.defined()) {
    if (b.dtype() != y.dtype())
      c.fail("operand 'b' is {}, 'x' is {}; cast one of them", to_string(c.x(2).type),
             to_string(c.x(0).type));
    y = y + b;
  }
  c.give(c.x(0).rank() == y.rank() ? y : squeeze(y, 0));
}

}  // namespace

template <int spatial>
void Conv<spatial>::compose(ComposeCall& c, const Attr& a) {
  Value x = as_batch(c, spatial);
  give_with_bias(c, emit<Convolution>({x, c.x(1)}, a));
}

template <int spatial>
void ConvTranspose<spatial>::compose(ComposeCall& c, const Attr& a) {
  Value x = as_batch(c, spatial);
  const Value& w = c.x(1);
  check_list(c, "stride", a.stride, spatial, 1);
  check_list(c, "padding", a.padding, spatial, 0);
  check_list(c, "dilation", a.dilation, spatial, 1);
  check_list(c, "output_padding", a.output_padding, spatial, 0);
  Dims size;
  for (int d = 0; d < spatial; ++d) {
    int64_t extra = along(a.output_padding, d);
    if (extra >= along(a.stride, d) && extra >= along(a.dilation, d))
      c.fail("'output_padding' is {}; it must be less than the stride or the dilation", extra);
    Dim n = (x.dims()[d + 2] - 1) * along(a.stride, d) - 2 * along(a.padding, d) +
            (w.dims()[d + 2] - 1) * along(a.dilation, d) + extra + 1;
    if (n.is_constant() && n.value() < 1)
      c.fail("'x' {} and 'w' {} leave nothing of spatial dimension {} with padding {}",
             to_string(x.type), to_string(w.type), d, along(a.padding, d));
    size.push_back(n);
  }
  give_with_bias(c, emit<ConvolutionInput>({x, w}, {a, size}));
}

Family convolution_family() { return fold<ConvolutionOperators>(); }

}  // namespace gradus::ops
