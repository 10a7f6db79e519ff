// Sixteen numbers at a time, and small products made of them.
#pragma once
#include <immintrin.h>

#include "numbers.h"

namespace transduce {

// Whatever the processor: the compiler lays them in as many registers as it needs.
using Sixteen = float __attribute__((vector_size(64)));

inline Sixteen load_sixteen(const float* x) {
  Sixteen result;
  std::memcpy(&result, x, sizeof result);
  return result;
}
inline Sixteen load_sixteen(const Bfloat16* x) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  return (Sixteen)_mm512_slli_epi32(wide, 16);
#else
  using Narrow = Bfloat16 __attribute__((vector_size(32)));
  using Bits = std::uint32_t __attribute__((vector_size(64)));
  Narrow bits;
  std::memcpy(&bits, x, sizeof bits);
  return (Sixteen)(__builtin_convertvector(bits, Bits) << 16);
#endif
}
inline void store_sixteen(Sixteen x, float* to) { std::memcpy(to, &x, sizeof x); }

inline float sum_sixteen(Sixteen x) {
  using Eight = float __attribute__((vector_size(32)));
  using Four = float __attribute__((vector_size(16)));
  Eight eight[2];
  std::memcpy(eight, &x, sizeof x);
  const Eight half = eight[0] + eight[1];
  Four four[2];
  std::memcpy(four, &half, sizeof half);
  const Four quarter = four[0] + four[1];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

// Written out: what the compiler makes of a maximum in a loop goes number by number, for the sake of those that are none.
inline Sixteen larger(Sixteen a, Sixteen b) { return a > b ? a : b; }
inline float largest_of(Sixteen x) {
  float numbers[16];
  store_sixteen(x, numbers);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) numbers[i] = std::max(numbers[i], numbers[i + half]);
  return numbers[0];
}

inline bool any_larger(Sixteen x, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
#else
  return largest_of(x) > bound;
#endif
}

// The largest of n numbers, leaving out what is none; `change` is applied to sixteen of them at a time.
template <typename Change>
inline float largest(const float* x, std::int64_t n, float least, Change change) {
  Sixteen top = least - Sixteen{};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) top = larger(change(load_sixteen(x + i)), top);
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
inline float largest_magnitude(const float* x, std::int64_t n) {
  return largest(x, n, 0.0f, [](Sixteen x) { return x < 0 ? -x : x; });
}

// c[i][j] = sum over k of a[i * ra + k * ca] b[k][j], for j below n, a multiple of 16. Blocks of six rows stay in registers.
template <int R, typename T>
inline void product_rows(const float* a, std::int64_t ra, std::int64_t ca, const T* b, std::int64_t rb, float* c, std::int64_t rc,
                         std::int64_t n, std::int64_t k) {
  for (std::int64_t j = 0; j < n; j += 16) {
    Sixteen sum[R] = {};
    for (std::int64_t l = 0; l < k; ++l) {
      const Sixteen x = load_sixteen(b + l * rb + j);
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) sum[i] += a[i * ra + l * ca] * x;
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) store_sixteen(sum[i], c + i * rc + j);
  }
}

template <typename T>
inline void product(const float* a, std::int64_t ra, std::int64_t ca, const T* b, std::int64_t rb, float* c, std::int64_t rc,
                    std::int64_t m, std::int64_t n, std::int64_t k) {
  std::int64_t i = 0;
  for (; i + 6 <= m; i += 6) product_rows<6>(a + i * ra, ra, ca, b, rb, c + i * rc, rc, n, k);
  for (; i + 4 <= m; i += 4) product_rows<4>(a + i * ra, ra, ca, b, rb, c + i * rc, rc, n, k);
  for (; i + 2 <= m; i += 2) product_rows<2>(a + i * ra, ra, ca, b, rb, c + i * rc, rc, n, k);
  for (; i < m; ++i) product_rows<1>(a + i * ra, ra, ca, b, rb, c + i * rc, rc, n, k);
}

}  // namespace transduce
