// Products of rows with prepacked matrices: the linear maps of decoding, in three number formats.
//
// A matrix of (outputs, inputs) lies in panels of 64 outputs; a panel has, for every group of inputs that one instruction
// multiplies (1 float32, 2 bfloat16, 4 int8), the 64 outputs' weights. Every element of a result is one
// sum whose order does not depend on how many rows there are: products are batch-invariant.
#pragma once
#include <vector>

#include "activation.h"

namespace transduce {

constexpr int kPanel = 64;
constexpr float kLeastRange = 1e-36f;  // of an int8 row that is no row of zeros: 255 by less than this is no number

enum Format : std::int32_t { kFloat32 = 0, kBfloat16 = 1, kInt8 = 2 };

// int8: row r of the activations is (u8 - zero_r) * scale_r, output n of the weights s8 * scales[n]; sums[n] is the sum of the
// output's s8. Bias and, but for int8, scales and sums may be missing.
struct Matrix {
  const void* panels;
  const float* scales;
  const std::int32_t* sums;
  const float* bias;
  std::int64_t outputs, inputs;
  std::int64_t format;
};

constexpr std::int64_t group_of(std::int64_t format) { return format == kInt8 ? 4 : format == kBfloat16 ? 2 : 1; }
constexpr std::int64_t bytes_of(std::int64_t format) { return format == kInt8 ? 1 : format == kBfloat16 ? 2 : 4; }

// Rows made ready for products in one format: `stride` bytes each, whole lines of tiles, zero behind the last input.
struct Rows {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;
  std::vector<std::int32_t> zeros;
  std::int64_t stride = 0;

  void resize(std::int64_t rows, std::int64_t inputs, std::int64_t format) {
    stride = round_up(inputs * bytes_of(format), 64);
    if (static_cast<std::int64_t>(bytes.size()) < rows * stride) bytes.resize(rows * stride);
    if (static_cast<std::int64_t>(scales.size()) < rows) scales.resize(rows);
    if (static_cast<std::int64_t>(zeros.size()) < rows) zeros.resize(rows);  // where there was no room for it after the others
  }

  // q = round(x * (255 / (high - low))) + zero, halves to even, where low and high are the row's least and largest number, or 0
  // where that is beyond, and zero is the zero point; x is about (q - zero) * scale, and a row of zeros has scale 0.
  void quantize(const float* x, std::int64_t r, std::int64_t n) {
    Sixteen lows[2] = {}, highs[2] = {}, checks[2] = {};  // the last are NaN where some x is NaN; in two chains, one waits for half as many
    const auto look = [&](std::int64_t i, Sixteen numbers) {
      lows[i] = larger(-numbers, lows[i]), highs[i] = larger(numbers, highs[i]), checks[i] += numbers * 0.0f;
    };
    std::int64_t at = 0;
    for (; at + 32 <= n; at += 32) look(0, load_sixteen(x + at)), look(1, load_sixteen(x + at + 16));
    for (; at < n; at += 16) look(0, load_first(x + at, n - at));
    const float low = -largest_of(larger(lows[0], lows[1])), high = largest_of(larger(highs[0], highs[1]));
    const float range = high - low, inverse = range > kLeastRange ? 255.0f / range : 0.0f;
    scales[r] = range / 255.0f + sum_sixteen(checks[0] + checks[1]);
    const float start = -low * inverse;  // NaN where low is minus infinity: the scale is NaN then, and so is all that is made of the row
    const std::int32_t zero = zeros[r] = start > 0.0f ? static_cast<std::int32_t>(std::nearbyint(start)) : 0;
    std::uint8_t* to = bytes.data() + r * stride;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t q = static_cast<std::int32_t>(std::nearbyint(x[i] * inverse)) + zero;
      to[i] = static_cast<std::uint8_t>(q > 255 ? 255 : q);  // both ends of a row may have been rounded up
    }
  }

  void set(const float* x, std::int64_t r, std::int64_t n, std::int64_t format) {
    std::uint8_t* to = bytes.data() + r * stride;
    const std::int64_t used = n * bytes_of(format);
    std::memset(to + used, 0, stride - used);
    if (format == kInt8) {
      quantize(x, r, n);
    } else if (format == kFloat32) {
      std::memcpy(to, x, n * 4);
    } else {
      Bfloat16* t = reinterpret_cast<Bfloat16*>(to);
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) narrow(x[i], t[i]);
    }
  }
};

// out[r][n] = activation(x_r w_n + bias[n]), `stride` floats a row; with `add`, x_r w_n + bias[n] is added to what is there.
struct Target {
  float* out;
  std::int64_t stride;
  Activation activation = kIdentity;
  bool add = false;
};

void multiply(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target);

}  // namespace transduce
