#include <algorithm>
#include <vector>

#include "gradus/error.h"
#include "gradus/type.h"
#include "ir/dim_walk.h"

namespace gradus::ir {

namespace {

enum class AtomKind : uint8_t { symbol, floor_div, max, min };

constexpr int max_depth = 32;
constexpr size_t max_terms = 256;

int64_t checked(int64_t a, int64_t b, bool (*op)(int64_t, int64_t, int64_t*)) {
  int64_t r;
  if (op(a, b, &r)) throw Error("a dimension does not fit 64 bits");
  return r;
}
int64_t add(int64_t a, int64_t b) {
  return checked(a, b,
                 [](int64_t x, int64_t y, int64_t* r) { return __builtin_add_overflow(x, y, r); });
}
int64_t mul(int64_t a, int64_t b) {
  return checked(a, b,
                 [](int64_t x, int64_t y, int64_t* r) { return __builtin_mul_overflow(x, y, r); });
}
int64_t floor_division(int64_t a, int64_t b) {
  if (b == 0) throw Error("a dimension is divided by zero");
  if (b == -1)
    return checked(
        0, a, [](int64_t x, int64_t y, int64_t* r) { return __builtin_sub_overflow(x, y, r); });
  int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

}  // namespace

// A name, or a function of two expressions that polynomials cannot say.
struct Atom final : RefCounted {
  AtomKind kind = AtomKind::symbol;
  std::string key;  // the text: identity and order
  Dim a, b;
  int depth = 1;
};

struct Term {
  int64_t coefficient = 0;
  std::vector<Ref<const Atom>> atoms;  // sorted by key; empty: the constant term
};

namespace {

// Higher degree first, then by names: "N*M + N + 1".
int compare_atoms(const Term& x, const Term& y) {
  if (x.atoms.size() != y.atoms.size()) return x.atoms.size() > y.atoms.size() ? -1 : 1;
  for (size_t i = 0; i < x.atoms.size(); ++i)
    if (int c = x.atoms[i]->key.compare(y.atoms[i]->key)) return c;
  return 0;
}

}  // namespace

class DimExpression final : public RefCounted {
 public:
  std::vector<Term> terms;  // sorted, no zero coefficients, at least one with atoms
  int depth = 1;

  static std::vector<Term> terms_of(const Dim& d) {
    if (d.expression_) return d.expression()->terms;
    if (d.value_ == 0) return {};
    return {Term{d.value_, {}}};
  }

  static Dim make(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(),
              [](const Term& x, const Term& y) { return compare_atoms(x, y) < 0; });
    std::vector<Term> sum;
    for (Term& t : terms) {
      if (!sum.empty() && compare_atoms(sum.back(), t) == 0)
        sum.back().coefficient = add(sum.back().coefficient, t.coefficient);
      else
        sum.push_back(std::move(t));
    }
    std::erase_if(sum, [](const Term& t) { return t.coefficient == 0; });
    if (sum.empty()) return 0;
    if (sum.size() == 1 && sum[0].atoms.empty()) return sum[0].coefficient;
    if (sum.size() > max_terms)
      throw Error("a dimension expression has more than {} terms", max_terms);
    auto e = make_ref<DimExpression>();
    for (const Term& t : sum) {
      if (t.atoms.size() > max_terms)
        throw Error("a dimension expression has more than {} factors", max_terms);
      for (const auto& a : t.atoms) e->depth = std::max(e->depth, a->depth);
    }
    e->terms = std::move(sum);
    return Dim(Ref<const DimExpression>(e));
  }

  static Dim function(AtomKind kind, const Dim& a, const Dim& b) {
    auto atom = make_ref<Atom>();
    atom->kind = kind;
    atom->a = a;
    atom->b = b;
    int da = a.expression_ ? a.expression()->depth : 0,
        db = b.expression_ ? b.expression()->depth : 0;
    atom->depth = 1 + std::max(da, db);
    if (atom->depth > max_depth)
      throw Error("a dimension expression is nested more than {} deep", max_depth);
    atom->key = kind == AtomKind::floor_div ? parenthesised(a) + " // " + parenthesised(b)
                                            : (kind == AtomKind::max ? "max(" : "min(") +
                                                  a.to_string() + ", " + b.to_string() + ")";
    if (atom->key.size() > 4096) throw Error("a dimension expression is too long");
    return make({Term{1, {Ref<const Atom>(atom)}}});
  }

  static std::string parenthesised(const Dim& d) {
    bool simple = !d.expression_
                      ? d.value_ >= 0
                      : d.expression()->terms.size() == 1 &&
                            d.expression()->terms[0].coefficient == 1 &&
                            d.expression()->terms[0].atoms.size() == 1 &&
                            d.expression()->terms[0].atoms[0]->kind != AtomKind::floor_div;
    return simple ? d.to_string() : "(" + d.to_string() + ")";
  }

