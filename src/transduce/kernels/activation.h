// The activations of feed-forward networks. The plain formulas are in feed_forward.py.
#pragma once
#include "words.h"

namespace transduce {

// interface.py has the same numbers.
enum Activation : std::int32_t { kIdentity = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4 };

// 1 / (1 + e^-x).
inline Sixteen sigmoid(Sixteen x) {
  const Sixteen e = exponential(choose(x < 0.0f, x, -x)), larger_half = 1.0f / (1.0f + e);
  return choose(x < 0.0f, e * larger_half, larger_half);
}

// The normal distribution's P(N < x), given e = e^(-x^2 / 2): Abramowitz and Stegun 7.1.26, to 1e-7.
inline Sixteen normal_below(Sixteen x, Sixteen e) {
  const Sixteen t = 1.0f / (1.0f + 0.23164189f * choose(x < 0.0f, -x, x));
  const Sixteen p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  const Sixteen tail = 0.5f * p * e;
  return choose(x < 0.0f, tail, 1.0f - tail);
}

// GELU's approximation is x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kTwiceRoot = 1.5957691216f, kCubic = 0.044715f;

template <Activation kind>
inline Sixteen value_of(Sixteen x) {
  if constexpr (kind == kRelu) return choose(x < 0.0f, Sixteen{}, x);  // NaN stays NaN
  if constexpr (kind == kGelu) return x * normal_below(x, exponential(-0.5f * x * x));
  if constexpr (kind == kGeluTanh) return x * sigmoid(kTwiceRoot * x * (1.0f + kCubic * x * x));
  if constexpr (kind == kSilu) return x * sigmoid(x);
  return x;
}

template <Activation kind>
inline Sixteen slope_of(Sixteen x) {
  if constexpr (kind == kRelu) return choose(x <= 0.0f, Sixteen{}, 1.0f + Sixteen{});
  if constexpr (kind == kGelu) {
    const Sixteen e = exponential(-0.5f * x * x);
    return normal_below(x, e) + 0.3989422804f * x * e;
  }
  if constexpr (kind == kGeluTanh) {
    const Sixteen s = sigmoid(kTwiceRoot * x * (1.0f + kCubic * x * x));
    return s + x * s * (1.0f - s) * kTwiceRoot * (1.0f + 3.0f * kCubic * x * x);
  }
  if constexpr (kind == kSilu) {
    const Sixteen s = sigmoid(x);
    return s + x * s * (1.0f - s);
  }
  return 1.0f + Sixteen{};
}

// A row of `width` results. `gated`: each is multiplied by the number that stands `width` behind what it is made of.
struct Activated {
  Activation kind;
  bool gated;
  std::int64_t width;

  std::int64_t inputs() const { return gated ? 2 * width : width; }

  // `to` may be x.
  template <typename T>
  void forward(const T* x, T* to) const {
    switch (kind) {
      case kRelu: return forward_as<kRelu>(x, to);
      case kGelu: return forward_as<kGelu>(x, to);
      case kGeluTanh: return forward_as<kGeluTanh>(x, to);
      case kSilu: return forward_as<kSilu>(x, to);
      default: return forward_as<kIdentity>(x, to);
    }
  }

  // The gradient of x, from that of the results.
  template <typename T>
  void backward(const T* gradient, const T* x, T* of_x) const {
    switch (kind) {
      case kRelu: return backward_as<kRelu>(gradient, x, of_x);
      case kGelu: return backward_as<kGelu>(gradient, x, of_x);
      case kGeluTanh: return backward_as<kGeluTanh>(gradient, x, of_x);
      case kSilu: return backward_as<kSilu>(gradient, x, of_x);
      default: return backward_as<kIdentity>(gradient, x, of_x);
    }
  }

 private:
  template <Activation as, typename T>
  void forward_as(const T* x, T* to) const {
    by_sixteens(width, [&](std::int64_t i, auto n) {
      Sixteen found = value_of<as>(load_first(x + i, n));
      if (gated) found *= load_first(x + width + i, n);
      store_first(found, n, to + i);
    });
  }

  template <Activation as, typename T>
  void backward_as(const T* gradient, const T* x, T* of_x) const {
    by_sixteens(width, [&](std::int64_t i, auto n) {
      const Sixteen own = load_first(x + i, n), received = load_first(gradient + i, n);
      Sixteen found = received * slope_of<as>(own);
      if (gated) {
        found *= load_first(x + width + i, n);
        store_first(received * value_of<as>(own), n, of_x + width + i);
      }
      store_first(found, n, of_x + i);
    });
  }
};

}  // namespace transduce
