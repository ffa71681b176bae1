#include "gradus/gradcheck.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace gradus {

namespace {

// Step sizes, relative to max(1, |x|), in the order in which they are tried. At the first, rounding
// (eps / h) and truncation (h^4) both stay far below the tolerance for functions of moderate size;
// the larger one is for noisy functions, the smaller ones for steep ones and for kinks close by.
constexpr double step_sizes[] = {1e-4, 1e-3, 1e-5, 1e-6};

double relative_error(double a, double n) {
  return std::fabs(a - n) / std::max({1.0, std::fabs(a), std::fabs(n)});
}

// The derivative along a line at two step sizes, h and h / 2, and signs of a kink.
struct Quotients {
  double coarse = 0, fine = 0;
  // Second differences over h: they fall with h where the function is smooth, and stay at a kink.
  double bend_coarse = 0, bend_fine = 0;
  bool finite() const { return std::isfinite(coarse) && std::isfinite(fine); }
};

enum class Verdict { good, wrong, kink, edge };

// What becomes of one number of a gradient.
struct Comparison {
  Verdict verdict = Verdict::good;
  double error = 0, numeric = 0;
};

// `at(h)` gives Quotients for that step size.
template <class At>
Comparison compare(double analytic, double tolerance, At at) {
  Comparison worst{Verdict::edge, 0, 0};
  for (double h : step_sizes) {
    Quotients q = at(h);
    if (!q.finite()) continue;
    double scale = std::max({1.0, std::fabs(q.coarse), std::fabs(q.fine)});
    bool agree = std::fabs(q.coarse - q.fine) <= tolerance * scale;
    double error = std::max(relative_error(analytic, q.coarse), relative_error(analytic, q.fine));
    if (error <= tolerance) return {Verdict::good, error, q.fine};
    if (worst.verdict == Verdict::wrong) continue;
    bool bent = std::fabs(q.bend_fine) > 0.75 * std::fabs(q.bend_coarse) &&
                std::fabs(q.bend_fine) > 100 * tolerance * scale;
    if (agree && !bent) {
      if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
      worst = {Verdict::wrong, error, q.fine};
    } else if (worst.verdict == Verdict::edge) {
      worst = {Verdict::kink, 0, q.fine};
    }
  }
  return worst;
}

class Gradcheck {
 public:
  Gradcheck(const ir::Graph& program, const InputSources& sources, const GradcheckOptions& options,
            std::shared_ptr<Context> context)
      : options_(options),
        context_(std::move(context)),
        code_(Code::compile(prepare(program, options))),
        random_(options.seed) {
    choose_inputs(sources);
  }

  GradcheckReport run() {
    GradcheckReport report;
    for (size_t k = 1; k < code_->stages(); ++k) {
      std::vector<GradcheckEntry> entries;
      for (int t = 0;; ++t) {
        nudges_.clear();
        entries = check_stage(k);
        if (nudges_.empty() || t + 1 >= options_.tries) break;
        ++report.resampled;
        nudge();
      }
      for (GradcheckEntry& e : entries) report.entries.push_back(std::move(e));
    }
    return report;
  }

 private:
  struct Place {  // an element of a stage's input
    size_t stage, input;
    int64_t element;
  };

  static ir::Graph prepare(const ir::Graph& program, const GradcheckOptions& options) {
    if (options.order < 1)
      throw Error("there is nothing to check at order {}: it must be 1 or more", options.order);
    ir::Graph graph = ir::retype_floating(program, DType::f64);
    size_t stages = static_cast<size_t>(options.order) + 1;
    if (graph.stages.size() > stages) {
      graph.stages.resize(stages);
      ir::compact(graph);
    }
    ir::DifferentiateOptions d;
    d.order = options.order;
    d.wrt = options.wrt;
    graph = ir::differentiate(graph, d);
    require_floating_result(graph);
    return graph;
  }

