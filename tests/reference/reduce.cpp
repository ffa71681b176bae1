// Of the evaluator: what runs over elements of one dimension or of several.
#include <limits>

#include "gradus/scalar/math.h"
#include "tests/reference/parts.h"

namespace gradus::reference {

namespace {

template <class T>
constexpr T lowest = std::is_integral_v<T> ? std::numeric_limits<T>::min()
                                           : -std::numeric_limits<T>::infinity();
template <class T>
constexpr T highest = std::is_integral_v<T> ? std::numeric_limits<T>::max()
                                            : std::numeric_limits<T>::infinity();

template <class T>
T identity(Reducer reducer) {
  switch (reducer) {
    case Reducer::max:
      return lowest<T>;
    case Reducer::min:
      return highest<T>;
    case Reducer::prod:
    case Reducer::all:
      return 1;
    default:
      return 0;
  }
}

template <class T>
T combine(Reducer reducer, T a, T b) {
  switch (reducer) {
    case Reducer::sum:
      return add(a, b);
    case Reducer::prod:
      return multiply(a, b);
    case Reducer::max:
      return b > a || b != b ? b : a;
    case Reducer::min:
      return b < a || b != b ? b : a;
    case Reducer::all:
      return a != 0 && b != 0;
    case Reducer::any:
      break;
  }
  return a != 0 || b != 0;
}

// One chunk of the order: 16 lanes that fold by halves.
template <class T>
T partial(Reducer reducer, std::span<const T> chunk) {
  std::array<T, reduce_lanes> lane;
  lane.fill(identity<T>(reducer));
  for (size_t r = 0; r < chunk.size(); ++r)
    lane[r % reduce_lanes] = combine(reducer, lane[r % reduce_lanes], chunk[r]);
  for (size_t half = reduce_lanes / 2; half > 0; half /= 2)
    for (size_t l = 0; l < half; ++l) lane[l] = combine(reducer, lane[l], lane[l + half]);
  return lane[0];
}

template <class T>
T reduce_all(Reducer reducer, const std::vector<T>& elements) {
  if (elements.empty()) return identity<T>(reducer);
  std::vector<T> level;
  for (size_t first = 0; first < elements.size(); first += reduce_chunk)
    level.push_back(
        partial(reducer, std::span(elements).subspan(
                             first, std::min<size_t>(reduce_chunk, elements.size() - first))));
  while (level.size() > 1) {
    std::vector<T> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(i + 1 < level.size() ? combine(reducer, level[i], level[i + 1]) : level[i]);
    level = std::move(next);
  }
  return level[0];
}

// Whether a comes before b where the greatest (least) comes first, and NaN before all.
template <class T>
bool wins(bool greatest, T a, T b) {
  if (a != a || b != b) return a != a && b == b;
  return greatest ? a > b : a < b;
}

// The elements along one dimension of a shape, by their row-major numbers in it.
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;

  Lines(const Layout& l, int dim) {
    for (int d = 0; d < l.rank(); ++d)
      (d < dim ? outer : d > dim ? inner : length) *= l.shape[static_cast<size_t>(d)];
  }
  int64_t count() const { return outer * inner; }
  int64_t number(int64_t line, int64_t i) const {
    return (line / inner * length + i) * inner + line % inner;
  }
};

template <class T>
T log_sum_exp(T s, T x) {
  const T high = s > x || s != s ? s : x, low = s > x || s != s ? x : s;
  if (!std::isfinite(high)) return high;
  return high + scalar::log1p(scalar::exp(scalar::Num<T>{low - high})).value;
}

template <class T>
T first_state(ScanStep step) {
  if (step == ScanStep::prod) return 1;
  return step == ScanStep::log_sum_exp ? lowest<T> : 0;
}

// The state after operands x and, of a recurrence, b; `cut` where it has one.
template <class T>
T next_state(ScanStep step, T s, T x, T b, bool cut) {
  switch (step) {
    case ScanStep::sum:
      return add(s, x);
    case ScanStep::prod:
      return multiply(s, x);
    case ScanStep::recurrence:
      return add(multiply(x, s), b);
    case ScanStep::cut_recurrence:
      return cut ? b : add(multiply(x, s), b);
    case ScanStep::log_sum_exp:
      break;
  }
  if constexpr (std::is_floating_point_v<T>)
    return log_sum_exp(s, x);
  else
    return s;
}

template <class T>
void scan(const Scan& w, Args args) {
  const Lines lines(w.in[0], w.dim);
  const Array y{w.out, args[w.in.size()]};
  auto operand = [&](size_t k, int64_t number) {
    return Array{w.in[k].dtype, args[k]}.template get<T>(offset_of(number, w.in[k]));
  };
  for (int64_t line = 0; line < lines.count(); ++line) {
    T state = first_state<T>(w.next);
    for (int64_t step = 0; step < lines.length; ++step) {
      const int64_t i = w.reverse ? lines.length - 1 - step : step;
      const int64_t number = lines.number(line, i);
      const T before = state;
      state = next_state(w.next, before, operand(0, number),
                         w.in.size() > 1 ? operand(1, number) : T(0),
                         w.in.size() > 2 && operand(2, number) != T(0));
      y.set(number, w.exclusive ? before : state);
    }
  }
}

// Calls f with the type in which elements of a dtype are compared.
template <class F>
void visit_compared(DType dtype, F f) {
  visit_compute(compute_of(dtype), f);
}

}  // namespace

