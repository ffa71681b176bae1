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

// Of n real numbers the first n // 2 + 1 of the transform. The others are their mirror image.
struct RealFft {
  static constexpr auto name = "real_fft"sv;
  static constexpr auto doc =
      "y[k] = sum of x[m] exp(-2 pi i k m / n) along `dim` for k <= n // 2, parts last"sv;
  static constexpr int least_rank = 1;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = -1;
    std::string norm = "none";
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("norm", &Attr::norm));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

// The adjoint: no number counts for its mirror image.
struct RealIfft {
  static constexpr auto name = "real_ifft"sv;
  static constexpr auto doc =
      "y[m] = the real part of the sum of x[k] exp(2 pi i k m / n) along `dim`, k <= n // 2"sv;
  static constexpr int least_rank = 2;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    Dim n = 1;
    int64_t dim = -2;
    std::string norm = "none";
    static constexpr auto fields() {
      return std::tuple(required("n", &Attr::n), dimension("dim", &Attr::dim),
                        field("norm", &Attr::norm));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

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

using FourierOperators = std::tuple<Fft, RealFft, RealIfft, Rfft, Irfft>;

}  // namespace gradus::ops
