// Matrix units (AMX): eight tiles of 16 lines of 64 bytes, and what is done with them; the same in plain loops, where there are none.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)
#define TRANSDUCE_HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#else
#include "numbers.h"
#endif

namespace transduce {

constexpr int kTileLines = 16, kTileWords = 16;  // a word is one sum, two bfloat16 or four int8
constexpr int kFirstRight = 6;                   // tiles 6 and 7 are right sides

#if defined(TRANSDUCE_HAS_TILES)

constexpr bool kHasTiles = true;

// The system keeps tiles from a process that has not asked for them; once is enough, for all threads.
inline bool may_use_tiles() {
  constexpr long kRequest = 0x1023, kTileData = 18;
  static const bool may = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may;
}

// While it lives, its thread has eight tiles, zeros at first; afterwards a change of threads has no more to save than elsewhere. Tiles 0 to 5,
// sums and left sides, may have fewer lines than the others.
struct Tiles {
  explicit Tiles(int lines = kTileLines) {
    alignas(64) std::uint8_t layout[64] = {1};
    for (int tile = 0; tile < 8; ++tile) layout[16 + 2 * tile] = 64, layout[48 + tile] = tile < kFirstRight ? lines : kTileLines;
    asm volatile("ldtilecfg %0" : : "m"(layout));
  }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Not by the compiler's own functions: these take no template's argument, and do not say that they read memory, so that what was written
// there may come too late.
template <int kTile>
inline void load_tile(const void* from, std::int64_t line_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(line_bytes), "i"(kTile) : "memory");
}
// For what other tiles' lines in the first-level cache are not to make room.
template <int kTile>
inline void stream_tile(const void* from, std::int64_t line_bytes) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(line_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* to, std::int64_t line_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(line_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// sums[m][n] += the words of line m of `left` by word n of every line of `right`: two bfloat16 each.
template <int kSums, int kLeft, int kRight>
inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
}
// The same of four int8 each, without a sign on the left; sums are whole numbers.
template <int kSums, int kLeft, int kRight>
inline void multiply_int8_tiles() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
}

#else

constexpr bool kHasTiles = false;

inline bool may_use_tiles() { return true; }

// Emulated for tests alone: by functions of their own, for which the compiler takes its time once, and not in every place of use.
inline thread_local std::uint32_t tiles[8][kTileLines][kTileWords];
inline thread_local int lines_of_left = kTileLines;

struct Tiles {
  explicit Tiles(int lines = kTileLines) { lines_of_left = lines, std::memset(tiles, 0, sizeof tiles); }
  ~Tiles() { lines_of_left = kTileLines; }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

inline int lines_of(int tile) { return tile < kFirstRight ? lines_of_left : kTileLines; }

[[gnu::noinline]] inline void emulate_load(int tile, const void* from, std::int64_t line_bytes) {
  for (int i = 0; i < lines_of(tile); ++i) std::memcpy(tiles[tile][i], static_cast<const char*>(from) + i * line_bytes, 64);
}
[[gnu::noinline]] inline void emulate_store(int tile, void* to, std::int64_t line_bytes) {
  for (int i = 0; i < lines_of(tile); ++i) std::memcpy(static_cast<char*>(to) + i * line_bytes, tiles[tile][i], 64);
}
// As the processor does: lower and upper halves are added up from zero, and both sums to what is there.
[[gnu::noinline]] inline void emulate_product(int into, int left, int right) {
  for (int m = 0; m < lines_of(into); ++m) {
    float lower[kTileWords] = {}, upper[kTileWords] = {}, sums[kTileWords];
    for (int k = 0; k < kTileLines; ++k)
      for (int n = 0; n < kTileWords; ++n) {
        const std::uint32_t a = tiles[left][m][k], b = tiles[right][k][n];
        lower[n] += widen(static_cast<Bfloat16>(a)) * widen(static_cast<Bfloat16>(b));
        upper[n] += widen(static_cast<Bfloat16>(a >> 16)) * widen(static_cast<Bfloat16>(b >> 16));
      }
    std::memcpy(sums, tiles[into][m], sizeof sums);
    for (int n = 0; n < kTileWords; ++n) sums[n] += lower[n] + upper[n];
    std::memcpy(tiles[into][m], sums, sizeof sums);
  }
}
[[gnu::noinline]] inline void emulate_int8_product(int into, int left, int right) {
  for (int m = 0; m < lines_of(into); ++m)
    for (int k = 0; k < kTileLines; ++k)
      for (int n = 0; n < kTileWords; ++n)
        for (int byte = 0; byte < 32; byte += 8) {
          const std::int32_t a = static_cast<std::uint8_t>(tiles[left][m][k] >> byte), b = static_cast<std::int8_t>(tiles[right][k][n] >> byte);
          tiles[into][m][n] += static_cast<std::uint32_t>(a * b);
        }
}

template <int kTile>
inline void load_tile(const void* from, std::int64_t line_bytes) {
  emulate_load(kTile, from, line_bytes);
}
template <int kTile>
inline void stream_tile(const void* from, std::int64_t line_bytes) {
  emulate_load(kTile, from, line_bytes);
}
template <int kTile>
inline void store_tile(void* to, std::int64_t line_bytes) {
  emulate_store(kTile, to, line_bytes);
}
template <int kTile>
inline void clear_tile() {
  std::memset(tiles[kTile], 0, sizeof tiles[kTile]);
}
template <int kSums, int kLeft, int kRight>
inline void multiply_tiles() {
  emulate_product(kSums, kLeft, kRight);
}
template <int kSums, int kLeft, int kRight>
inline void multiply_int8_tiles() {
  emulate_int8_product(kSums, kLeft, kRight);
}

#endif

}  // namespace transduce
