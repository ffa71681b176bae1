// Common dtypes and shapes of pointwise operands.
#include "gradus/error.h"
#include "gradus/pointwise.h"
#include "ops/operands.h"

namespace gradus::ops {

DType common_dtype(const ir::InferCall& call, DType a, DType b) {
  try {
    return promote(a, b);
  } catch (const Error& e) {
    call.fail_with(e.bare());
  }
}

namespace {

// The common dtype of one rank of importance.
struct Common {
  const ir::InferCall& call;
  bool any = false;
  DType dtype = DType::boolean;
  void add(DType d) {
    dtype = any ? common_dtype(call, dtype, d) : d;
    any = true;
  }
};

// A lower rank speaks only if its category is higher.
void combine(Common& high, const Common& low) {
  if (!low.any) return;
  if (!high.any || category_of(low.dtype) > category_of(high.dtype)) high.add(low.dtype);
}

}  // namespace

DType promoted_dtype(const ir::InferCall& call, std::span<const Role> roles) {
  Common tensors{call}, zero_dim{call}, numbers{call};
  for (size_t i = 0; i < call.operands(); ++i) {
    if (!call.given(i) || roles[std::min(i, roles.size() - 1)] == Role::condition) continue;
    if (call.is_number(i)) {
      Category c = call.in[i].category;
      numbers.add(c == Category::floating   ? DType::f32
                  : c == Category::integral ? DType::i64
                                            : DType::boolean);
    } else {
      const ir::Type& t = call.tensor(i);
      (t.rank() ? tensors : zero_dim).add(t.dtype);
    }
  }
  combine(tensors, zero_dim);
  combine(tensors, numbers);
  return tensors.dtype;
}

Compute pointwise_compute(const PointwiseInfo& info, const ir::InferCall& call, DType result) {
  DType promoted = promoted_dtype(call, info.roles);
  if (is_floating(promoted)) return compute_of(promoted);
  // An attribute may have made the result floating.
  bool floating_result = info.result == Result::same && is_floating(result);
  return info.computes_floating || floating_result ? Compute::f32 : compute_of(promoted);
}

Dims broadcast_dims(const ir::InferCall& call) {
  Dims shape;
  for (size_t i = 0; i < call.operands(); ++i) {
    if (!call.given(i) || call.is_number(i)) continue;
    const Dims& d = call.tensor(i).dims;
    if (d.size() > shape.size()) {
      Dims wider(d.size() - shape.size(), Dim(1));
      wider.append(shape.begin(), shape.end());
      shape = std::move(wider);
    }
    size_t lead = shape.size() - d.size();
    for (size_t k = 0; k < d.size(); ++k) {
      Dim& common = shape[lead + k];
      if (common == d[k] || d[k] == Dim(1)) continue;
      if (common == Dim(1)) {
        common = d[k];
        continue;
      }
      if (common.is_constant() && d[k].is_constant()) {
        std::string shapes;
        for (size_t j = 0; j < call.operands(); ++j)
          if (call.given(j) && !call.is_number(j))
            shapes += fmt::format("{}'{}' {}", shapes.empty() ? "" : ", ", call.op.operand(j).name,
                                  to_string(call.tensor(j).dims));
        call.fail(
            "the shapes do not broadcast: {} (dimension {} is {} against {}, and neither is 1)",
            shapes, lead + k, common.value(), d[k].value());
      }
      call.require_equal(common, d[k],
                         fmt::format("dimension {} of {} against the other operands' common shape",
                                     k, call.name_of_operand(i)));
      if (d[k].is_constant()) common = d[k];
    }
  }
  return shape;
}

void infer_pointwise(const PointwiseInfo& info, ir::InferCall& call) {
  bool any_tensor = false;
  Device device;
  for (size_t i = 0; i < call.operands(); ++i) {
    if (!call.given(i)) call.fail("{} is missing", call.name_of_operand(i));
    if (call.is_number(i)) continue;
    const ir::Type& t = call.tensor(i);
    // What says nothing lies wherever it is wanted.
    if (t.device != Device() && device != Device() && t.device != device)
      call.fail("operands lie on different devices, {} and {}", to_string(device),
                to_string(t.device));
    if (t.device != Device()) device = t.device;
    any_tensor = true;
    if (info.refuses_bool && info.roles[i] == Role::value && t.dtype == DType::boolean)
      call.fail("{} is bool, for which it is not defined; cast it to a number first",
                call.name_of_operand(i));
  }
  if (!any_tensor) call.fail("all operands are numbers; at least one must be a tensor");
  DType dtype = promoted_dtype(call, info.roles);
  if (info.result == Result::boolean) dtype = DType::boolean;
  if (info.result == Result::floating && !is_floating(dtype)) dtype = DType::f32;
  call.out.emplace_back(dtype, broadcast_dims(call), device);
}

}  // namespace gradus::ops
