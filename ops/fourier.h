// Discrete Fourier transforms. A complex number is two elements along the last dimension: its real
// and its imaginary part. The gradient of a complex number is the pair of its parts' gradients.
#pragma once

#include <cmath>

#include "gradus/table.h"
#include "ops/bind_work.h"

namespace gradus::ops {

using namespace std::literals;

// `norm` scales what comes out, of n numbers: "none", "root" (by 1 / sqrt n), "size" (by 1 / n).
struct Fft {
  static constexpr auto name = "fft"sv;
  static constexpr auto doc =
      "y[k] = sum of x[m] exp(-2 pi i k m / n) along `dim`, parts last; +2 if `inverse`"sv;
  static constexpr int least_rank = 2;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = -2;
    bool inverse = false;
    std::string norm = "none";
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("inverse", &Attr::inverse),
                        field("norm", &Attr::norm));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

// The rest of the transform of a real signal is this part's mirror image.
struct Rfft {
  static constexpr auto name = "rfft"sv,
                        doc = "fft of a real x: its numbers 0 to n // 2 along `dim`, parts last"sv;
  static constexpr int least_rank = 1;
  struct Attr {
    int64_t dim = -1;
    std::string norm = "none";
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("norm", &Attr::norm));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Of the numbers 0 to n // 2, which x has along `dim`, the first and, for an even n, the last count
// with their real parts alone. Of m numbers `n` is 2 (m - 1) where it is not said.
struct Irfft {
  static constexpr auto name = "irfft"sv;
  static constexpr auto doc = "the real signal of `n` elements of which rfft gives x"sv;
  static constexpr int least_rank = 2;
  struct Attr {
    std::optional<Dim> n;
    int64_t dim = -2;
    std::string norm = "size";
    static constexpr auto fields() {
      return std::tuple(field("n", &Attr::n), dimension("dim", &Attr::dim),
                        field("norm", &Attr::norm));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using FourierOperators = std::tuple<Fft, Rfft, Irfft>;

}  // namespace gradus::ops
