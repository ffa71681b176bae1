#include "io/onnx/item.h"

namespace gradus::onnx {

ir::Type type_of(const Tensor& tensor) {
  ir::Dims dims;
  for (int64_t n : tensor.shape()) dims.push_back(n);
  return ir::Type(tensor.dtype(), std::move(dims));
}

ItemPtr Item::of(Tensor known) {
  auto item = std::make_shared<Item>();
  item->type = type_of(known);
  item->known = std::move(known);
  return item;
}

ItemPtr Item::of(ops::Value value) {
  auto item = std::make_shared<Item>();
  item->type = value.type;
  item->value = std::move(value);
  return item;
}

ItemPtr Item::of_sizes(ir::Dims sizes, bool scalar) {
  Sizes shape;
  if (!scalar) shape.push_back(static_cast<int64_t>(sizes.size()));
  if (!ir::all_constant(sizes)) {
    auto item = std::make_shared<Item>();
    ir::Dims dims;
    for (int64_t n : shape) dims.push_back(n);
    item->type = ir::Type(DType::i64, std::move(dims));
    item->sizes = std::move(sizes);
    return item;
  }
  Tensor t = Tensor::empty(DType::i64, shape);
  auto* out = t.mutable_data_as<int64_t>();
  for (size_t i = 0; i < sizes.size(); ++i) out[i] = sizes[i].value();
  return of(std::move(t));
}

ItemPtr Item::sequence(std::vector<ItemPtr> items) {
  auto item = std::make_shared<Item>();
  item->kind = Kind::sequence;
  item->items = std::move(items);
  return item;
}

ItemPtr Item::nothing() {
  auto item = std::make_shared<Item>();
  item->kind = Kind::nothing;
  return item;
}

std::optional<ir::Dims> Item::as_sizes() const {
  if (!is_tensor()) return std::nullopt;
  if (sizes) return sizes;
  if (!known.defined() || known.rank() > 1 || !is_integral(known.dtype())) return std::nullopt;
  ir::Dims dims;
  for (int64_t n : known.to_int64s()) dims.push_back(n);
  return dims;
}

}  // namespace gradus::onnx