void evaluate(const Reduce& w, Args args) {
  const Array x{w.in, args[0]}, y{w.out, args[1]};
  const bool logical = w.reducer == Reducer::all || w.reducer == Reducer::any;
  visit_sums(logical ? DType::boolean : w.in, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < w.outputs; ++i) {
      std::vector<T> elements;
      for (int64_t r = 0; r < w.count; ++r) {
        const int64_t at = offset_of(i, w.kept) + offset_of(r, w.reduced);
        elements.push_back(logical ? static_cast<T>(x.get<bool>(at)) : x.get<T>(at));
      }
      const T result = reduce_all(w.reducer, elements);
      if (logical)
        y.set(i, result != 0);
      else
        y.set(i, result);
    }
  });
}

void evaluate(const Extremum& w, Args args) {
  const Array x{w.dtype, args[0]}, index{DType::i64, args[1 + w.index]};
  visit_compared(w.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < w.outputs; ++i) {
      auto at = [&](int64_t r) { return offset_of(i, w.kept) + offset_of(r, w.reduced); };
      int64_t best = 0;
      for (int64_t r = 1; r < w.count; ++r)
        if (wins(w.greatest, x.get<T>(at(r)), x.get<T>(at(best)))) best = r;
      index.set(i, best);
      if (w.value >= 0) Array{w.dtype, args[1 + w.value]}.set(i, x, at(best));
    }
  });
}

void evaluate(const Scan& w, Args args) {
  if (compute_of(w.out) == Compute::i64)
    scan<int64_t>(w, args);
  else
    scan<double>(w, args);
}

void evaluate(const RunningMax& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]}, index{DType::i64, args[2]};
  const Lines lines(w.x, w.dim);
  visit_compared(w.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t line = 0; line < lines.count(); ++line) {
      auto at = [&](int64_t i) { return offset_of(lines.number(line, i), w.x); };
      int64_t best = 0;
      for (int64_t i = 0; i < lines.length; ++i) {
        if (!wins(true, x.get<T>(at(best)), x.get<T>(at(i)))) best = i;
        y.set(lines.number(line, i), x, at(best));
        index.set(lines.number(line, i), best);
      }
    }
  });
}

void evaluate(const Sort& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]}, index{DType::i64, args[2]};
  const int64_t length = w.x.shape.back();
  visit_compared(w.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t row = 0; row < w.rows; ++row) {
      auto at = [&](int64_t i) { return offset_of(row * length + i, w.x); };
      // Whether element i stands before j: NaN is the greatest.
      auto before = [&](int64_t i, int64_t j) {
        const T a = x.get<T>(at(i)), b = x.get<T>(at(j));
        if (wins(true, a, b)) return w.descending;
        if (wins(true, b, a)) return !w.descending;
        return i < j;
      };
      for (int64_t i = 0; i < length; ++i) {
        int64_t place = 0;
        for (int64_t j = 0; j < length; ++j) place += before(j, i);
        if (place >= w.kept) continue;
        const int64_t to = row / w.inner * w.outer_stride + row % w.inner + place * w.step;
        y.set(to, x, at(i));
        index.set(to, i);
      }
    }
  });
}

}  // namespace gradus::reference
