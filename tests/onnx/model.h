// Small models for tests, written down in a few lines.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <onnx/onnx_pb.h>

#include "gradus/onnx.h"

namespace gradus::test {

namespace pb = ::onnx;

using Size = std::variant<int64_t, std::string>;

inline constexpr int f32 = pb::TensorProto::FLOAT, f64 = pb::TensorProto::DOUBLE,
                     i64 = pb::TensorProto::INT64, boolean = pb::TensorProto::BOOL;

inline pb::TensorProto tensor(const std::string& name, std::vector<int64_t> sizes,
                              const std::vector<float>& values) {
  pb::TensorProto t;
  t.set_name(name);
  t.set_data_type(f32);
  for (int64_t n : sizes) t.add_dims(n);
  for (float v : values) t.add_float_data(v);
  return t;
}
inline pb::TensorProto integers(const std::string& name, std::vector<int64_t> sizes,
                                const std::vector<int64_t>& values) {
  pb::TensorProto t;
  t.set_name(name);
  t.set_data_type(i64);
  for (int64_t n : sizes) t.add_dims(n);
  for (int64_t v : values) t.add_int64_data(v);
  return t;
}

// A node whose attributes follow: node("Concat", {"a", "b"}, {"y"}).set("axis", 1).
class Node {
 public:
  explicit Node(pb::NodeProto* node) : node_(node) {}
  Node& set(const std::string& name, int64_t v) {
    add(name, pb::AttributeProto::INT)->set_i(v);
    return *this;
  }
  Node& set(const std::string& name, int v) { return set(name, int64_t{v}); }
  Node& set(const std::string& name, float v) {
    add(name, pb::AttributeProto::FLOAT)->set_f(v);
    return *this;
  }
  Node& set(const std::string& name, const char* v) {
    add(name, pb::AttributeProto::STRING)->set_s(v);
    return *this;
  }
  Node& set(const std::string& name, std::vector<int64_t> list) {
    auto* a = add(name, pb::AttributeProto::INTS);
    for (int64_t v : list) a->add_ints(v);
    return *this;
  }
  Node& set_floats(const std::string& name, const std::vector<float>& list) {
    auto* a = add(name, pb::AttributeProto::FLOATS);
    for (float v : list) a->add_floats(v);
    return *this;
  }
  Node& set_texts(const std::string& name, const std::vector<std::string>& list) {
    auto* a = add(name, pb::AttributeProto::STRINGS);
    for (const std::string& v : list) a->add_strings(v);
    return *this;
  }
  Node& set(const std::string& name, const pb::TensorProto& t) {
    *add(name, pb::AttributeProto::TENSOR)->mutable_t() = t;
    return *this;
  }
  Node& set(const std::string& name, const pb::GraphProto& g) {
    *add(name, pb::AttributeProto::GRAPH)->mutable_g() = g;
    return *this;
  }
  Node& in_domain(const std::string& domain) {
    node_->set_domain(domain);
    return *this;
  }

 private:
  pb::AttributeProto* add(const std::string& name, pb::AttributeProto::AttributeType type) {
    auto* a = node_->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }
  pb::NodeProto* node_;
};

inline void describe_value(pb::ValueInfoProto* v, const std::string& name, int dtype,
                           const std::vector<Size>& sizes) {
  v->set_name(name);
  auto* t = v->mutable_type()->mutable_tensor_type();
  t->set_elem_type(dtype);
  t->mutable_shape();
  for (const Size& s : sizes) {
    auto* d = t->mutable_shape()->add_dim();
    if (auto* n = std::get_if<int64_t>(&s))
      d->set_dim_value(*n);
    else
      d->set_dim_param(std::get<std::string>(s));
  }
}

inline Node add_node(pb::GraphProto& g, const std::string& op, const std::vector<std::string>& in,
                     const std::vector<std::string>& out) {
  auto* n = g.add_node();
  n->set_op_type(op);
  for (const auto& i : in) n->add_input(i);
  for (const auto& o : out) n->add_output(o);
  return Node(n);
}

class Model {
 public:
  explicit Model(int opset = 17) {
    proto.set_ir_version(8);
    proto.mutable_graph()->set_name("test");
    proto.add_opset_import()->set_version(opset);
  }
  void input(const std::string& name, int dtype, const std::vector<Size>& sizes) {
    describe_value(graph().add_input(), name, dtype, sizes);
  }
  void weight(const pb::TensorProto& t) { *graph().add_initializer() = t; }
  Node node(const std::string& op, const std::vector<std::string>& in,
            const std::vector<std::string>& out) {
    return add_node(graph(), op, in, out);
  }
  void output(const std::string& name) { describe_value(graph().add_output(), name, f32, {}); }
  pb::GraphProto& graph() { return *proto.mutable_graph(); }
  std::string bytes() const { return proto.SerializeAsString(); }
  onnx::Import import(const onnx::ImportOptions& options = {}) const {
    return onnx::import_bytes(bytes(), "test.onnx", "", options);
  }

  pb::ModelProto proto;
};

}  // namespace gradus::test
