#include "autograd/saved_variable.h"

namespace gradus::autograd {

void refuse_changed(const std::string& name, const Tensor& t, uint64_t saved) {
  throw Error(
      "{} was changed in place (version {}, saved at version {}) and is needed for a "
      "derivative; work on a copy of it instead",
      name, t.version(), saved);
}

void refuse_freed(const std::string& name) {
  throw Error(
      "{} was freed by an earlier backward through this graph; keep the graph (keep_graph) to "
      "run it again",
      name);
}

void refuse_inference() {
  throw Error(
      "a variable made in inference mode cannot be kept for a derivative; make it outside, or "
      "use a clone made outside");
}

SavedVariable SavedVariable::input(const Variable& v) {
  SavedVariable s;
  if (!v.defined()) return s;
  if (v.is_inference()) refuse_inference();
  s.kind_ = Kind::input;
  s.data_ = v.data();
  s.edge_ = v.gradient_edge();
  s.version_ = v.data().version();
  return s;
}

SavedVariable SavedVariable::output(Tensor t, uint32_t output_number) {
  SavedVariable s;
  if (!t.defined()) return s;
  s.kind_ = Kind::output;
  s.version_ = t.version();
  s.data_ = std::move(t);
  s.edge_.input = output_number;
  return s;
}

const Tensor& SavedVariable::tensor(FunctionRef<std::string()> name) const {
  if (kind_ == Kind::released) refuse_freed(name());
  if (data_.defined() && data_.version() != version_) refuse_changed(name(), data_, version_);
  return data_;
}

Variable SavedVariable::unpack(const Ref<Node>& self, FunctionRef<std::string()> name) const {
  if (!tensor(name).defined()) return {};
  if (kind_ == Kind::output)
    return is_floating(data_.dtype()) ? Variable(data_, Edge{self, edge_.input}) : Variable(data_);
  if (edge_.node)
    if (Variable leaf = edge_.node->accumulates_into(); leaf.defined()) return leaf;
  return edge_.valid() ? Variable(data_, edge_) : Variable(data_);
}

Edge SavedVariable::edge(const Ref<Node>& self) const {
  if (kind_ != Kind::output) return edge_;
  return is_floating(data_.dtype()) ? Edge{self, edge_.input} : Edge();
}

SavedVariable SavedVariable::release() {
  SavedVariable held = std::move(*this);
  *this = SavedVariable();
  kind_ = held.kind_ == Kind::undefined ? Kind::undefined : Kind::released;
  return held;
}

}  // namespace gradus::autograd
