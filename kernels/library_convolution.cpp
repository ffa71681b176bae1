#include "kernels/library_convolution.h"

#include <algorithm>

#include "base/slots.h"
#include "kernels/libraries/onednn.h"

namespace gradus::kernels {

namespace {

// Multiplications from which on the library is called, and those that are worth a part of a batch.
constexpr double library_work = 1 << 17, part_work = 1 << 23, sum_work = 1 << 26;
constexpr int64_t most_parts = 16;
constexpr int64_t chunk_elements = 1 << 15;  // of partial sums added up at a time

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Parts are images, or for dw where it is larger than they are, channels of y: rows of dw.
struct LibraryPlan {
  Direction direction = Direction::result;
  bool by_rows = false;
  int64_t parts = 1, each = 1;                // images or rows of each part but the last
  int64_t source = 0, other = 0, target = 0;  // bytes from one part to the next
  int64_t elements = 0;                       // of a partial dw
  std::shared_ptr<const onednn::Convolution> whole, last;
  // Scratch memory: the kernels as either part wants them, partial sums, and slots.
  size_t last_at = 0, sums_at = 0, slots_at = 0, slot_bytes = 0;

  // Whether dw is a sum of parts.
  bool sums() const { return direction == Direction::kernel && parts > 1 && !by_rows; }
  const onednn::Convolution& part(int64_t i) const { return i + 1 == parts ? *last : *whole; }
};

// The parts' sums, one after the other, into those of the first.
void add_up(const LibraryPlan& p, float* sums, WorkerPool& workers) {
  workers.parallel_parts(p.elements, chunk_elements, [&](int64_t first, int64_t last) {
    const int64_t n = last - first;
    float* __restrict sum = sums + first;
    for (int64_t part = 1; part < p.parts; ++part) {
      const float* __restrict more = sum + part * p.elements;
      for (int64_t i = 0; i < n; ++i) sum[i] += more[i];
    }
  });
}

void run_library(const LibraryPlan& p, std::byte* const* args, KernelScope& scope) {
  std::byte* const sums = scope.scratch + p.sums_at;
  if (p.direction != Direction::kernel) {
    p.whole->prepare(args[1], scope.scratch);
    if (p.last != p.whole) p.last->prepare(args[1], scope.scratch + p.last_at);
  }
  run_in_slots(scope.workers, p.parts, [&](int64_t i, int64_t slot) {
    std::byte* target = p.sums() ? sums + i * p.elements * static_cast<int64_t>(sizeof(float))
                                 : args[2] + i * p.target;
    p.part(i).run(args[0] + i * p.source, args[1] + i * p.other, target,
                  scope.scratch + (i + 1 == p.parts ? p.last_at : 0),
                  scope.scratch + p.slots_at + static_cast<size_t>(slot) * p.slot_bytes);
  });
  if (!p.sums()) return;
  add_up(p, reinterpret_cast<float*>(sums), scope.workers);
  p.whole->finish(sums, args[2], scope.scratch + p.slots_at);
}

int64_t stride_bytes(const Layout& l, int dimension) {
  return l.strides[dimension] * static_cast<int64_t>(size_of(l.dtype));
}

// The size of n's parts, of which there are an even number, about `parts`.
int64_t part_of(int64_t n, int64_t parts) {
  if (parts <= 1) return n;
  parts += parts % 2;
  return (n + parts - 1) / parts;
}

void cut(LibraryPlan& p, const onednn::ConvolutionSizes& s, double work) {
  const int64_t batch = s.x.shape[0], rows = s.w.shape[0];
  int64_t parts = static_cast<int64_t>(std::min<double>(work / part_work, most_parts));
  if (p.direction == Direction::kernel) {
    const int64_t fitting = (s.x.numel() + s.y.numel()) / (4 * s.w.numel());
    p.by_rows = fitting < 2 && s.groups == 1 && rows >= 32;
    // Partial sums of dw are not to move more memory than the operands do.
    parts = std::min(parts, std::clamp<int64_t>(static_cast<int64_t>(work / sum_work), 2,
                                                std::max<int64_t>(fitting, 2)));
  }
  // A single image at a time is slow.
  if (!p.by_rows) parts = std::min({parts, std::max<int64_t>(2, batch / 2), batch});
  p.each = part_of(p.by_rows ? rows : batch, parts);
  if (p.by_rows) p.each = (p.each + 15) / 16 * 16;  // as many as a vector holds
  p.parts = ((p.by_rows ? rows : batch) + p.each - 1) / p.each;
  p.source = p.by_rows ? 0 : p.each * stride_bytes(p.direction == Direction::image ? s.y : s.x, 0);
  if (p.direction == Direction::kernel) p.other = p.each * stride_bytes(s.y, p.by_rows ? 1 : 0);
  p.target = p.each * stride_bytes(p.direction == Direction::kernel  ? s.w
                                   : p.direction == Direction::image ? s.x
                                                                     : s.y,
                                   0);
}

std::shared_ptr<const onednn::Convolution> make_part(const LibraryPlan& p,
                                                     onednn::ConvolutionSizes s, int64_t n) {
  if (p.by_rows)
    s.w.shape[0] = s.y.shape[1] = n;
  else
    s.x.shape[0] = s.y.shape[0] = n;
  s.partial = p.sums();
  return onednn::Convolution::make(s);
}

// False where the library has nothing.
bool make_parts(LibraryPlan& p, const onednn::ConvolutionSizes& s) {
  const int64_t n = p.by_rows ? s.w.shape[0] : s.x.shape[0], rest = n - (p.parts - 1) * p.each;
  p.whole = make_part(p, s, p.each);
  p.last = rest == p.each ? p.whole : make_part(p, s, rest);
  if (!p.last || !p.whole) return false;
  if (!p.sums()) return true;
  if (!p.whole->adds_up_with(*p.last)) {
    p.parts = 1;
    p.each = n;
    return make_parts(p, s);
  }
  p.elements = static_cast<int64_t>(p.whole->partial_bytes() / sizeof(float));
  return true;
}

}  // namespace

std::optional<Kernel> make_library(const Convolution& w) {
  const Direction direction = w.direction;
  onednn::ConvolutionSizes s;
  s.direction = direction;
  s.axes = w.axes;
  s.groups = w.groups;
  s.x = direction == Direction::image ? w.result : w.first;
  s.w = direction == Direction::kernel ? w.result : w.second;
  s.y = direction == Direction::result  ? w.result
        : direction == Direction::image ? w.first
                                        : w.second;
  if (std::min({s.x.numel(), s.w.numel(), s.y.numel()}) < 1) return std::nullopt;
  const double work =
      static_cast<double>(s.y.numel()) * static_cast<double>(s.w.numel() / s.w.shape[0]);
  if (work < library_work) return std::nullopt;
  LibraryPlan p;
  p.direction = direction;
  cut(p, s, work);
  if (!make_parts(p, s)) return std::nullopt;
  p.last_at = p.last == p.whole ? 0 : aligned(p.whole->shared_bytes());
  p.sums_at = p.last_at + aligned(p.last->shared_bytes());
  const auto sums = p.sums() ? static_cast<size_t>(p.parts * p.elements) * sizeof(float) : 0;
  p.slots_at = p.sums_at + aligned(sums);
  p.slot_bytes = aligned(std::max(p.whole->scratch_bytes(), p.last->scratch_bytes()));
  const size_t slots = static_cast<size_t>(std::min(p.parts, most_slots()));
  const size_t scratch = p.slots_at + slots * p.slot_bytes;
  return Kernel::of<run_library>(std::move(p), scratch);
}

}  // namespace gradus::kernels
