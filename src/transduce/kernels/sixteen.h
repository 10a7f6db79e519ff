// Sixteen numbers at a time, and small products made of them.
#pragma once
#include <type_traits>

#include "vectors.h"

namespace transduce {

inline Sixteen load_sixteen(const float* x) { return load_vector<Sixteen>(x); }
inline Sixteen load_sixteen(const Bfloat16* x) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  return (Sixteen)_mm512_slli_epi32(wide, 16);
#else
  const auto* bits = reinterpret_cast<const __m128i*>(x);
  const auto half = [=](int i) { return (Sixteen::Half)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(bits + i)), 16); };
  return {half(0), half(1)};
#endif
}
// Sixteen of n numbers, zeros behind them.
template <typename T>
inline Sixteen load_first(const T* x, std::int64_t n) {
  if (n >= 16) return load_sixteen(x);
  T first[16] = {};
  std::copy(x, x + std::max<std::int64_t>(n, 0), first);
  return load_sixteen(first);
}
inline void store_sixteen(Sixteen x, float* to) { store_vector(x, to); }

// The first n of sixteen, zeros behind them.
inline Sixteen keep_first(Sixteen x, std::int64_t n) {
  return n >= 16 ? x : choose(kPlaces < static_cast<std::int32_t>(n), x, Sixteen{});
}

// body(i, n) for every sixteen of so many numbers: those from i on, of which the first n are there. But for the last ones n is a constant.
template <typename Body>
inline void by_sixteens(std::int64_t numbers, Body body) {
  std::int64_t i = 0;
  for (; i + 16 <= numbers; i += 16) body(i, std::integral_constant<std::int64_t, 16>{});
  if (i < numbers) body(i, numbers - i);
}

// Sixteen numbers become one, by halves.
template <typename Join>
inline float join_sixteen(Sixteen x, Join join) {
  using Eight = float __attribute__((vector_size(32)));
  using Four = float __attribute__((vector_size(16)));
#if defined(__AVX512F__)
  Eight eight[2];
  std::memcpy(eight, &x, sizeof x);
  const Eight half = join(eight[0], eight[1]);
#else
  const Eight half = join(x.low, x.high);
#endif
  Four four[2];
  std::memcpy(four, &half, sizeof half);
  const Four quarter = join(four[0], four[1]);
  const float one[4] = {quarter[0], quarter[1], quarter[2], quarter[3]};
  return join(join(one[0], one[2]), join(one[1], one[3]));
}

inline float sum_sixteen(Sixteen x) {
  return join_sixteen(x, [](auto a, auto b) { return a + b; });
}

// Written out: what the compiler makes of a maximum in a loop is not vectorized, for the sake of NaN.
inline float largest_of(Sixteen x) {
  return join_sixteen(x, [](auto a, auto b) { return a > b ? a : b; });
}

inline bool any_larger(Sixteen x, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
#else
  return largest_of(x) > bound;
#endif
}

// The largest of n numbers, leaving out NaN; `change` is applied to sixteen of them at a time.
template <typename Change>
inline float largest(const float* x, std::int64_t n, float least, Change change) {
  Sixteen top = least - Sixteen{}, tops[4] = {top, top, top, top};  // each waits for its own last one alone
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (int j = 0; j < 4; ++j) tops[j] = larger(change(load_sixteen(x + i + 16 * j)), tops[j]);
  for (; i + 16 <= n; i += 16) top = larger(change(load_sixteen(x + i)), top);
  for (const Sixteen each : tops) top = larger(each, top);
  if (i < n) {
    float rest[16];
    std::fill(rest, rest + 16, least);
    std::copy(x + i, x + n, rest);
    top = larger(change(load_sixteen(rest)), top);
  }
  return largest_of(top);
}
inline float largest(const float* x, std::int64_t n) {
  return largest(x, n, -INFINITY, [](Sixteen x) { return x; });
}

// `exponential` of each; adding and taking away 1.5 x 2^23 rounds to whole numbers.
inline Sixteen exponential(Sixteen x) {
  constexpr float kRound = 12582912.0f;
  x = choose(x < -87.0f, -87.0f - Sixteen{}, x);
  const Sixteen n = (x * 1.44269504f + kRound) - kRound;
  const Sixteen r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Sixteen p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1.0f;
  return p * as<Sixteen>((whole(n) + 127) << 23);
}

// R rows and W sixteens of columns, whose sums stay in registers; `cb` is how far one sixteen's columns of b lie from the next one's.
template <int R, int W, typename T>
inline void product_block(const float* a, std::int64_t ra, std::int64_t ca, const T* b, std::int64_t rb, std::int64_t cb, float* c,
                          std::int64_t rc, std::int64_t k, bool more) {
  Sixteen sum[R][W] = {};
  if (more)
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sum[i][j] = load_sixteen(c + i * rc + 16 * j);
  for (std::int64_t l = 0; l < k; ++l) {
    Sixteen x[W];
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) x[j] = load_sixteen(b + l * rb + j * cb);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) sum[i][j] += a[i * ra + l * ca] * x[j];
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) store_sixteen(sum[i][j], c + i * rc + 16 * j);
}

// Few rows take more columns at a time: an addition waits for the one before it, and meanwhile others can go on.
template <int R, int W, typename T>
inline void product_rows(const float* a, std::int64_t ra, std::int64_t ca, const T* b, std::int64_t rb, std::int64_t cb, float* c,
                         std::int64_t rc, std::int64_t n, std::int64_t k, bool more) {
  std::int64_t j = 0;
  for (; j + 16 * W <= n; j += 16 * W) product_block<R, W>(a, ra, ca, b + j / 16 * cb, rb, cb, c + j, rc, k, more);
  if constexpr (W > 1) product_rows<R, W / 2>(a, ra, ca, b + j / 16 * cb, rb, cb, c + j, rc, n - j, k, more);
}

// c[i][j] = sum over k of a[i * ra + k * ca] b[k][j], for j below n, a multiple of 16; with `more`, beginning with what c[i][j] is. Sixteen
// columns of b lie together, and the next ones `cb` behind them.
template <typename T>
inline void product(const float* a, std::int64_t ra, std::int64_t ca, const T* b, std::int64_t rb, std::int64_t cb, float* c,
                    std::int64_t rc, std::int64_t m, std::int64_t n, std::int64_t k, bool more) {
  std::int64_t i = 0;
  for (; i + 6 <= m; i += 6) product_rows<6, 1>(a + i * ra, ra, ca, b, rb, cb, c + i * rc, rc, n, k, more);
  for (; i + 4 <= m; i += 4) product_rows<4, 1>(a + i * ra, ra, ca, b, rb, cb, c + i * rc, rc, n, k, more);
  for (; i + 2 <= m; i += 2) product_rows<2, 2>(a + i * ra, ra, ca, b, rb, cb, c + i * rc, rc, n, k, more);
  for (; i < m; ++i) product_rows<1, 4>(a + i * ra, ra, ca, b, rb, cb, c + i * rc, rc, n, k, more);
}

}  // namespace transduce
