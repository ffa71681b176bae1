// The parameters of a kernel in stock: one struct of fields of 64 bits. A field is listed once: its
// declaration in the kernel's text stands beside what a launch says of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/cuda/source.h"
#include "work/move.h"

namespace gradus::fusion::cuda {

// What a launch passes: words, of which some are addresses that come with the run.
struct Arguments {
  struct Pointer {
    size_t word;
    int argument;    // work::Window::scratch: of the scratch memory
    int64_t offset;  // in bytes
  };
  std::vector<uint64_t> words;
  std::vector<Pointer> pointers;
};

// A kernel, and the launches of it that do a piece of work: none where there is nothing to do.
struct StockKernel {
  struct Launch {
    Arguments arguments;
    int64_t blocks;  // that there is work for
  };
  Source source;
  std::vector<Launch> launches;
};

// An address: so many bytes into an argument, or into the scratch memory.
struct Place {
  // NOLINTBEGIN: a list of parameters names arguments and windows as they are
  Place(int argument, int64_t offset = 0) : argument(argument), offset(offset) {}
  Place(const work::Window& w)
      : Place(w.argument, w.offset * static_cast<int64_t>(size_of(w.dtype))) {}
  // NOLINTEND
  int argument;
  int64_t offset;
};

class Parameters {
 public:
  // A pointer to elements that are read, or to others. Nothing: a null pointer.
  Parameters& in(std::string_view type, std::string_view name, std::optional<Place> place);
  Parameters& out(std::string_view type, std::string_view name, std::optional<Place> place);
  // An i64, or an array of them.
  Parameters& add(std::string_view name, int64_t value);
  Parameters& add(std::string_view name, std::span<const int64_t> list);
  // An array of structs, which the text defines by the fields of one. They have no pointers.
  Parameters& add(std::string_view type, std::string_view name, std::span<const Parameters> list);

  // The declarations, a line each.
  const std::string& text() const { return text_; }
  const Arguments& arguments() const { return arguments_; }

 private:
  std::string text_;
  Arguments arguments_;
};

// The fields of a struct of numbers and of arrays of numbers that lists them (work/fields.h).
template <work::HasFields T>
Parameters parameters_of(const T& x) {
  Parameters p;
  work::for_each_field(x, [&](std::string_view name, const auto& value) { p.add(name, value); });
  return p;
}

// A member of each.
template <class List, class T>
Sizes each(const List& list, int64_t T::*member) {
  Sizes values;
  for (const T& x : list) values.push_back(x.*member);
  return values;
}

}  // namespace gradus::fusion::cuda
