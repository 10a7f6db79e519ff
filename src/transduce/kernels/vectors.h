// Vectors of sixteen numbers on every processor, and what GCC has no operator for.
//
// Where registers have 32 bytes, GCC keeps a vector of 64 in memory from one operation to the next, and takes choices and conversions apart
// into single numbers: there it is a pair of vectors that registers hold.
#pragma once
#include <immintrin.h>

#include "numbers.h"

namespace transduce {

// Sixteen numbers of 16 bits.
using Shorts = std::int16_t __attribute__((vector_size(32)));
using Halfwords = std::uint16_t __attribute__((vector_size(32)));

#if defined(__AVX512F__)

using Sixteen = float __attribute__((vector_size(64)));
using Numbers = std::int32_t __attribute__((vector_size(64)));  // whole ones
using Words = std::uint32_t __attribute__((vector_size(64)));
using Words64 = std::uint64_t __attribute__((vector_size(64)));  // eight

constexpr Numbers kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr Words64 kPlaces64 = {0, 1, 2, 3, 4, 5, 6, 7};

// The same bits.
template <typename To, typename From>
inline To as(From x) {
  return (To)x;
}

// From memory and to it, wherever that begins.
template <typename Vector>
inline Vector load_vector(const void* from) {
  return (Vector)_mm512_loadu_si512(from);
}
template <typename Vector>
inline void store_vector(Vector x, void* to) {
  _mm512_storeu_si512(to, (__m512i)x);
}

// For each number `yes` where the mask, a comparison's result, says so, else `no`.
template <typename Mask>
inline Sixteen choose(Mask mask, Sixteen yes, Sixteen no) {
  return mask ? yes : no;
}

inline Sixteen larger(Sixteen a, Sixteen b) { return a > b ? a : b; }

inline Numbers whole(Sixteen x) { return __builtin_convertvector(x, Numbers); }  // towards zero
inline Numbers spread(Shorts x) { return __builtin_convertvector(x, Numbers); }
inline Words spread(Halfwords x) { return __builtin_convertvector(x, Words); }
inline Halfwords pack(Words x) { return (Halfwords)_mm512_cvtepi32_epi16((__m512i)x); }  // of words below 2^16

// Every second number of both, from the first or from the second one on.
inline Numbers even_ones(Numbers a, Numbers b) { return __builtin_shuffle(a, b, 2 * kPlaces); }
inline Numbers odd_ones(Numbers a, Numbers b) { return __builtin_shuffle(a, b, 2 * kPlaces + 1); }

// Row r of `x` becomes column r: interleaving the two halves four times transposes.
inline void transpose_sixteen(Sixteen (&x)[16]) {
  constexpr Numbers kLow = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}, kHigh = kLow + 8;
  for (int time = 0; time < 4; ++time) {
    Sixteen y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = __builtin_shuffle(x[i], x[i + 8], kLow);
      y[2 * i + 1] = __builtin_shuffle(x[i], x[i + 8], kHigh);
    }
    std::memcpy(x, y, sizeof x);
  }
}

#else

template <typename Number>
struct Pair {
  typedef Number Half __attribute__((vector_size(32)));  // `using` takes no attribute of a type that depends on another
  static constexpr int kHalf = 32 / sizeof(Number);
  Half low, high;

  Number operator[](std::int64_t i) const { return i < kHalf ? low[i] : high[i - kHalf]; }
  Pair operator-() const { return {-low, -high}; }
  Pair& operator+=(Pair other) { return *this = *this + other; }
  Pair& operator*=(Pair other) { return *this = *this * other; }
  friend Pair operator<<(Pair a, int bits) { return {a.low << bits, a.high << bits}; }
  friend Pair operator>>(Pair a, int bits) { return {a.low >> bits, a.high >> bits}; }

#define TRANSDUCE_OPERATOR(Result, op)                                                                       \
  friend Result operator op(Pair a, Pair b) { return {a.low op b.low, a.high op b.high}; }                   \
  friend Result operator op(Pair a, Number b) { return {a.low op b, a.high op b}; }                          \
  friend Result operator op(Number a, Pair b) { return {a op b.low, a op b.high}; }
  TRANSDUCE_OPERATOR(Pair, +)
  TRANSDUCE_OPERATOR(Pair, -)
  TRANSDUCE_OPERATOR(Pair, *)
  TRANSDUCE_OPERATOR(Pair, /)
  TRANSDUCE_OPERATOR(Pair, &)
  TRANSDUCE_OPERATOR(Pair, |)
  TRANSDUCE_OPERATOR(Pair, ^)
  TRANSDUCE_OPERATOR(Pair<std::int32_t>, <)
  TRANSDUCE_OPERATOR(Pair<std::int32_t>, <=)
  TRANSDUCE_OPERATOR(Pair<std::int32_t>, >)
  TRANSDUCE_OPERATOR(Pair<std::int32_t>, >=)
  TRANSDUCE_OPERATOR(Pair<std::int32_t>, ==)
#undef TRANSDUCE_OPERATOR
};