  static void require_floating_result(const ir::Graph& graph) {
    std::string results;
    for (const ir::Result& r : graph.stages[0].results) {
      if (r.value != ir::no_value && graph[r.value].type.is_floating()) return;
      results += fmt::format("{}{} {}", results.empty() ? "" : ", ", r.name,
                             r.value == ir::no_value ? "none" : to_string(graph[r.value].type));
    }
    throw Error(
        "graph '{}' has no floating result, so there is no derivative to check; stage 0 returns {}",
        graph.name, results.empty() ? "nothing" : results);
  }

  // Stage 0 by name or at random, later ones at random: all of them are cotangents.
  void choose_inputs(const InputSources& sources) {
    InputSources first = sources;
    if (!first.fill) first.fill = random_sources(options_.seed, context_).fill;
    sizes_ = sources.sizes;
    // Sizes that nothing settles are small and differ, so that mixed-up dimensions show.
    if (!first.guess)
      first.guess = [next = int64_t{2}](std::string_view) mutable {
        return next < 5 ? ++next : next;
      };
    if (sources.find)
      first.find = [&](std::string_view name) -> std::optional<FoundTensor> {
        auto found = sources.find(name);
        // The program was made f64 behind the file's back.
        if (found && found->tensor.defined() && is_floating(found->tensor.dtype()))
          found->tensor = found->tensor.to(DType::f64);
        return found;
      };
    snapshots_.emplace_back(code_, context_);
    inputs_.resize(code_->stages());
    for (size_t s = 0; s < code_->stages(); ++s) {
      inputs_[s] = s == 0 ? find_inputs(snapshots_[0], first) : cotangents(s);
      // Whoever gave a tensor may go on using it: what is nudged is a copy.
      for (Tensor& t : inputs_[s]) t = t.copy();
      run_stage(s);
    }
  }

  std::vector<Tensor> cotangents(size_t s) const {
    InputSources random = random_sources(options_.seed, context_);
    random.sizes = sizes_;
    return find_inputs(snapshots_[s], random);
  }

  void run_stage(size_t s) {
    State state = snapshots_[s].clone();
    std::vector<Tensor> results = state.run(inputs_[s]);
    snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(s) + 1, snapshots_.end());
    snapshots_.push_back(std::move(state));
    results_.resize(code_->stages());
    results_[s] = std::move(results);
  }

  // Moves the inputs where something could not be judged, and runs all stages again.
  void nudge() {
    for (const Place& p : nudges_) {
      Tensor& t = inputs_[p.stage][p.input];
      double* x = t.mutable_data_as<double>() + p.element;
      double amount = std::uniform_real_distribution<>(0.01, 0.1)(random_);
      *x += (random_() & 1 ? 1 : -1) * amount * std::max(1.0, std::fabs(*x));
    }
    for (size_t s = 0; s < code_->stages(); ++s) {
      // Sizes may depend on the values.
      std::vector<Tensor> fresh = s == 0 ? inputs_[0] : cotangents(s);
      for (size_t i = 0; i < fresh.size(); ++i)
        if (!std::ranges::equal(fresh[i].shape(), inputs_[s][i].shape())) inputs_[s][i] = fresh[i];
      run_stage(s);
    }
  }

  std::vector<GradcheckEntry> check_stage(size_t k) {
    std::vector<GradcheckEntry> entries;
    const auto& gradients = code_->results(k);
    for (size_t s = 0; s < k; ++s)
      for (size_t i = 0; i < inputs_[s].size(); ++i) {
        std::string name = fmt::format("d{}_{}", k, code_->input_name(s, i));
        auto r = std::find_if(gradients.begin(), gradients.end(),
                              [&](const ir::Result& g) { return g.name == name; });
        if (r == gradients.end()) continue;
        if (options_.progress)
          options_.progress(static_cast<int>(k), static_cast<double>(entries.size()) /
                                                     static_cast<double>(gradients.size()));
        const Tensor& gradient = results_[k][static_cast<size_t>(r - gradients.begin())];
        entries.push_back(check_input(k, s, i, gradient));
      }
    return entries;
  }

