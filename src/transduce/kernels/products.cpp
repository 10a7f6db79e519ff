#include "products.h"

#include "guard.h"
#include "panels.h"

namespace transduce {
namespace {

constexpr int kWide = kLanes == 16 ? 4 : 2;  // vectors of a block of outputs

// A block that is narrower than a panel reads 64 of every 256 bytes, which processors do not foresee: it says what it will read so many groups
// later. With few rows, whose time is that of reading the weights, products by a large matrix of float32 are twice as fast for it.
constexpr std::int64_t kAhead = 24;

// A block of R rows and kWide vectors of outputs from `first` on, whose sums stay in registers until they are complete.
template <typename Way, int R, typename Put>
inline void block(const Matrix& m, const Rows& x, std::int64_t row, std::int64_t first, const std::uint8_t* w, Put put) {
  const std::int64_t groups = groups_of(m), stride = x.stride;
  const std::uint8_t* from = x.bytes.data() + row * stride;
  typename Way::Sum sum[R][kWide];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) sum[i][j] = Outputs<Way>(m, first + j * kLanes).begin(x.zeros[row + i]);
  for (std::int64_t g = 0; g < groups; ++g) {
    Int weights[kWide];
    if constexpr (kWide * kLanes < kPanel) __builtin_prefetch(w + (g + kAhead) * kGroupBytes);
#pragma GCC unroll 4
    for (int j = 0; j < kWide; ++j) weights[j] = load(w + g * kGroupBytes + j * kLanes * 4);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      std::int32_t bits;
      std::memcpy(&bits, from + i * stride + g * 4, 4);
      const Int inputs = spread(bits);
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) sum[i][j] = Way::step(sum[i][j], inputs, weights[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kWide; ++j) {
    const Outputs<Way> outputs(m, first + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) put(i, j * kLanes, outputs.result(sum[i][j], x.scales[row + i]));
  }
}

template <typename Way, int R>
void panel_rows(const Matrix& m, const Rows& x, std::int64_t row, std::int64_t panel, const Target& target) {
  alignas(64) float aside[R * kPanel];
  const Results results(m, target, row, panel, aside);
  for (int part = 0; part < kPanel; part += kWide * kLanes)
    block<Way, R>(m, x, row, panel * kPanel + part, panel_of(m, panel) + part * 4,
                  [&](int i, int j, Float v) { results.put(i, part + j, v); });
  results.move_on(R);
}

struct ByVectors {
  template <typename Way>
  static void multiply(const Matrix& m, const Rows& x, std::int64_t rows, std::int64_t panel, const Target& target) {
    std::int64_t r = 0;
    for (; r + 6 <= rows; r += 6) panel_rows<Way, 6>(m, x, r, panel, target);
    switch (rows - r) {
      case 5: return panel_rows<Way, 5>(m, x, r, panel, target);
      case 4: return panel_rows<Way, 4>(m, x, r, panel, target);
      case 3: return panel_rows<Way, 3>(m, x, r, panel, target);
      case 2: return panel_rows<Way, 2>(m, x, r, panel, target);
      case 1: return panel_rows<Way, 1>(m, x, r, panel, target);
    }
  }
};

// A tile has 16 rows or, on the other side, 16 groups of inputs by 16 outputs.
constexpr std::int64_t kStep = kTileLines * kGroupBytes;  // a panel's weights for 16 groups

// A panel's weights in steps of 16 groups: the last one, where it has fewer, beside zeros.
struct Steps {
  const std::uint8_t* whole;
  std::int64_t count;
  const std::uint8_t* last;
};

// Four tiles of sums, kDown one below the other and the others side by side. The weights that the next block reads are asked for meanwhile:
// they lie `ahead` bytes further on.
template <typename Way, int kDown>
inline void add_up(const std::uint8_t* upper, const std::uint8_t* lower, std::int64_t stride, const Steps& w, std::int64_t part,
                   std::int64_t ahead) {
  const auto step = [&](std::int64_t k, const std::uint8_t* from) {
    load_tile<4>(upper + k * 64, stride);
    stream_tile<6>(from, kGroupBytes);
    Way::template multiply<0, 4, 6>();
    stream_tile<7>(from + 64, kGroupBytes);
    Way::template multiply<1, 4, 7>();
    if constexpr (kDown == 2) {
      load_tile<5>(lower + k * 64, stride);
      Way::template multiply<2, 5, 6>();
      Way::template multiply<3, 5, 7>();
    } else {
      stream_tile<6>(from + 128, kGroupBytes);
      Way::template multiply<2, 4, 6>();
      stream_tile<7>(from + 192, kGroupBytes);
      Way::template multiply<3, 4, 7>();
    }
  };
  clear_tile<0>(), clear_tile<1>(), clear_tile<2>(), clear_tile<3>();
  for (std::int64_t k = 0; k < w.count; ++k) {
    const std::uint8_t* from = w.whole + k * kStep + part;
    for (int g = 0; g < kTileLines; ++g)
      for (int line = 0; line < 4 / kDown; ++line) __builtin_prefetch(from + ahead + g * kGroupBytes + 64 * line, 0, 2);
    step(k, from);
  }
  if (w.last) step(w.count, w.last + part);
}

// Rows `from` to `to` of a panel, more than 16 where kDown is 2. The lowest tile ends with the last row: where too few rows are left for it, it
// begins with some whose results are there already.
template <typename Way, int kDown>
void panel_tiles(const Matrix& m, const Rows& x, std::int64_t from, std::int64_t to, std::int64_t panel, const Steps& w,
                 const Target& target) {
  constexpr int kAcross = 4 / kDown, kPart = kAcross * kTileWords * 4;
  alignas(64) float aside[kDown * kTileLines * kPanel];
  alignas(64) std::int32_t sums[4][kTileLines][kTileWords];
  const Results results(m, target, from, panel, aside);
  const std::int64_t lowest = std::max<std::int64_t>(0, to - kTileLines), highest = kDown == 2 ? from : lowest;
  const std::uint8_t* bytes = x.bytes.data();
  for (int part = 0; part < kGroupBytes; part += kPart) {
    const std::int64_t ahead = part + kPart < kGroupBytes ? kPart : groups_of(m) * kGroupBytes - part;
    add_up<Way, kDown>(bytes + highest * x.stride, bytes + lowest * x.stride, x.stride, w, part, ahead);
    store_tile<0>(sums[0], 64), store_tile<1>(sums[1], 64), store_tile<2>(sums[2], 64), store_tile<3>(sums[3], 64);
    for (int j = 0; j < kAcross * kTileWords; j += kLanes) {
      const std::int64_t output = part / 4 + j;
      const Outputs<Way> outputs(m, panel * kPanel + output);
      const auto finish = [&](int tile, std::int64_t tops, std::int64_t r, std::int64_t end) {
        for (const std::int32_t* sum = &sums[tile][r - tops][j % kTileWords]; r < end; ++r, sum += kTileWords)
          results.put(r - from, output, outputs.result(outputs.complete(load(sum), x.zeros[r]), x.scales[r]));
      };
      const int tile = j / kTileWords;
      if constexpr (kDown == 2) finish(tile, from, from, from + kTileLines), finish(tile + kAcross, lowest, from + kTileLines, to);
      else finish(tile, lowest, from, to);
    }
  }
  results.move_on(to - from);
}

struct ByTiles {
  template <typename Way>
  static void multiply(const Matrix& m, const Rows& x, std::int64_t rows, std::int64_t panel, const Target& target) {
    alignas(64) std::uint8_t last[kStep];
    const std::int64_t groups = groups_of(m), left = groups % kTileLines;
    const Steps w{panel_of(m, panel), groups / kTileLines, left ? last : nullptr};
    if (left) {
      std::memcpy(last, w.whole + w.count * kStep, left * kGroupBytes);
      std::memset(last + left * kGroupBytes, 0, kStep - left * kGroupBytes);
    }
    std::int64_t r = 0;
    for (; rows - r > kTileLines; r = std::min(r + 2 * kTileLines, rows))
      panel_tiles<Way, 2>(m, x, r, std::min(r + 2 * kTileLines, rows), panel, w, target);
    if (r < rows) panel_tiles<Way, 1>(m, x, r, rows, panel, w, target);
  }
};

// Of one long sentence. With fewer rows, threads would wait for each other longer than they help.
constexpr std::int64_t kManyRows = 256;

// body(i) for each of so many, shared out among the cores where there are many rows; each has what `ready` gives as long as it works. A parallel
// region of one thread has a price, too: with its seven products, a layer's step for one sentence of a small model took half as long again.
template <typename Ready, typename Body>
void share_out(std::int64_t count, std::int64_t rows, Ready ready, Body body) {
  if (rows < kManyRows) {
    [[maybe_unused]] const auto held = ready();
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel
  {
    [[maybe_unused]] const auto held = ready();
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
}

struct Nothing {};

template <typename Unit, typename Way, typename Ready>
void all_panels(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target, Ready ready) {
  const std::int64_t panels = (w.outputs + kPanel - 1) / kPanel;
  share_out(panels, rows, ready, [&](std::int64_t panel) { Unit::template multiply<Way>(w, x, rows, panel, target); });
}

template <typename Way>
void by_vectors(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target) {
  all_panels<ByVectors, Way>(w, x, rows, target, [] { return Nothing{}; });
}
template <typename Way>
void by_tiles(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target) {
  const int lines = static_cast<int>(std::min<std::int64_t>(rows, kTileLines));
  if (rows) all_panels<ByTiles, Way>(w, x, rows, target, [=] { return Tiles(lines); });
}

// From so many rows on, int8 is faster in tiles.
constexpr std::int64_t kRowsForTiles = 8;

// int8's sums are exact, and the same of any unit. bfloat16's are not: there the unit may not depend on the number of rows.
bool takes_tiles(const Matrix& w, std::int64_t rows) {
  if (!kHasTiles || !may_use_tiles()) return false;
  return w.format == kBfloat16 || (w.format == kInt8 && rows >= kRowsForTiles);
}

void multiply(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target, bool tiles) {
  switch (w.format) {
    case kFloat32: by_vectors<InFloat32>(w, x, rows, target); break;
    case kBfloat16: tiles ? by_tiles<InBfloat16>(w, x, rows, target) : by_vectors<InBfloat16>(w, x, rows, target); break;
    default: tiles ? by_tiles<InInt8>(w, x, rows, target) : by_vectors<InInt8>(w, x, rows, target);
  }
  if (target.activation == kIdentity || target.activation == kRelu) return;  // a ReLU is part of the products
  const Activated activated{target.activation, false, w.outputs};
  const auto activate = [&](std::int64_t r) { activated.forward(target.out + r * target.stride, target.out + r * target.stride); };
  share_out(rows, rows, [] { return Nothing{}; }, activate);
}

const Rows& made_ready(const float* x, const Matrix& w, std::int64_t rows) {
  static thread_local Rows ready;
  ready.resize(rows, w.inputs, w.format);
  for (std::int64_t r = 0; r < rows; ++r) ready.set(x + r * w.inputs, r, w.inputs, w.format);
  return ready;
}

}  // namespace

void multiply(const Matrix& w, const Rows& x, std::int64_t rows, const Target& target) {
  multiply(w, x, rows, target, takes_tiles(w, rows));
}

}  // namespace transduce

using namespace transduce;

// out = activation(x w + bias) for rows of float32.
TRANSDUCE_EXPORT multiply(const float* x, const Matrix* w, float* out, std::int64_t rows, std::int64_t activation) {
  return guarded([=] { multiply(*w, made_ready(x, *w, rows), rows, Target{out, w->outputs, static_cast<Activation>(activation)}); });
}

// The same by tiles, but for float32, however many rows there are; `add`: x w + bias is added to what is there.
TRANSDUCE_EXPORT multiply_by_tiles(const float* x, const Matrix* w, float* out, std::int64_t rows, std::int64_t activation, std::int64_t add) {
  return guarded([=] {
    multiply(*w, made_ready(x, *w, rows), rows, Target{out, w->outputs, static_cast<Activation>(activation), add != 0}, true);
  });
}
