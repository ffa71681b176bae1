#include "autograd/gradient_checks.h"

#include <algorithm>
#include <typeinfo>

#include "gradus/apply.h"
#include "gradus/device_streams.h"
#include "ops/reverse.h"

namespace gradus::autograd {

namespace {

// `small` broadcasts to `large`.
bool expands_to(std::span<const int64_t> small, std::span<const int64_t> large) {
  if (small.size() > large.size()) return false;
  size_t lead = large.size() - small.size();
  for (size_t i = 0; i < small.size(); ++i)
    if (small[i] != 1 && small[i] != large[lead + i]) return false;
  return true;
}

// Whether nothing is to be done, as mostly.
bool fits(const InputMetadata& to, const Variable& gradient) {
  if (!gradient.defined() || to.kind == InputMetadata::Kind::cleared) return true;
  const Tensor& t = gradient.data();
  return to.kind == InputMetadata::Kind::known && to.dtype == t.dtype() && is_floating(to.dtype) &&
         to.device == t.device() && to.shape == t.layout().shape;
}

template <class Where>
void fit(const InputMetadata& to, Variable& gradient, Where where) {
  if (to.kind == InputMetadata::Kind::undefined)
    throw Error("{} has to be undefined, as the value it belongs to is; it is {}", where(),
                describe(gradient.data()));
  if (!is_floating(gradient.dtype()))
    throw Error("{} has to be floating; it is {}", where(), describe(gradient.data()));
  if (!expands_to(to.shape, gradient.shape()))
    throw Error("{} has to be of shape {} (or one that it broadcasts to); it is {}", where(),
                to_string(to.shape), describe(gradient.data()));
  VariableWorld world;
  gradient = VariableWorld::variable(ops::fit(world.value(gradient), type_of(to)));
  if (gradient.data().device() == to.device) return;
  if (gradient.data().rank() == 0)
    gradient = move_to(gradient, to.device);
  else
    throw Error("{} has to be on {}; it is on {}", where(), to_string(to.device),
                to_string(gradient.data().device()));
}

}  // namespace

void check_gradients(const Node& from, Variables& gradients) {
  auto edges = from.next_edges();
  if (gradients.size() != edges.size() && !(edges.empty() && gradients.empty()))
    throw Error("'{}' returned {} gradients; it has {} inputs", from.name(), gradients.size(),
                edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!edges[i].valid()) {
      gradients[i] = Variable();
      continue;
    }
    // Where the task does not go, nobody has looked at the edge yet.
    if (edges[i].input >= edges[i].node->inputs())
      throw Error("edge {} of '{}' leads to input {} of '{}', which has {} inputs", i, from.name(),
                  edges[i].input, edges[i].node->name(), edges[i].node->inputs());
    const InputMetadata& to = edges[i].node->input_metadata(edges[i].input);
    if (fits(to, gradients[i])) continue;
    fit(to, gradients[i], [&] { return fmt::format("gradient {} of '{}'", i, from.name()); });
  }
}

void check_cotangents(std::span<const Edge> roots, Variables& cotangents) {
  for (size_t i = 0; i < roots.size(); ++i)
    if (roots[i].valid() && !fits(roots[i].node->input_metadata(roots[i].input), cotangents[i]))
      fit(roots[i].node->input_metadata(roots[i].input), cotangents[i],
          [&] { return fmt::format("the cotangent of root {} ('{}')", i, roots[i].node->name()); });
}

namespace {

std::string with_name(const Node& node, const std::string& message) {
  std::string name = "'" + node.name() + "'";
  return message.find(name) == std::string::npos ? name + ": " + message : message;
}

// The copy with a name, if `error` is of type E and of none that derives from it.
template <class E>
std::exception_ptr named_as(const E& error, const std::string& message, const Node& node) {
  return typeid(error) == typeid(E) ? std::make_exception_ptr(E(with_name(node, message)))
                                    : nullptr;
}

}  // namespace

std::exception_ptr named(std::exception_ptr error, const Node& node) {
  std::exception_ptr other;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      if (!e.where().known()) other = named_as(e, e.bare(), node);
    } catch (const ResourceError& e) {
      other = named_as(e, e.message(), node);
    } catch (const InternalError& e) {
      other = named_as(e, e.message(), node);
    }
  } catch (...) {
    // Of another type, or the node's name cannot be had.
  }
  return other ? other : error;
}

}  // namespace gradus::autograd
