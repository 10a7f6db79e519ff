// Number formats and the few functions of single numbers that all kernels share.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace transduce {

using Bfloat16 = std::uint16_t;

inline float widen(float x) { return x; }
inline float widen(Bfloat16 x) {
  std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}
inline void narrow(float x, float& to) { to = x; }
// Halves to even. What is no number stays none: rounded up, it could become a number.
inline void narrow(float x, Bfloat16& to) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = x == x ? bits + 0x7fff + ((bits >> 16) & 1) : bits | 0x400000;
  to = static_cast<Bfloat16>(bits >> 16);
}

// e^x for x <= 0 or so, to float's last digit but one.
inline float exponential(float x) {
  x = std::max(x, -87.0f);
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

// A buffer that is kept from use to use, and grows where it must. Its numbers are written before they are read.
template <typename T>
inline T* at_least(std::vector<T>& room, std::int64_t size) {
  if (static_cast<std::int64_t>(room.size()) < size) {
    std::vector<T>().swap(room);  // or the old numbers would be copied, and be there beside the new ones
    room.resize(size + size / 4);
  }
  return room.data();
}

inline std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace transduce
