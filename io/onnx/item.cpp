#include "io/onnx/item.h"

#include "io/onnx/model.h"

namespace gradus::onnx {

ir::Type type_of(const Tensor& tensor) {
  return ir::Type(tensor.dtype(), ir::Dims(tensor.shape().begin(), tensor.shape().end()));
}

bool fits(const Tensor& t, const ir::Type& type) {
  if (t.dtype() != type.dtype || t.rank() != type.rank()) return false;
  for (size_t k = 0; k < type.dims.size(); ++k)
    if (type.dims[k].is_constant() && type.dims[k].value() != t.shape()[k]) return false;
  return true;
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
    item->type = ir::Type(DType::i64, ir::Dims(shape.begin(), shape.end()));
    item->sizes = std::move(sizes);
    return item;
  }
  Sizes values;
  for (const ir::Dim& d : sizes) values.push_back(d.value());
  return of(tensor_with(values, shape));
}

ItemPtr Item::sequence(std::vector<ItemPtr> items) {
  for (const ItemPtr& i : items)
    if (i && i->kind == Kind::sequence) throw Error("a sequence of sequences is not supported");
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
  const auto values = known.to_int64s();
  return ir::Dims(values.begin(), values.end());
}

}  // namespace gradus::onnx
