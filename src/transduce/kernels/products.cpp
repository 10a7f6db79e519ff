#include "products.h"

#include "guard.h"

namespace transduce {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kWide = 4;  // vectors of a block of outputs
using Float = __m512;
using Int = __m512i;
inline Int load(const void* from) { return _mm512_loadu_si512(from); }
inline Int spread(std::int32_t x) { return _mm512_set1_epi32(x); }
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
constexpr int kLanes = 8, kWide = 2;
using Float = __m256;
using Int = __m256i;
inline Int load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline Int spread(std::int32_t x) { return _mm256_set1_epi32(x); }
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

// How one instruction, or a few, multiply a group of a row's inputs with those of so many outputs.
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
#else
    const Int mask = _mm256_set1_epi16(0xff);
    const Int even = _mm256_madd_epi16(_mm256_and_si256(x, mask), _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
    return sum + (Whole)add(even, _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8)));
#endif
  }
};

// A block that is narrower than a panel reads 64 of every 256 bytes, which processors do not foresee: it says what it will read so many groups
// later. With few rows, whose time is that of reading the weights, products by a large matrix of float32 are twice as fast for it.
constexpr std::int64_t kAhead = 24;

// A block of R rows and kWide vectors of outputs, whose sums stay in registers until `finish` takes them, one by one.
template <typename Way, int R, typename Finish>
inline void block(const std::uint8_t* x, std::int64_t stride, const std::int32_t* zeros, const std::uint8_t* w, std::int64_t groups,
                  const std::int32_t* sums, Finish finish) {
  typename Way::Sum sum[R][kWide];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) {
      if constexpr (std::is_same_v<Way, InInt8>) {
        sum[i][j] = (Whole)load(sums + j * kLanes) * -zeros[i];
      } else {
        sum[i][j] = Float{};
      }
    }
  for (std::int64_t g = 0; g < groups; ++g) {
    Int weights[kWide];
    if constexpr (kWide * kLanes < kPanel) __builtin_prefetch(w + (g + kAhead) * kPanel * 4);
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) weights[j] = load(w + (g * kPanel + j * kLanes) * 4);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      std::int32_t bits;
      std::memcpy(&bits, x + i * stride + g * 4, 4);
      const Int inputs = spread(bits);
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) sum[i][j] = Way::step(sum[i][j], inputs, weights[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) finish(i, j * kLanes, as_numbers(sum[i][j]));
}

template <typename Way, int R>
void panel_rows(const Matrix& m, const Rows& x, std::int64_t row, std::int64_t panel, const Target& target) {
  const std::int64_t groups = x.stride / 4, first = panel * kPanel, count = std::min<std::int64_t>(kPanel, m.outputs - first);
  const std::uint8_t* w = static_cast<const std::uint8_t*>(m.panels) + panel * groups * kPanel * 4;
  float* out = target.out + row * target.stride + first;
  // The last panel has fewer outputs than a block writes.
  alignas(64) float aside[R * kPanel];
  const bool whole = count == kPanel, add = target.add && whole, relu = target.activation == kRelu;
  float* to = whole ? out : aside;
  const std::int64_t stride = whole ? target.stride : kPanel;
  for (int part = 0; part < kPanel; part += kWide * kLanes)
    block<Way, R>(x.bytes.data() + row * x.stride, x.stride, x.zeros.data() + row, w + part * 4, groups, m.sums + first + part,
                  [&](int i, int j, Float v) {
      if constexpr (std::is_same_v<Way, InInt8>) v *= x.scales[row + i] * load_floats(m.scales + first + part + j);
      if (m.bias) v += load_floats(m.bias + first + part + j);
      if (relu) v = v < 0 ? Float{} : v;  // NaN stays NaN
      float* place = to + i * stride + part + j;
      store(place, add ? v + load_floats(place) : v);
    });
  if (whole) return;
  for (int i = 0; i < R; ++i)
    for (std::int64_t j = 0; j < count; ++j) {
      float& place = out[i * target.stride + j];
      place = target.add ? place + aside[i * kPanel + j] : aside[i * kPanel + j];
    }
}

template <typename Way>
void one_panel(const Matrix& w, const Rows& x, std::int64_t rows, std::int64_t panel, const Target& target) {
  std::int64_t r = 0;
  for (; r + 6 <= rows; r += 6) panel_rows<Way, 6>(w, x, r, panel, target);
  switch (rows - r) {
    case 5: return panel_rows<Way, 5>(w, x, r, panel, target);
    case 4: return panel_rows<Way, 4>(w, x, r, panel, target);
    case 3: return panel_rows<Way, 3>(w, x, r, panel, target);
    case 2: return panel_rows<Way, 2>(w, x, r, panel, target);
    case 1: return panel_rows<Way, 1>(w, x, r, panel, target);
  }
}

// Of one long sentence. With fewer rows, threads would wait for each other longer than they help.
constexpr std::int64_t kManyRows = 256;

// body(i) for each of so many, shared out among the cores where there are many rows. A parallel region of one thread has a price, too: with
// its seven products, a layer's step for one sentence of a small model took half as long again.
template <typename Body>
void share_out(std::int64_t count, std::int64_t rows, Body body) {
  if (rows < kManyRows) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) body(i);
}

template <typename Way>
void all_panels(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target) {
  const std::int64_t panels = (w.outputs + kPanel - 1) / kPanel;
  share_out(panels, rows, [&](std::int64_t panel) { one_panel<Way>(w, x, rows, panel, target); });
}

}  // namespace

void multiply(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target) {
  switch (w.format) {
    case kFloat32: all_panels<InFloat32>(w, x, rows, target); break;
    case kBfloat16: all_panels<InBfloat16>(w, x, rows, target); break;
    default: all_panels<InInt8>(w, x, rows, target);
  }
  if (target.activation == kIdentity || target.activation == kRelu) return;  // a ReLU is part of the products
  const Activated activated{target.activation, false, w.outputs};
  share_out(rows, rows, [&](std::int64_t r) { activated.forward(target.out + r * target.stride, target.out + r * target.stride); });
}

}  // namespace transduce

// out = activation(x w + bias) for rows of float32.
TRANSDUCE_EXPORT multiply(const float* x, const transduce::Matrix* w, float* out, std::int64_t rows, std::int64_t activation) {
  using namespace transduce;
  return guarded([=] {
    static thread_local Rows ready;
    ready.resize(rows, w->inputs, w->format);
    for (std::int64_t r = 0; r < rows; ++r) ready.set(x + r * w->inputs, r, w->inputs, w->format);
    multiply(*w, ready, rows, Target{out, w->outputs, static_cast<Activation>(activation)});
  });
}