using Sixteen = Pair<float>;
using Numbers = Pair<std::int32_t>;
using Words = Pair<std::uint32_t>;
using Words64 = Pair<std::uint64_t>;

constexpr Numbers kPlaces = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}};
constexpr Words64 kPlaces64 = {{0, 1, 2, 3}, {4, 5, 6, 7}};

template <typename>
constexpr bool kIsPair = false;
template <typename Number>
constexpr bool kIsPair<Pair<Number>> = true;

template <typename To, typename From>
inline To as(From x) {
  if constexpr (kIsPair<To> && kIsPair<From>) {
    return {(typename To::Half)x.low, (typename To::Half)x.high};
  } else {
    static_assert(sizeof(To) == sizeof x);
    To result;
    std::memcpy(&result, &x, sizeof x);
    return result;
  }
}

// Half by half: the compiler would copy a pair by pieces of 16 bytes, and a load of 32 bytes waits until these are in the cache.
template <typename Vector>
inline Vector load_vector(const void* from) {
  const auto* halves = static_cast<const __m256i*>(from);
  return {(typename Vector::Half)_mm256_loadu_si256(halves), (typename Vector::Half)_mm256_loadu_si256(halves + 1)};
}
template <typename Vector>
inline void store_vector(Vector x, void* to) {
  auto* halves = static_cast<__m256i*>(to);
  _mm256_storeu_si256(halves, (__m256i)x.low);
  _mm256_storeu_si256(halves + 1, (__m256i)x.high);
}

inline Sixteen choose(Numbers mask, Sixteen yes, Sixteen no) { return {mask.low ? yes.low : no.low, mask.high ? yes.high : no.high}; }

inline Sixteen larger(Sixteen a, Sixteen b) { return {a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high}; }

inline Numbers whole(Sixteen x) {
  return {__builtin_convertvector(x.low, Numbers::Half), __builtin_convertvector(x.high, Numbers::Half)};
}
inline Numbers spread(Shorts x) {
  const __m256i bits = (__m256i)x;
  return {(Numbers::Half)_mm256_cvtepi16_epi32(_mm256_castsi256_si128(bits)),
          (Numbers::Half)_mm256_cvtepi16_epi32(_mm256_extracti128_si256(bits, 1))};
}
inline Words spread(Halfwords x) {
  const __m256i bits = (__m256i)x;
  return {(Words::Half)_mm256_cvtepu16_epi32(_mm256_castsi256_si128(bits)),
          (Words::Half)_mm256_cvtepu16_epi32(_mm256_extracti128_si256(bits, 1))};
}
inline Halfwords pack(Words x) {
  return (Halfwords)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)x.low, (__m256i)x.high), 0xd8);
}

inline Numbers every_second(Numbers a, Numbers b, Numbers::Half which) {
  return {__builtin_shuffle(a.low, a.high, which), __builtin_shuffle(b.low, b.high, which)};
}
inline Numbers even_ones(Numbers a, Numbers b) { return every_second(a, b, Numbers::Half{0, 2, 4, 6, 8, 10, 12, 14}); }
inline Numbers odd_ones(Numbers a, Numbers b) { return every_second(a, b, Numbers::Half{1, 3, 5, 7, 9, 11, 13, 15}); }

// As below, of eight rows of eight.
inline void transpose_eight(Sixteen::Half (&x)[8]) {
  constexpr Numbers::Half kLow = {0, 8, 1, 9, 2, 10, 3, 11}, kHigh = kLow + 4;
#pragma GCC unroll 4
  for (int time = 0; time < 3; ++time) {
    Sixteen::Half y[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = __builtin_shuffle(x[i], x[i + 4], kLow);
      y[2 * i + 1] = __builtin_shuffle(x[i], x[i + 4], kHigh);
    }
    std::memcpy(x, y, sizeof x);
  }
}

// Each quarter is transposed, and two of them change places.
inline void transpose_sixteen(Sixteen (&x)[16]) {
  Sixteen::Half quarters[4][8];
  for (int i = 0; i < 8; ++i) {
    quarters[0][i] = x[i].low, quarters[1][i] = x[i].high;
    quarters[2][i] = x[8 + i].low, quarters[3][i] = x[8 + i].high;
  }
  for (auto& quarter : quarters) transpose_eight(quarter);
  for (int i = 0; i < 8; ++i) {
    x[i] = {quarters[0][i], quarters[2][i]};
    x[8 + i] = {quarters[1][i], quarters[3][i]};
  }
}

#endif

}  // namespace transduce
