// NonMaxSuppression: of boxes that overlap, the one with the best score.
#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Each box costs a few nodes, and a comparison with every other.
constexpr int64_t most_boxes = 1024;

Value part(const Value& v, int64_t dim, int64_t index) {
  return emit("select", {v}, {{"dim", dim, {}}, {"index", index, {}}});
}

// The two ends of boxes [.., 4] along one axis, and how long they are.
struct Extent {
  Value low, high;
  Value length() const { return high - low; }
};
Extent extent_of(const Value& boxes, int64_t axis, bool centered) {
  Value a = part(boxes, -1, axis), b = part(boxes, -1, axis + 2);
  if (!centered) return {binary("minimum", a, b), binary("maximum", a, b)};
  return {a - b / 2.0, a + b / 2.0};
}

// How much of two extents is common, for each of [.., n] with each.
Value common(const Extent& e) {
  Value high = binary("minimum", unsqueeze(e.high, -1), unsqueeze(e.high, -2));
  Value low = binary("maximum", unsqueeze(e.low, -1), unsqueeze(e.low, -2));
  return unary("relu", high - low);
}

// Intersection over union, [.., n, n].
Value overlaps(const Value& boxes, bool centered) {
  Extent y = extent_of(boxes, 0, centered), x = extent_of(boxes, 1, centered);
  Value area = y.length() * x.length();
  Value both = common(y) * common(x);
  Value either = unsqueeze(area, -1) + unsqueeze(area, -2) - both;
  return where(gt(both, num(0.0)), both / either, num(0.0));
}

// One number, of [] or [1].
Value number_of(Call& c, size_t i) { return reshape(c.x(i), {}); }

void suppress(Call& c) {
  Value boxes = c.x(0), scores = c.x(1);
  if (boxes.rank() != 3 || scores.rank() != 3)
    c.fail("it wants boxes [N, boxes, 4] and scores [N, classes, boxes]");
  auto n = boxes.dims()[1].constant();
  if (!n || *n > most_boxes)
    c.unsupported("NonMaxSuppression of {} boxes", boxes.dims()[1].to_string());
  auto sorted =
      emit_all(c.world(), "sort", std::vector{scores}, {{"dim", 2, {}}, {"descending", true, {}}});
  Value order = sorted[1];
  Value sample = reshape(counted(c, boxes.dims()[0]), {boxes.dims()[0], 1, 1});
  Value by_score = emit_all(c.world(), "index", std::vector{boxes, sample, order})[0];
  Value iou = overlaps(by_score, c.attribute("center_point_box", int64_t{0}) != 0);
  Value near = c.given(3) ? gt(iou, number_of(c, 3)) : gt(iou, num(0.0));
  Value alive =
      c.given(4) ? gt(sorted[0], number_of(c, 4)) : cast(ones_like(order), DType::boolean);
  Value place = counted(c, *n);
  for (int64_t i = 0; i < *n; ++i) {
    Value here = unsqueeze(part(alive, 2, i), 2);
    Value others = logical_and(part(near, 2, i), gt(place, num(i)));
    alive = logical_and(alive, logical_not(logical_and(here, others)));
  }
  Value rank = emit("cumsum", {cast(alive, DType::i64)}, {{"dim", 2, {}}});
  Value most = c.given(2) ? number_of(c, 2) : ops::full(c.world(), {}, 0, DType::i64);
  alive = logical_and(alive, le(rank, most));
  LiteralList count;
  if (!c.folding()) count.push_back({"count", c.importer().fresh_size(), {}});
  // By sample, class and score; the last number is the box's own.
  Value at = emit("nonzero", {alive}, count);
  Value i = part(at, 1, 0), j = part(at, 1, 1), k = part(at, 1, 2);
  Value box = emit_all(c.world(), "index", std::vector{order, i, j, k})[0];
  c.give(emit_all(c.world(), "stack", std::vector{i, j, box}, {{"dim", 1, {}}})[0]);
}

constexpr RuleEntry detection_table[] = {
    {"NonMaxSuppression", 10, suppress},
};

}  // namespace

std::span<const RuleEntry> detection_rules() { return detection_table; }

}  // namespace gradus::onnx
