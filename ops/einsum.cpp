#include "ops/einsum.h"

#include <algorithm>
#include <map>

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/slicing.h"

namespace gradus::ops {

namespace {

// A letter, or dimension i of those that "..." stands for, counted from the last one, as -1 - i.
using Label = int;
using Labels = std::vector<Label>;

bool contains(const Labels& labels, Label l) {
  return std::find(labels.begin(), labels.end(), l) != labels.end();
}
size_t position(const Labels& labels, Label l) {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), l) - labels.begin());
}
std::string name_of_label(Label l) {
  return l < 0 ? "a dimension of \"...\"" : fmt::format("'{}'", static_cast<char>(l));
}

// One side's letters; `ellipsis` is where "..." stands among them, -1 if nowhere.
struct Subscript {
  Labels letters;
  int ellipsis = -1;
};

struct Equation {
  std::vector<Subscript> operands;
  bool has_result = false;
  Subscript result;
};

Subscript read_subscript(const ComposeCall& c, std::string_view text) {
  Subscript s;
  for (size_t i = 0; i < text.size(); ++i) {
    char ch = text[i];
    if (ch == ' ') continue;
    if (text.substr(i).starts_with("...")) {
      if (s.ellipsis >= 0) c.fail("\"{}\" has \"...\" twice", text);
      s.ellipsis = static_cast<int>(s.letters.size());
      i += 2;
    } else if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')) {
      s.letters.push_back(ch);
    } else {
      c.fail("\"{}\" has a character that is neither a letter nor \"...\"", text);
    }
  }
  return s;
}

Equation read_equation(const ComposeCall& c, std::string_view text) {
  Equation e;
  size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  for (size_t start = 0; start <= left.size();) {
    size_t comma = std::min(left.find(',', start), left.size());
    e.operands.push_back(read_subscript(c, left.substr(start, comma - start)));
    start = comma + 1;
  }
  if (e.operands.size() != c.operands.size())
    c.fail("the equation \"{}\" names {} operands, {} are given", text, e.operands.size(),
           c.operands.size());
  e.has_result = arrow != std::string_view::npos;
  if (e.has_result) e.result = read_subscript(c, text.substr(arrow + 2));
  return e;
}

Labels spelled_out(const Subscript& s, int dots) {
  Labels labels = s.letters;
  for (int i = 0; i < dots; ++i) labels.insert(labels.begin() + s.ellipsis + i, i - dots);
  return labels;
}

struct Term {
  Value value;
  Labels labels;
};

Term take_operand(const ComposeCall& c, size_t i, const Subscript& s) {
  const Value& x = c.x(i);
  if (!x.is_tensor()) c.fail("operand {} must be a tensor", i);
  int dots = x.rank() - static_cast<int>(s.letters.size());
  if (dots < 0 || (dots > 0 && s.ellipsis < 0))
    c.fail("the equation names {} dimensions of operand {}, whose shape is {}{}", s.letters.size(),
           i, to_string(x.dims()), dots > 0 ? "; \"...\" stands for the others" : "");
  return {x, spelled_out(s, s.ellipsis < 0 ? 0 : dots)};
}

// A letter that stands twice in one operand: the diagonal, at the end.
void take_diagonals(const ComposeCall& c, Term& t) {
  for (size_t i = 0; i < t.labels.size();) {
    Label l = t.labels[i];
    auto again = std::find(t.labels.begin() + static_cast<int64_t>(i) + 1, t.labels.end(), l);
    if (again == t.labels.end()) {
      ++i;
      continue;
    }
    auto j = static_cast<size_t>(again - t.labels.begin());
    const Dim &a = t.value.dims()[i], &b = t.value.dims()[j];
    if (a.is_constant() && b.is_constant() && a != b)
      c.fail("{} names sizes {} and {} of one operand", name_of_label(l), a.value(), b.value());
    t.value = emit<Diagonal>({t.value},
                             {.dim1 = static_cast<int64_t>(i), .dim2 = static_cast<int64_t>(j)});
    t.labels.erase(t.labels.begin() + static_cast<int64_t>(j));
    t.labels.erase(t.labels.begin() + static_cast<int64_t>(i));
    t.labels.push_back(l);
  }
}

// The size of each label: the one that is not 1, if any.
using SizeOf = std::map<Label, Dim>;
void learn_sizes(const ComposeCall& c, const Term& t, SizeOf& sizes) {
  for (size_t i = 0; i < t.labels.size(); ++i) {
    const Dim& own = t.value.dims()[i];
    auto [it, fresh] = sizes.emplace(t.labels[i], own);
    if (fresh || own == Dim(1) || own == it->second) continue;
    if (it->second == Dim(1))
      it->second = own;
    else if (own.is_constant() && it->second.is_constant())
      c.fail("{} stands for sizes {} and {}", name_of_label(t.labels[i]), it->second.value(),
             own.value());
  }
}

// A size of 1 that broadcasts needs no dimension.
void drop_broadcast(Term& t, const SizeOf& sizes) {
  for (size_t i = t.labels.size(); i-- > 0;)
    if (t.value.dims()[i] == Dim(1) && sizes.at(t.labels[i]) != Dim(1)) {
      t.value = squeeze(t.value, static_cast<int64_t>(i));
      t.labels.erase(t.labels.begin() + static_cast<int64_t>(i));
    }
}