  GradcheckEntry check_input(size_t k, size_t s, size_t i, const Tensor& gradient) {
    const Tensor& x = inputs_[s][i];
    GradcheckEntry entry;
    entry.stage = static_cast<int>(k);
    entry.input = code_->input_name(s, i);
    entry.size = x.numel();
    std::vector<double> analytic(static_cast<size_t>(x.numel()), 0.0);
    if (gradient.defined()) analytic = gradient.to_doubles();
    for (int64_t e : chosen_elements(x.numel())) {
      const double at = x.item(e), h_scale = std::max(1.0, std::fabs(at));
      Tensor moved = x.copy();
      auto quotients = [&](double h) {
        return differences(k, s, i, moved, h * h_scale,
                           [&](double t) { moved.mutable_data_as<double>()[e] = at + t; });
      };
      double a = analytic[static_cast<size_t>(e)];
      Comparison c = compare(a, options_.tolerance, quotients);
      if (c.verdict == Verdict::kink || c.verdict == Verdict::edge) nudges_.push_back({s, i, e});
      count(entry, c, e, a);
    }
    if (x.numel() > options_.max_elements)
      for (int d = 0; d < options_.directions; ++d) check_direction(k, s, i, analytic, entry);
    conclude(entry);
    return entry;
  }

  // Moves all elements at once, up or down. A kink on such a line says little: it is passed over.
  void check_direction(size_t k, size_t s, size_t i, const std::vector<double>& analytic,
                       GradcheckEntry& entry) {
    const Tensor& x = inputs_[s][i];
    std::vector<double> at = x.to_doubles(), direction(at.size());
    double a = 0;
    for (size_t e = 0; e < at.size(); ++e) {
      direction[e] = random_() & 1 ? 1 : -1;
      a += direction[e] * analytic[e];
    }
    Tensor moved = x.copy();
    Comparison c = compare(a, options_.tolerance, [&](double h) {
      return differences(k, s, i, moved, h, [&](double t) {
        double* out = moved.mutable_data_as<double>();
        for (size_t e = 0; e < at.size(); ++e) out[e] = at[e] + t * direction[e];
      });
    });
    if (c.verdict == Verdict::good || c.verdict == Verdict::wrong) count(entry, c, -1, a);
  }

  static void count(GradcheckEntry& entry, const Comparison& c, int64_t element, double analytic) {
    if (c.verdict == Verdict::kink) ++entry.kinks;
    if (c.verdict == Verdict::edge) ++entry.edges;
    if (c.verdict != Verdict::good && c.verdict != Verdict::wrong) return;
    if (entry.checked++ == 0 || c.error > entry.error) {
      entry.error = c.error;
      entry.element = element;
      entry.analytic = analytic;
      entry.numeric = c.numeric;
    }
  }

  void conclude(GradcheckEntry& entry) const {
    entry.passed = entry.error <= options_.tolerance && (entry.checked > 0 || entry.size == 0);
    if (entry.error > options_.tolerance)
      entry.why = fmt::format("{} the derivative is {}, differences say {}",
                              entry.element < 0 ? std::string("along a direction")
                                                : fmt::format("at element {}", entry.element),
                              entry.analytic, entry.numeric);
    else if (!entry.passed)
      entry.why = entry.edges ? "the differences are not finite: give inputs inside the domain"
                              : "the function is not smooth around these inputs: give others";
    else if (entry.kinks || entry.edges)
      entry.why = fmt::format("left out: {} at kinks, {} at the edge of the domain", entry.kinks,
                              entry.edges);
  }

  std::vector<int64_t> chosen_elements(int64_t size) {
    std::vector<int64_t> chosen;
    if (size <= options_.max_elements) {
      for (int64_t e = 0; e < size; ++e) chosen.push_back(e);
      return chosen;
    }
    std::mt19937_64 pick(options_.seed);  // the same ones on every try
    while (static_cast<int64_t>(chosen.size()) < options_.max_elements)
      chosen.push_back(static_cast<int64_t>(pick() % static_cast<uint64_t>(size)));
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    return chosen;
  }