  static void walk(const Dim& d, DimSteps& steps) {
    if (!d.expression_) return steps.constant(d.value_);
    using Operation = DimSteps::Operation;
    const std::vector<Term>& terms = d.expression()->terms;
    for (const Term& t : terms) {
      size_t factors = 0;
      auto factor = [&] {
        if (++factors > 1) steps.operate(Operation::multiply);
      };
      if (t.coefficient != 1 || t.atoms.empty()) {
        steps.constant(t.coefficient);
        factor();
      }
      for (const auto& atom : t.atoms) {
        if (atom->kind == AtomKind::symbol) {
          steps.symbol(atom->key);
        } else {
          walk(atom->a, steps);
          walk(atom->b, steps);
          steps.operate(atom->kind == AtomKind::max   ? Operation::max
                        : atom->kind == AtomKind::min ? Operation::min
                                                      : Operation::floor_div);
        }
        factor();
      }
      if (&t != terms.data()) steps.operate(Operation::add);
    }
  }

  // In parentheses wherever a factor or a sign before a `//` would read as a part of its dividend.
  static std::string term_text(const Term& t, int64_t magnitude_of) {
    std::string s;
    if (magnitude_of != 1 || t.atoms.empty()) s = fmt::format("{}", magnitude_of);
    for (const auto& a : t.atoms) {
      if (!s.empty()) s += "*";
      s += a->kind == AtomKind::floor_div && (t.atoms.size() > 1 || t.coefficient != 1)
               ? "(" + a->key + ")"
               : a->key;
    }
    return s;
  }
};

Dim::Dim(Ref<const DimExpression> e) : expression_(std::move(e)) {}

const DimExpression* Dim::expression() const {
  return static_cast<const DimExpression*>(expression_.get());
}

Dim Dim::symbol(std::string_view name) {
  auto atom = make_ref<Atom>();
  atom->key = std::string(name);
  return DimExpression::make({Term{1, {Ref<const Atom>(atom)}}});
}

std::string_view Dim::symbol_name() const {
  if (!expression_ || expression()->terms.size() != 1) return {};
  const Term& t = expression()->terms[0];
  if (t.coefficient != 1 || t.atoms.size() != 1 || t.atoms[0]->kind != AtomKind::symbol) return {};
  return t.atoms[0]->key;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return add(a.value_, b.value_);
  if (a.is_constant() && a.value_ == 0) return b;
  if (b.is_constant() && b.value_ == 0) return a;
  auto terms = DimExpression::terms_of(a);
  for (Term& t : DimExpression::terms_of(b)) terms.push_back(std::move(t));
  return DimExpression::make(std::move(terms));
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return mul(a.value_, b.value_);
  if (a.is_constant() && a.value_ == 1) return b;
  if (b.is_constant() && b.value_ == 1) return a;
  std::vector<Term> terms;
  auto left = DimExpression::terms_of(a), right = DimExpression::terms_of(b);
  if (left.size() * right.size() > max_terms * 4)
    throw Error("a dimension expression has more than {} terms", max_terms);
  for (const Term& x : left)
    for (const Term& y : right) {
      Term t{mul(x.coefficient, y.coefficient), x.atoms};
      t.atoms.insert(t.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(t.atoms.begin(), t.atoms.end(),
                [](const auto& p, const auto& q) { return p->key < q->key; });
      terms.push_back(std::move(t));
    }
  return DimExpression::make(std::move(terms));
}

Dim floor_div(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return floor_division(a.value_, b.value_);
  if (b.is_constant() && b.value_ == 0) throw Error("a dimension is divided by zero");
  if (a.is_constant() && a.value_ == 0) return 0;
  if (a == b) return 1;
  // Exact division of every term by a single-term divisor: (2*N*M) // M == 2*N.
  auto divisor = DimExpression::terms_of(b);
  if (divisor.size() == 1) {
    auto terms = DimExpression::terms_of(a);
    bool exact = true;
    for (Term& t : terms) {
      const int64_t by = divisor[0].coefficient;
      exact = exact && (by == -1 || t.coefficient % by == 0);  // INT64_MIN % -1 overflows
      if (!exact) break;
      t.coefficient = floor_division(t.coefficient, divisor[0].coefficient);
      for (const auto& d : divisor[0].atoms) {
        auto it = std::find_if(t.atoms.begin(), t.atoms.end(),
                               [&](const auto& x) { return x->key == d->key; });
        if ((exact = it != t.atoms.end()))
          t.atoms.erase(it);
        else
          break;
      }
    }
    if (exact) return DimExpression::make(std::move(terms));
  }
  return DimExpression::function(AtomKind::floor_div, a, b);
}

Dim max(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.value_, b.value_);
  if (a == b) return a;
  Dim difference = a - b;
  if (difference.known_nonnegative()) return a;
  if ((Dim(-1) * difference).known_nonnegative()) return b;
  return a.to_string() < b.to_string() ? DimExpression::function(AtomKind::max, a, b)
                                       : DimExpression::function(AtomKind::max, b, a);
}

Dim min(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.value_, b.value_);
  if (a == b) return a;
  Dim difference = a - b;
  if (difference.known_nonnegative()) return b;
  if ((Dim(-1) * difference).known_nonnegative()) return a;
  return a.to_string() < b.to_string() ? DimExpression::function(AtomKind::min, a, b)
                                       : DimExpression::function(AtomKind::min, b, a);
}