void sum_all_but(Term& t, const Labels& kept) {
  Ints dims;
  Labels left;
  for (size_t i = 0; i < t.labels.size(); ++i) {
    if (contains(kept, t.labels[i]))
      left.push_back(t.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  t.value = sum(t.value, dims, false);
  t.labels = std::move(left);
}

// The dimensions in this order; labels that the term lacks become size 1.
Value arranged(const Term& t, const Labels& order) {
  Ints dims;
  bool sorted = true;
  for (Label l : order)
    if (contains(t.labels, l)) dims.push_back(static_cast<int64_t>(position(t.labels, l)));
  for (size_t i = 0; i < dims.size(); ++i) sorted &= dims[i] == static_cast<int64_t>(i);
  Value v = sorted ? t.value : permute(t.value, dims);
  for (size_t i = 0; i < order.size(); ++i)
    if (!contains(t.labels, order[i])) v = unsqueeze(v, static_cast<int64_t>(i));
  return v;
}

// [batch…, the product of `rows`, the product of `columns`]
Value as_matrices(const Term& t, const Labels& batch, const Labels& rows, const Labels& columns) {
  Labels order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  Value v = arranged(t, order);
  Dims shape(v.dims().begin(), v.dims().begin() + static_cast<int64_t>(batch.size()));
  std::span<const Dim> rest = std::span<const Dim>(v.dims()).subspan(batch.size());
  shape.push_back(numel(rest.first(rows.size())));
  shape.push_back(numel(rest.subspan(rows.size())));
  return reshape(v, shape);
}

Term contract(Term a, Term b, const Labels& kept) {
  auto needed = [&](const Term& other) {
    Labels l = kept;
    l.insert(l.end(), other.labels.begin(), other.labels.end());
    return l;
  };
  sum_all_but(a, needed(b));
  sum_all_but(b, needed(a));
  Labels batch, rows, columns, summed;
  for (Label l : a.labels) {
    bool shared = contains(b.labels, l);
    (!shared ? rows : contains(kept, l) ? batch : summed).push_back(l);
  }
  for (Label l : b.labels)
    if (!contains(a.labels, l)) columns.push_back(l);
  Labels labels = batch;
  labels.insert(labels.end(), rows.begin(), rows.end());
  labels.insert(labels.end(), columns.begin(), columns.end());
  if (summed.empty()) {
    Value left = arranged(a, labels), right = arranged(b, labels);
    return {left * right, labels};
  }
  Value left = as_matrices(a, batch, rows, summed), right = as_matrices(b, batch, summed, columns);
  Value product = matmul(left, right);
  Dims shape(product.dims().begin(), product.dims().end() - 2);
  for (Label l : rows) shape.push_back(a.value.dims()[position(a.labels, l)]);
  for (Label l : columns) shape.push_back(b.value.dims()[position(b.labels, l)]);
  return {reshape(product, shape), labels};
}

// What the equation says of the result, or what it leaves unsaid.
Labels result_labels(const ComposeCall& c, const Equation& e, const std::vector<Term>& terms) {
  int dots = 0;
  std::map<Label, int> seen;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (e.operands[i].ellipsis >= 0)
      dots = std::max(dots, c.x(i).rank() - static_cast<int>(e.operands[i].letters.size()));
    for (Label l : e.operands[i].letters) ++seen[l];
  }
  Subscript result = e.result;
  if (!e.has_result) {
    result.ellipsis = 0;
    for (auto [letter, times] : seen)
      if (times == 1) result.letters.push_back(letter);
  }
  for (size_t i = 0; i < result.letters.size(); ++i) {
    Label l = result.letters[i];
    if (!seen.contains(l)) c.fail("{} is in the result but in no operand", name_of_label(l));
    if (position(result.letters, l) != i) c.fail("{} is in the result twice", name_of_label(l));
  }
  return spelled_out(result, result.ellipsis < 0 ? 0 : dots);
}

}  // namespace

void Einsum::compose(ComposeCall& c, const Attr& a) {
  if (c.operands.empty()) c.fail("it wants at least one operand");
  Equation e = read_equation(c, a.equation);
  std::vector<Term> terms;
  SizeOf sizes;
  for (size_t i = 0; i < c.operands.size(); ++i) terms.push_back(take_operand(c, i, e.operands[i]));
  Labels result = result_labels(c, e, terms);
  for (Term& t : terms) {
    take_diagonals(c, t);
    learn_sizes(c, t, sizes);
  }
  for (Term& t : terms) drop_broadcast(t, sizes);
  Term all = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    Labels kept = result;
    for (size_t j = i + 1; j < terms.size(); ++j)
      kept.insert(kept.end(), terms[j].labels.begin(), terms[j].labels.end());
    all = contract(std::move(all), std::move(terms[i]), kept);
  }
  sum_all_but(all, result);
  c.give(arranged(all, result));
}

}  // namespace gradus::ops