  // Fourth-order central differences of phi along a line: move(t) puts the input at distance t.
  template <class Move>
  Quotients differences(size_t k, size_t s, size_t i, Tensor& moved, double h, Move move) {
    std::array<std::vector<Tensor>, 6> at;
    const double places[6] = {-2 * h, -h, -h / 2, h / 2, h, 2 * h};
    for (size_t p = 0; p < 6; ++p) {
      move(places[p]);
      at[p] = results_with(k - 1, s, i, moved);
    }
    // Differences are taken before the sum, so that results that do not move add no rounding.
    auto dot = [&](size_t a, size_t b) { return difference(k, at[a], at[b]); };
    double outer = dot(5, 0), middle = dot(4, 1), inner = dot(3, 2);
    Quotients q;
    q.coarse = (8 * middle - outer) / (12 * h);
    q.fine = (8 * inner - middle) / (6 * h);
    const std::vector<Tensor>& centre = results_[k - 1];
    auto bend = [&](size_t a, size_t b) {
      return difference(k, at[a], centre) - difference(k, centre, at[b]);
    };
    q.bend_coarse = bend(4, 1) / h;
    q.bend_fine = 2 * bend(3, 2) / h;
    return q;
  }

  // The results of `stage` with another tensor as input i of stage s.
  std::vector<Tensor> results_with(size_t stage, size_t s, size_t i, const Tensor& moved) {
    State state = snapshots_[s].clone();
    std::vector<Tensor> results;
    for (size_t t = s; t <= stage; ++t) {
      if (t != s) {
        results = state.run(inputs_[t]);
        continue;
      }
      std::vector<Tensor> inputs = inputs_[t];
      inputs[i] = moved.copy();  // results may be views of it
      results = state.run(inputs);
    }
    return results;
  }

  // The sum of <ct<k>_r, a_r - b_r> over the floating results r of stage k-1; NaN where sizes that
  // depend on the values differ.
  double difference(size_t k, const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    double sum = 0;
    const auto& results = code_->results(k - 1);
    for (size_t r = 0; r < results.size(); ++r) {
      if (!a[r].defined() || !is_floating(a[r].dtype())) continue;
      const Tensor& cotangent = find_cotangent(k, results[r].name);
      if (a[r].numel() != cotangent.numel() || b[r].numel() != cotangent.numel())
        return std::numeric_limits<double>::quiet_NaN();
      const double* ct = cotangent.data_as<double>();
      std::vector<double> x = a[r].to_doubles(), y = b[r].to_doubles();
      for (size_t e = 0; e < x.size(); ++e) sum += ct[e] * (x[e] - y[e]);
    }
    return sum;
  }

  const Tensor& find_cotangent(size_t k, std::string_view result) const {
    std::string name = fmt::format("ct{}_{}", k, result);
    for (size_t i = 0; i < inputs_[k].size(); ++i)
      if (code_->input_name(k, i) == name) return inputs_[k][i];
    throw InternalError("a derivative stage lacks the cotangent " + name);
  }

  const GradcheckOptions& options_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const Code> code_;
  std::mt19937_64 random_;
  DimSizes sizes_;
  std::vector<std::vector<Tensor>> inputs_, results_;  // by stage
  std::vector<State> snapshots_;                       // before each stage, and at the end
  std::vector<Place> nudges_;
};

}  // namespace

std::string_view GradcheckEntry::verdict() const {
  if (passed) return "ok";
  return checked == 0 ? "UNCHECKED" : "WRONG";
}

bool GradcheckReport::passed() const {
  return std::all_of(entries.begin(), entries.end(), [](auto& e) { return e.passed; });
}

GradcheckReport gradcheck(const ir::Graph& program, const InputSources& sources,
                          const GradcheckOptions& options, std::shared_ptr<Context> context) {
  return Gradcheck(program, sources, options, std::move(context)).run();
}

}  // namespace gradus
