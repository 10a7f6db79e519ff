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
#endif

constexpr std::int64_t kGroupBytes = kPanel * 4;  // a panel's weights for a group of inputs

inline std::int64_t groups_of(const Matrix& m) { return round_up(m.inputs, group_of(m.format)) / group_of(m.format); }
inline const std::uint8_t* panel_of(const Matrix& m, std::int64_t panel) {
  return static_cast<const std::uint8_t*>(m.panels) + panel * groups_of(m) * kGroupBytes;
}

// How one instruction, or a few, multiply a group of a row's inputs with those of so many outputs, and how matrix units do.
struct InFloat32 {
  using Sum = Float;
  static Sum step(Sum sum, Int x, Int w) { return fma(as_float(x), as_float(w), sum); }
};

struct InBfloat16 {
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

struct InInt8 {
  using Sum = Whole;
  static Sum step(Sum sum, Int x, Int w) {
#if defined(__AVX512VNNI__)
    return (Whole)_mm512_dpbusd_epi32((Int)sum, x, w);
#elif defined(__AVX512F__)
    // Even and odd bytes apart, in 16 bits each: their products' sums fit in 32 bits, where maddubs would saturate.
    const Int mask = _mm512_set1_epi16(0xff);
    const Int even = _mm512_madd_epi16(_mm512_and_si512(x, mask), _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8));
    return sum + (Whole)add(even, _mm512_madd_epi16(_mm512_srli_epi16(x, 8), _mm512_srai_epi16(w, 8)));
#elif defined(__AVXVNNI__)
    return (Whole)_mm256_dpbusd_avx_epi32((Int)sum, x, w);
#else
    const Int mask = _mm256_set1_epi16(0xff);
    const Int even = _mm256_madd_epi16(_mm256_and_si256(x, mask), _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
    return sum + (Whole)add(even, _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8)));
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
