// Small products of numbers as one instruction reads them: words of 32 bits, one float each, or two bfloat16, which are
// multiplied with two others and added up.
#pragma once
#include "sixteen.h"

namespace transduce {

// How many numbers a word holds.
template <typename T>
constexpr std::int64_t kGroup = 4 / sizeof(T);

// The words that hold so many numbers, the last one filled up with zeros.
template <typename T>
constexpr std::int64_t words_of(std::int64_t n) {
  return (n + kGroup<T> - 1) / kGroup<T>;
}

inline Words load_words(const std::uint32_t* x) { return load_vector<Words>(x); }
inline void store_words(Words x, std::uint32_t* to) { store_vector(x, to); }

template <typename T>
inline Sixteen multiply_add(Sixteen sum, Words a, Words b);
template <>
inline Sixteen multiply_add<float>(Sixteen sum, Words a, Words b) {
  return sum + as<Sixteen>(a) * as<Sixteen>(b);
}
template <>
inline Sixteen multiply_add<Bfloat16>(Sixteen sum, Words a, Words b) {
#if defined(__AVX512BF16__)
  return (Sixteen)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  sum += as<Sixteen>(a << 16) * as<Sixteen>(b << 16);
  return sum + as<Sixteen>(a & 0xffff0000u) * as<Sixteen>(b & 0xffff0000u);
#endif
}

// Bfloat16 in the upper half of each word, rounded as `narrow` does.
inline Words rounded(Sixteen x) {
  const Words bits = as<Words>(x);
  return as<Words>(choose(x == x, as<Sixteen>(bits + 0x7fff + (bits >> 16 & 1)), as<Sixteen>(bits | 0x400000)));
}

// Word i holds number i of each.
inline Words join_words(const Sixteen (&x)[1]) { return as<Words>(x[0]); }
inline Words join_words(const Sixteen (&x)[2]) { return rounded(x[0]) >> 16 | (rounded(x[1]) & 0xffff0000u); }

// Word i holds number i of two rows; zeros, where the other is missing.
inline Words join_words(const Bfloat16* one, const Bfloat16* other) {
  Halfwords low, high = {};
  std::memcpy(&low, one, sizeof low);
  if (other) std::memcpy(&high, other, sizeof high);
  return spread(low) | spread(high) << 16;
}

inline void store_sixteen(Sixteen x, Bfloat16* to) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
  const Halfwords bits = pack(rounded(x) >> 16);
  std::memcpy(to, &bits, sizeof bits);
#endif
}

// The first n of sixteen.
template <typename T>
inline void store_first(Sixteen x, std::int64_t n, T* to) {
  if (n >= 16) return store_sixteen(x, to);
  for (std::int64_t i = 0; i < n; ++i) narrow(x[i], to[i]);
}

// to[w][r], `width` words a line, is word w of row r; zeros behind the n-th row.
template <typename T>
inline void transpose_words(const T* x, std::int64_t stride, std::int64_t n, std::int64_t d, std::int64_t width, std::uint32_t* to) {
  for (std::int64_t w = 0; w < words_of<T>(d); w += 16) {
    const std::int64_t first = w * kGroup<T>, count = std::min<std::int64_t>(16 * kGroup<T>, d - first);
    for (std::int64_t r = 0; r < width; r += 16) {
      Sixteen tile[16] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, n - r); ++i) {
        const T* row = x + (r + i) * stride + first;
        if (count == 16 * kGroup<T>) {
          tile[i] = load_vector<Sixteen>(row);
        } else {
          std::memcpy(&tile[i], row, count * sizeof(T));
        }
      }
      transpose_sixteen(tile);
      for (std::int64_t i = 0; i < words_of<T>(count); ++i) store_words(as<Words>(tile[i]), to + (w + i) * width + r);
    }
  }
}

// to[g][c], `width` words a line, holds column c of group g of rows; zeros behind the last column and the n-th row.
template <typename T>
inline void join_rows(const T* x, std::int64_t stride, std::int64_t n, std::int64_t d, std::int64_t width, std::uint32_t* to) {
  for (std::int64_t r = 0; r < n; r += kGroup<T>, to += width) {
    std::int64_t c = 0;
    for (; c + 16 <= d; c += 16) {
      Words joined = {};
      if constexpr (kGroup<T> == 1) {
        joined = load_vector<Words>(x + r * stride + c);
      } else {
        joined = join_words(x + r * stride + c, r + 1 < n ? x + (r + 1) * stride + c : nullptr);
      }
      store_words(joined, to + c);
    }
    for (; c < width; ++c) {
      T numbers[kGroup<T>] = {};
      for (std::int64_t i = 0; i < kGroup<T> && r + i < n && c < d; ++i) numbers[i] = x[(r + i) * stride + c];
      std::memcpy(to + c, numbers, sizeof numbers);
    }
  }
}

#if defined(__AVX512F__)
constexpr int kRows = 8, kWide = 2;  // of a block whose sums stay in registers
#else
constexpr int kRows = 4, kWide = 1;
#endif

template <typename T, int R, int C, typename Finish>
inline void product_block(const char* a, std::int64_t row_bytes, std::int64_t group_bytes, const std::uint32_t* b, std::int64_t width,
                          std::int64_t groups, Finish finish) {
  Sixteen sum[R][C] = {};
  for (std::int64_t g = 0; g < groups; ++g) {
    Words right[C];
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) right[j] = load_words(b + g * width + 16 * j);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      std::uint32_t word;
      std::memcpy(&word, a + i * row_bytes + g * group_bytes, 4);
      const Words left = word + Words{};
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) sum[i][j] = multiply_add<T>(sum[i][j], left, right[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) finish(i, 16 * j, sum[i][j]);
}

// As many rows as are left, R at most.
template <typename T, int R, int C, typename Finish>
inline void product_rest(std::int64_t rows, const char* a, std::int64_t row_bytes, std::int64_t group_bytes, const std::uint32_t* b,
                         std::int64_t width, std::int64_t groups, Finish finish) {
  if constexpr (R > 0) {
    if (rows == R) return product_block<T, R, C>(a, row_bytes, group_bytes, b, width, groups, finish);
    product_rest<T, R - 1, C>(rows, a, row_bytes, group_bytes, b, width, groups, finish);
  }
}

// finish(r, c, sums) for sixteen columns from c on: sum over g of the word at a + r * row_bytes + g * group_bytes with
// b[g * width + c], for r below `rows` and c below `columns`, a multiple of 16.
template <typename T, typename Finish>
inline void product_of_words(const char* a, std::int64_t row_bytes, std::int64_t group_bytes, const std::uint32_t* b, std::int64_t width,
                             std::int64_t rows, std::int64_t columns, std::int64_t groups, Finish finish) {
  for (std::int64_t r = 0; r < rows; r += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - r);
    const char* from = a + r * row_bytes;
    std::int64_t c = 0;
    const auto shifted = [&](int i, int j, Sixteen sums) { finish(r + i, c + j, sums); };
    for (; c + 16 * kWide <= columns; c += 16 * kWide)
      product_rest<T, kRows, kWide>(count, from, row_bytes, group_bytes, b + c, width, groups, shifted);
    for (; c < columns; c += 16) product_rest<T, kRows, 1>(count, from, row_bytes, group_bytes, b + c, width, groups, shifted);
  }
}

}  // namespace transduce
