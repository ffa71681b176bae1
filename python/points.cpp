// The points at which functions are differentiated.
#include <memory_resource>
#include <unordered_map>

#include "gradus/node.h"
#include "gradus/trace.h"
#include "python/bindings.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

// Looks through a graph for leaves that somebody holds, at each node once.
class Leaves {
 public:
  // Those that are not looked for.
  explicit Leaves(const Variables& own) {
    for (const Variable& v : own)
      if (v.is_leaf()) keep(v);
    for (const autograd::Edge& e : kept_) leads_[e.node.get()] = false;
  }
  // Whether there is one below the variable.
  bool below(const Variable& v) {
    if (!v.requires_grad()) return false;
    const Node* root = keep(v);
    if (auto known = leads_.find(root); known != leads_.end()) return known->second;
    for (path_ = {{root}}; !path_.empty();) step();
    return leads_[root];
  }

 private:
  using Node = autograd::Node;
  struct Place {
    const Node* node;
    size_t next = 0;  // of its edges
    bool leads = false;
  };

  const Node* keep(const Variable& v) {
    kept_.push_back(v.gradient_edge());
    return kept_.back().node.get();
  }
  void step() {
    Place& at = path_.back();
    if (!at.leads && at.next < at.node->outputs()) {
      const Node* to = at.node->next_edge(at.next++).node.get();
      if (!to) return;
      if (auto known = leads_.find(to); known != leads_.end())
        at.leads = known->second;
      else
        path_.push_back({to});
      return;
    }
    const bool leads =
        at.leads || (at.node->outputs() == 0 && at.node->accumulates_into().defined());
    leads_.emplace(at.node, leads);
    path_.pop_back();
    if (!path_.empty()) path_.back().leads |= leads;
  }

  std::vector<autograd::Edge> kept_;
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<const Node*, bool> leads_{64, &memory_};
  std::vector<Place> path_;  // from a root on
};

std::vector<bool> leads_elsewhere(const nb::list& tensors, const nb::list& leaves) {
  Leaves others(variables_from(leaves, "a leaf"));
  std::vector<bool> leads;
  for (const Variable& v : variables_from(tensors, "a tensor")) leads.push_back(others.below(v));
  return leads;
}

}  // namespace

void bind_points(nb::module_& m) {
  m.def(
      "leaf_of", [](const Variable& v) { return leaf_of(v); }, "tensor"_a,
      nb::sig("def leaf_of(tensor: Tensor) -> Tensor"),
      "A tensor of the same values that requires gradients, which do not flow on to this one. A "
      "recording knows it as one of its own.");
  m.def("leads_elsewhere", leads_elsewhere, "tensors"_a, "leaves"_a,
        nb::sig("def leads_elsewhere(tensors: list[Tensor], leaves: list[Tensor]) -> list[bool]"),
        "Of each, whether it was made of a leaf that somebody holds and that is none of these.");
}

}  // namespace gradus::python
