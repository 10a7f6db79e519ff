// What products by panels are made of, in vectors and in tiles: the processor's widest vectors, how a group of inputs is multiplied in each
// format, and what becomes of the sums.
#pragma once
#include "products.h"
#include "tiles.h"

namespace transduce {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
using Float = __m512;
using Int = __m512i;
inline Int load(const void* from) { return _mm512_loadu_si512(from); }
inline Int spread(std::int32_t x) { return _mm512_set1_epi32(x); }
inline Float spread(float x) { return _mm512_set1_ps(x); }
inline Float as_float(Int x) { return _mm512_castsi512_ps(x); }
inline Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
inline Int shift_up(Int x) { return _mm512_slli_epi32(x, 16); }
inline Int high(Int x) { return _mm512_and_si512(x, _mm512_set1_epi32(0xffff0000)); }
inline Float load_floats(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Float x) { _mm512_storeu_ps(to, x); }
inline Float as_numbers(Float x) { return x; }
// Not __m512i, which is of 64-bit numbers: between the two, the compiler would send every sum through memory.
using Whole = std::int32_t __attribute__((vector_size(64)));
inline Float as_numbers(Whole x) { return _mm512_cvtepi32_ps((Int)x); }
inline Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
inline Int products_of_pairs(Int a, Int b) { return _mm512_madd_epi16(a, b); }
inline Int even_bytes(Int x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); }
inline Int odd_bytes(Int x) { return _mm512_srai_epi16(x, 8); }
#else
constexpr int kLanes = 8;
using Float = __m256;
using Int = __m256i;
inline Int load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline Int spread(std::int32_t x) { return _mm256_set1_epi32(x); }
inline Float spread(float x) { return _mm256_set1_ps(x); }
inline Float as_float(Int x) { return _mm256_castsi256_ps(x); }
inline Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
inline Int shift_up(Int x) { return _mm256_slli_epi32(x, 16); }
inline Int high(Int x) { return _mm256_and_si256(x, _mm256_set1_epi32(0xffff0000)); }
inline Float load_floats(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Float x) { _mm256_storeu_ps(to, x); }
inline Float as_numbers(Float x) { return x; }
using Whole = std::int32_t __attribute__((vector_size(32)));
inline Float as_numbers(Whole x) { return _mm256_cvtepi32_ps((Int)x); }
inline Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
inline Int products_of_pairs(Int a, Int b) { return _mm256_madd_epi16(a, b); }
inline Int even_bytes(Int x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
inline Int odd_bytes(Int x) { return _mm256_srai_epi16(x, 8); }
#endif

constexpr std::int64_t kGroupBytes = kPanel * 4;  // a panel's weights for a group of inputs

inline std::int64_t groups_of(const Matrix& m) { return round_up(m.inputs, group_of(m.format)) / group_of(m.format); }
inline const std::uint8_t* panel_of(const Matrix& m, std::int64_t panel) {
  return static_cast<const std::uint8_t*>(m.panels) + panel * groups_of(m) * kGroupBytes;
}

// A group of a row's inputs is multiplied as it lies there, with weights as these lie.
struct AsTheyAre {
  using Inputs = Int;
  using Weights = Int;
  static constexpr std::int64_t kInputBytes = 4;  // of a group

  static Inputs inputs(const std::uint8_t* group) {
    std::int32_t bits;
    std::memcpy(&bits, group, 4);
    return spread(bits);
  }
  static Weights weights(Int w) { return w; }
};

// int8 where no instruction adds up products of bytes without saturating: even and odd numbers apart in 16 bits each, whose products' sums
// fit in 32. Weights are taken apart as they are read, rows before (`split`).
struct InSixteenBits {
  struct Halves {
    Int even, odd;
  };
  using Inputs = Halves;
  using Weights = Halves;
  static constexpr std::int64_t kInputBytes = 8;

  static Inputs inputs(const std::uint8_t* group) { return {AsTheyAre::inputs(group), AsTheyAre::inputs(group + 4)}; }
  static Weights weights(Int w) { return {even_bytes(w), odd_bytes(w)}; }

  // Of every four bytes the even ones, then the odd ones, as numbers of 16 bits; so many bytes, a multiple of 16.
  static void split(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* to) {
    const __m128i low = _mm_set1_epi16(0xff);
    for (std::int64_t i = 0; i < bytes; i += 16) {
      const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)), even = _mm_and_si128(x, low), odd = _mm_srli_epi16(x, 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), _mm_unpacklo_epi32(even, odd));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i + 16), _mm_unpackhi_epi32(even, odd));
    }
  }
};

