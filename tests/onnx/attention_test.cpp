// Attention, its caches, and what it is made of in models that carry a state.
#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

class AttentionModel : public Model {
 public:
  explicit AttentionModel(int opset) : Model(opset) {}
  void add(const std::string& name, const Tensor& value) {
    const int type = value.dtype() == DType::i64       ? i64
                     : value.dtype() == DType::boolean ? boolean
                                                       : f32;
    input(name, type, std::vector<Size>(value.shape().begin(), value.shape().end()));
    in[name] = value;
  }
  Values results() { return run(import(known(in)), in); }
  Values in;
};

Tensor some(std::vector<int64_t> shape, std::string_view name) {
  return uniform_tensor(DType::f32, shape, -1, 1, name, 3, *Context::default_context());
}

// Two steps of one head: queries and keys are unit vectors.
AttentionModel two_steps(int opset) {
  AttentionModel m(opset);
  m.add("q", floats({1, 2, 2}, {1, 0, 0, 1}));
  m.add("k", floats({1, 2, 2}, {1, 0, 0, 1}));
  m.add("v", floats({1, 2, 2}, {1, 2, 3, 4}));
  return m;
}

Node attend(AttentionModel& m, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  for (const std::string& name : outputs)
    if (!name.empty()) m.output(name);
  return m.node("Attention", inputs, outputs)
      .set("q_num_heads", 1)
      .set("kv_num_heads", 1)
      .set("scale", 1.0f);
}

TEST(OnnxAttention, OfWhatCameBefore) {
  AttentionModel m = two_steps(23);
  attend(m, {"q", "k", "v"}, {"y"}).set("is_causal", 1);
  expect_near(m.results()["y"], {1, 2, 2.462117, 3.462117});
  expect_gradients(m.import(), m.in);
}

TEST(OnnxAttention, AQueryThatSeesNothingGivesZeros) {
  AttentionModel m = two_steps(24);
  m.add("mask",
        Tensor::from(DType::boolean, std::vector<int64_t>{2, 2}, std::vector<double>{0, 0, 1, 1}));
  attend(m, {"q", "k", "v", "mask"}, {"y", "", "", "w"}).set("qk_matmul_output_mode", 3);
  Values out = m.results();
  expect_near(out["y"], {0, 0, 2.462117, 3.462117});
  expect_near(out["w"], {0, 0, 0.268941, 0.731059});
  expect_gradients(m.import(), m.in);
}

TEST(OnnxAttention, WindowsAndLengthsOfACache) {
  AttentionModel m = two_steps(25);
  attend(m, {"q", "k", "v"}, {"y"}).set("left_window_size", 0).set("right_window_size", 0);
  expect_near(m.results()["y"], {1, 2, 3, 4});
  // The first query comes before all keys that there are: one key, two queries.
  AttentionModel short_cache = two_steps(24);
  short_cache.add("there",
                  Tensor::from(DType::i64, std::vector<int64_t>{1}, std::vector<double>{1}));
  attend(short_cache, {"q", "k", "v", "", "", "", "there"}, {"y"}).set("is_causal", 1);
  expect_near(short_cache.results()["y"], {0, 0, 1, 2});
}

TEST(OnnxAttention, KeysBehindAMaskAreNotSeen) {
  AttentionModel m(24);
  m.add("q", floats({1, 2, 2}, {1, 0, 0, 1}));
  m.add("k", floats({1, 3, 2}, {1, 0, 0, 1, 5, 5}));
  m.add("v", floats({1, 3, 2}, {1, 2, 3, 4, 100, 100}));
  m.add("mask",
        Tensor::from(DType::boolean, std::vector<int64_t>{2, 2}, std::vector<double>{1, 0, 1, 1}));
  attend(m, {"q", "k", "v", "mask"}, {"y"});
  expect_near(m.results()["y"], {1, 2, 2.462117, 3.462117});
}

