// Finding the first function whose gradient is not a number.
#include <cmath>

#include "autograd/gradient_checks.h"
#include "gradus/device_streams.h"

namespace gradus::autograd {

namespace {

const char* anomaly_in(const Tensor& t, AnomalyMode mode) {
  for (double v : move_to(Variable(t), Device()).data().to_doubles()) {
    if (std::isnan(v)) return "NaN";
    if (mode == AnomalyMode::nan_and_infinity && std::isinf(v)) return "an infinity";
  }
  return nullptr;
}

std::string made_at(const Node& node) {
  const AnomalyMetadata* made = node.anomaly();
  if (!made) return "made outside anomaly mode";
  return made->place.empty() ? "made at a place that is not known" : "made at " + made->place;
}

// A node's run made the node, whose run made that one, …
std::string chain(const Node& node) {
  std::string text = fmt::format("'{}' was {}", node.name(), made_at(node));
  for (const AnomalyMetadata* m = node.anomaly(); m && m->parent; m = m->parent->anomaly())
    text += fmt::format("\n  while '{}' ran, which was {}", m->parent->name(), made_at(*m->parent));
  return text;
}

}  // namespace

void look_for_anomalies(const Node& node, const Variables& gradients) {
  AnomalyMode mode = thread_state().anomaly;
  if (mode == AnomalyMode::off) return;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    if (const char* what = anomaly_in(gradients[i].data(), mode))
      throw Error("'{}' returned {} in gradient {}\n  {}", node.name(), what, i, chain(node));
  }
}

}  // namespace gradus::autograd