// How one instruction, or a few, multiply a group of a row's inputs with those of so many outputs, and how matrix units do.
struct InFloat32 : AsTheyAre {
  using Sum = Float;
  static Sum step(Sum sum, Int x, Int w) { return fma(as_float(x), as_float(w), sum); }
};

struct InBfloat16 : AsTheyAre {
  using Sum = Float;
  static Sum step(Sum sum, Int x, Int w) {
#if defined(__AVX512BF16__)
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
#else
    sum = fma(as_float(shift_up(x)), as_float(shift_up(w)), sum);
    return fma(as_float(high(x)), as_float(high(w)), sum);
#endif
  }
  template <int kSums, int kLeft, int kRight>
  static void multiply() {
    multiply_tiles<kSums, kLeft, kRight>();
  }
};

#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
using Bytes = AsTheyAre;
#else
using Bytes = InSixteenBits;
#endif

struct InInt8 : Bytes {
  using Sum = Whole;
  static Sum step(Sum sum, Inputs x, Weights w) {
#if defined(__AVX512VNNI__)
    return (Whole)_mm512_dpbusd_epi32((Int)sum, x, w);
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
    return (Whole)_mm256_dpbusd_avx_epi32((Int)sum, x, w);
#else
    return sum + (Whole)add(products_of_pairs(x.even, w.even), products_of_pairs(x.odd, w.odd));
#endif
  }
  template <int kSums, int kLeft, int kRight>
  static void multiply() {
    multiply_int8_tiles<kSums, kLeft, kRight>();
  }
};

// Outputs of one vector: how their sums begin and what becomes of these, by the same operations whatever adds them up.
template <typename Way>
class Outputs {
 public:
  Outputs(const Matrix& m, std::int64_t first) {
    if constexpr (kWhole) scales_ = load_floats(m.scales + first), sums_ = (Whole)load(m.sums + first);
    bias_ = m.bias ? load_floats(m.bias + first) : spread(kNothing);
  }

  // Of int8: what the zero point takes away, (q - zero) w being q w - zero w.
  typename Way::Sum begin(std::int32_t zero) const {
    if constexpr (kWhole) return sums_ * -zero;
    else return Float{};
  }
  // Of sums that began at zero.
  typename Way::Sum complete(Int sum, std::int32_t zero) const {
    if constexpr (kWhole) return (Whole)sum + begin(zero);
    else return as_float(sum);
  }
  Float result(typename Way::Sum sum, float scale) const {
    // A product that the compiler cannot join with the addition behind it, in one place and not in another.
    if constexpr (kWhole) return fma(as_numbers(sum), spread(scale) * scales_, spread(kNothing)) + bias_;
    else return sum + bias_;
  }

 private:
  static constexpr float kNothing = -0.0f;  // changes no number that it is added to, not even -0
  static constexpr bool kWhole = std::is_same_v<Way, InInt8>;
  Float scales_, bias_;
  Whole sums_;
};

// Where the results of a panel go.
class Results {
 public:
  Results(const Matrix& m, const Target& target, std::int64_t panel)
      : out_(target.out + panel * kPanel),
        stride_(target.stride),
        outputs_(std::min<std::int64_t>(kPanel, m.outputs - panel * kPanel)),
        add_(target.add),
        relu_(target.activation == kRelu) {}

  // One vector of a row, from output j of the panel on. The last panel has fewer outputs than are computed.
  void put(std::int64_t row, std::int64_t j, Float x) const {
    if (relu_) x = x < 0 ? Float{} : x;  // NaN stays NaN
    float* place = out_ + row * stride_ + j;
    if (j + kLanes > outputs_) return put_some(x, outputs_ - j, place, add_);
    store(place, add_ ? x + load_floats(place) : x);
  }

 private:
  [[gnu::noinline]] static void put_some(Float x, std::int64_t count, float* place, bool add) {
    for (std::int64_t i = 0; i < count; ++i) place[i] = add ? x[i] + place[i] : x[i];
  }

  float* out_;
  std::int64_t stride_, outputs_;
  bool add_, relu_;
};

}  // namespace transduce