// Heads of queries in groups, a cache, a soft cap, a mask of numbers: against one long pass.
TEST(OnnxAttention, ACacheGivesWhatAllStepsGive) {
  Tensor q = some({1, 4, 3, 2}, "q"), k = some({1, 2, 3, 2}, "k"), v = some({1, 2, 3, 2}, "v");
  auto rows = [](const Tensor& t, int64_t from, int64_t to) {
    std::vector<double> all = t.to_doubles(), part;
    for (int64_t h = 0; h < t.shape()[1]; ++h)
      for (int64_t s = from; s < to; ++s)
        for (int64_t e = 0; e < 2; ++e)
          part.push_back(all[static_cast<size_t>((h * 3 + s) * 2 + e)]);
    return floats({1, t.shape()[1], to - from, 2}, part);
  };
  AttentionModel whole(23), last(23);
  whole.add("q", q), whole.add("k", k), whole.add("v", v);
  whole.output("y");
  whole.node("Attention", {"q", "k", "v"}, {"y"}).set("is_causal", 1).set("softcap", 0.5f);
  last.add("q", rows(q, 2, 3)), last.add("k", rows(k, 2, 3)), last.add("v", rows(v, 2, 3));
  last.add("pk", rows(k, 0, 2)), last.add("pv", rows(v, 0, 2));
  last.output("y"), last.output("keys");
  last.node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"y", "keys"})
      .set("is_causal", 1)
      .set("softcap", 0.5f);
  Values out = last.results();
  expect_near(out["y"], rows(whole.results()["y"], 2, 3).to_doubles());
  expect_near(out["keys"], k.to_doubles());
  expect_gradients(whole.import(), whole.in);
}

TEST(OnnxAttention, RefusesWhatContradictsItself) {
  AttentionModel m = two_steps(23);
  m.node("Attention", {"q", "k", "v"}, {"y"});
  m.output("y");
  expect_refused(m, {"Attention", "q_num_heads"});
  AttentionModel three(23);
  three.add("q", some({1, 3, 2, 2}, "q")), three.add("k", some({1, 2, 2, 2}, "k"));
  three.node("Attention", {"q", "k", "k"}, {"y"});
  three.output("y");
  expect_refused(three, {"3 heads of queries are no multiple of 2"});
}

TEST(OnnxAttention, PairsAreTurned) {
  AttentionModel m(23);
  m.add("x", floats({1, 1, 1, 6}, {1, 2, 3, 4, 5, 6}));
  m.add("cos", floats({2, 2}, {1, 1, 0, 0}));
  m.add("sin", floats({2, 2}, {0, 0, 1, 1}));
  m.add("at", Tensor::from(DType::i64, std::vector<int64_t>{1, 1}, std::vector<double>{1}));
  for (const char* name : {"halves", "neighbours"}) {
    m.output(name);
    m.node("RotaryEmbedding", {"x", "cos", "sin", "at"}, {name})
        .set("rotary_embedding_dim", 4)
        .set("interleaved", name[0] == 'n');
  }
  Values out = m.results();
  expect_near(out["halves"], {-3, -4, 1, 2, 5, 6});
  expect_near(out["neighbours"], {-2, 1, -4, 3, 5, 6});
}

TEST(OnnxAttention, UpdatesGoAroundTheCache) {
  AttentionModel m(24);
  m.add("cache", floats({2, 3, 1}, {1, 2, 3, 4, 5, 6}));
  m.add("update", floats({2, 2, 1}, {10, 20, 30, 40}));
  m.add("at", Tensor::from(DType::i64, std::vector<int64_t>{2}, std::vector<double>{2, 0}));
  m.output("y");
  m.node("TensorScatter", {"cache", "update", "at"}, {"y"}).set("mode", "circular");
  expect_near(m.results()["y"], {20, 2, 10, 30, 40, 6});
  expect_gradients(m.import(), m.in, 1);
}

TEST(OnnxAttention, AsARecurrence) {
  AttentionModel m(27);
  m.add("q", floats({1, 2, 1}, {1, 2}));
  m.add("k", floats({1, 2, 1}, {1, 1}));
  m.add("v", floats({1, 2, 1}, {3, 5}));
  m.add("decay", floats({1, 2, 1}, {0, -0.6931471805599453}));
  m.add("rate", floats({1, 2, 1}, {1, 0.5}));
  m.output("y"), m.output("state");
  m.node("LinearAttention", {"q", "k", "v", "", "decay", "rate"}, {"y", "state"})
      .set("q_num_heads", 1)
      .set("kv_num_heads", 1);
  Values out = m.results();
  // 3, then 1.5 + 0.5 (5 - 1.5)
  expect_near(out["y"], {3, 6.5});
  expect_near(out["state"], {3.25});
  expect_gradients(m.import(), m.in);
}

TEST(OnnxAttention, ConvolutionsLookBack) {
  AttentionModel m(27);
  m.add("x", floats({1, 1, 3}, {1, 2, 3}));
  m.add("w", floats({1, 1, 2}, {10, 1}));
  m.add("past", floats({1, 1, 1}, {5}));
  m.output("y"), m.output("state");
  m.node("CausalConvWithState", {"x", "w", "", "past"}, {"y", "state"});
  Values out = m.results();
  expect_near(out["y"], {51, 12, 23});
  expect_near(out["state"], {3});
}

}  // namespace
}  // namespace gradus::test
