#include "io/pt2/values.h"

namespace gradus::pt2 {

TensorValue::TensorValue(const TensorValue& of, View view) : TensorValue(of) {
  view_again(std::move(view));
}

const Value& TensorValue::read() {
  if (seen_writes_ == memory_->writes) return seen_;
  Value value = memory_->value;
  for (const View& v : path_) value = v.part(value);
  seen_ = std::move(value);
  seen_writes_ = memory_->writes;
  return seen_;
}

void TensorValue::write(const Value& value) {
  std::vector<Value> wholes;  // what each view of the path is taken of
  Value whole = memory_->value;
  for (const View& v : path_) {
    if (!v.with_part)
      throw Error("it writes through a view for which writes are not supported (expand, detach)");
    wholes.push_back(whole);
    whole = v.part(whole);
  }
  Value written = value;
  for (size_t i = path_.size(); i-- > 0;) written = path_[i].with_part(wholes[i], written);
  memory_->value = std::move(written);
  ++memory_->writes;
  seen_ = value;
  seen_writes_ = memory_->writes;
}

void TensorValue::view_again(View view) {
  seen_ = view.part(read());
  path_.push_back(std::move(view));
}

}  // namespace gradus::pt2
