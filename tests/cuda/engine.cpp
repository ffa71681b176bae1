#include "tests/cuda/engine.h"

#include <cmath>

namespace gradus::fusion::test {

using autograd::Variable;
using autograd::Variables;

std::vector<Tensor> derivatives(const Function& f, std::span<const Tensor> inputs, int order,
                                Device device, uint64_t seed) {
  Variables x, y;
  for (const Tensor& t : inputs) x.emplace_back(there(t, device), is_floating(t.dtype()));
  y = f(x);
  std::vector<Tensor> all;
  for (int k = 0;; ++k) {
    for (const Variable& v : y) {
      all.push_back(v.defined() ? v.data() : Tensor());
      if (v.defined() && v.data().device() != device)
        throw Error("a value of order {} lies on {}", k, to_string(v.data().device()));
    }
    if (k == order) break;
    Variables roots, cotangents;
    for (const Variable& v : y) {
      if (!v.defined() || !v.requires_grad()) continue;
      roots.push_back(v);
      const Tensor ct =
          random(v.dtype(), Sizes(v.shape()), fmt::format("ct{}_{}", k, roots.size()), seed);
      cotangents.emplace_back(there(ct, device), true);
    }
    Variables wanted;
    for (const Variable& v : x)
      if (v.requires_grad()) wanted.push_back(v);
    if (roots.empty() || wanted.empty()) break;
    y = autograd::grad(roots, wanted, cotangents, {.create_graph = k + 1 < order});
    // The next derivative is one with respect to the cotangents, too.
    x.append(cotangents.begin(), cotangents.end());
  }
  for (Tensor& t : all) t = here(t);
  return all;
}

std::string difference(std::span<const Tensor> a, std::span<const Tensor> b) {
  if (a.size() != b.size()) return fmt::format("{} tensors and {}", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return fmt::format("tensor {} is absent in one", i);
    if (!a[i].defined() || bitwise_equal(a[i], b[i])) continue;
    if (describe(a[i]) != describe(b[i]))
      return fmt::format("tensor {} is {} and {}", i, describe(a[i]), describe(b[i]));
    const std::vector<double> x = a[i].to_doubles(), y = b[i].to_doubles();
    for (size_t e = 0; e < x.size(); ++e)
      if ((x[e] != y[e] || std::signbit(x[e]) != std::signbit(y[e])) &&
          !(std::isnan(x[e]) && std::isnan(y[e])))
        return fmt::format("element {} of tensor {} is {} and {}", e, i, x[e], y[e]);
  }
  return "";
}

}  // namespace gradus::fusion::test