bool Dim::known_nonnegative() const {
  if (!expression_) return value_ >= 0;
  auto nonnegative = [](const Ref<const Atom>& atom) {
    bool a = atom->a.known_nonnegative(), b = atom->b.known_nonnegative();
    switch (atom->kind) {
      case AtomKind::symbol:
        return true;
      case AtomKind::max:
        return a || b;
      default:
        return a && b;
    }
  };
  return std::all_of(expression()->terms.begin(), expression()->terms.end(), [&](const Term& t) {
    return t.coefficient >= 0 && std::all_of(t.atoms.begin(), t.atoms.end(), nonnegative);
  });
}

bool operator==(const Dim& a, const Dim& b) {
  if (!a.expression_ || !b.expression_)
    return !a.expression_ && !b.expression_ && a.value_ == b.value_;
  if (a.expression_ == b.expression_) return true;
  const auto &x = a.expression()->terms, &y = b.expression()->terms;
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].coefficient != y[i].coefficient || compare_atoms(x[i], y[i]) != 0) return false;
  return true;
}

std::string Dim::to_string() const {
  if (!expression_) return fmt::format("{}", value_);
  std::string s;
  for (const Term& t : expression()->terms) {
    // -2^63 has no magnitude of its own: such a coefficient prints with its sign.
    bool negative = t.coefficient < 0 && t.coefficient != INT64_MIN;
    std::string term = DimExpression::term_text(t, negative ? -t.coefficient : t.coefficient);
    if (s.empty())
      s = (negative ? "-" : "") + term;
    else
      s += (negative ? " - " : " + ") + term;
  }
  return s;
}

int64_t Dim::evaluate(const DimEnvironment& sizes) const {
  if (!expression_) return value_;
  int64_t sum = 0;
  for (const Term& t : expression()->terms) {
    int64_t product = t.coefficient;
    for (const auto& atom : t.atoms) {
      int64_t v = 0;
      if (atom->kind == AtomKind::symbol) {
        auto known = sizes.find(atom->key);
        if (!known) throw Error("the size of dimension '{}' is not known here", atom->key);
        v = *known;
      } else {
        int64_t a = atom->a.evaluate(sizes), b = atom->b.evaluate(sizes);
        v = atom->kind == AtomKind::max   ? std::max(a, b)
            : atom->kind == AtomKind::min ? std::min(a, b)
                                          : floor_division(a, b);
      }
      product = mul(product, v);
    }
    sum = add(sum, product);
  }
  return sum;
}

void Dim::for_each_symbol(const std::function<void(std::string_view)>& each) const {
  if (!expression_) return;
  for (const Term& t : expression()->terms)
    for (const auto& atom : t.atoms) {
      if (atom->kind == AtomKind::symbol) {
        each(atom->key);
      } else {
        atom->a.for_each_symbol(each);
        atom->b.for_each_symbol(each);
      }
    }
}

Dim Dim::substitute(const std::function<std::optional<Dim>(std::string_view)>& replace) const {
  if (!expression_) return *this;
  Dim sum = 0;
  for (const Term& t : expression()->terms) {
    Dim product = t.coefficient;
    for (const auto& atom : t.atoms) {
      if (atom->kind == AtomKind::symbol) {
        auto r = replace(atom->key);
        product = product * (r ? *r : Dim::symbol(atom->key));
        continue;
      }
      Dim a = atom->a.substitute(replace), b = atom->b.substitute(replace);
      product = product * (atom->kind == AtomKind::max   ? max(a, b)
                           : atom->kind == AtomKind::min ? min(a, b)
                                                         : floor_div(a, b));
    }
    sum = sum + product;
  }
  return sum;
}

std::optional<Dim::Linear> Dim::linear_in(std::string_view symbol) const {
  if (!expression_) return std::nullopt;
  std::vector<Term> rest;
  int64_t coefficient = 0;
  for (const Term& t : expression()->terms) {
    if (t.atoms.size() == 1 && t.atoms[0]->kind == AtomKind::symbol && t.atoms[0]->key == symbol)
      coefficient = t.coefficient;
    else
      rest.push_back(t);
  }
  Dim other = DimExpression::make(std::move(rest));
  bool elsewhere = false;
  other.for_each_symbol([&](std::string_view s) { elsewhere |= s == symbol; });
  if (coefficient == 0 || elsewhere) return std::nullopt;
  return Linear{coefficient, other};
}

void walk(const Dim& dim, DimSteps& steps) { DimExpression::walk(dim, steps); }

std::string to_string(std::span<const Dim> dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + dims[i].to_string();
  return s + "]";
}

Dim numel(std::span<const Dim> dims) {
  Dim n = 1;
  for (const Dim& d : dims) n = n * d;
  return n;
}

bool all_constant(std::span<const Dim> dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return d.is_constant(); });
}

}  // namespace gradus::ir
