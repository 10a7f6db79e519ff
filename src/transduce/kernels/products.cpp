#include "products.h"

#include "guard.h"
#include "helpers.h"
#include "panels.h"

namespace transduce {
namespace {

constexpr int kVectors = kLanes == 16 ? 4 : 2;  // vectors of a block of outputs

// A block that is narrower than a panel reads 64 of every 256 bytes, which processors do not foresee: it says what it will read so many groups
// later. With few rows, whose time is that of reading the weights, products by a large matrix of float32 are twice as fast for it.
constexpr std::int64_t kAhead = 24;

// Rows as a way reads them, `stride` bytes each, and what their results ask for.
struct PackedRows {
  const std::uint8_t* bytes;
  std::int64_t stride;
  const float* scales;
  const std::int32_t* zeros;
};

template <typename Way>
PackedRows pack(const Rows& x, std::int64_t rows) {
  PackedRows packed{x.bytes.data(), x.stride, x.scales.data(), x.zeros.data()};
  if constexpr (std::is_base_of_v<InSixteenBits, Way>) {
    static thread_local std::vector<std::uint8_t> all;
    constexpr std::int64_t kLine = 64;  // so much more, rows of a power of two would all have the same few places in the cache
    packed.stride = 2 * x.stride + kLine;
    std::uint8_t* to = at_least(all, rows * packed.stride);
    packed.bytes = to;
    for (std::int64_t r = 0; r < rows; ++r) Way::split(x.bytes.data() + r * x.stride, x.stride, to + r * packed.stride);
  }
  return packed;
}

// A block of R rows and kVectors vectors of outputs from `first` on, whose sums stay in registers until they are complete.
template <typename Way, int R, typename Put>
inline void block(const Matrix& m, const PackedRows& x, std::int64_t row, std::int64_t first, const std::uint8_t* w, Put put) {
  const std::int64_t groups = groups_of(m), stride = x.stride;
  const std::uint8_t* from = x.bytes + row * stride;
  typename Way::Sum sum[R][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = Outputs<Way>(m, first + j * kLanes).begin(x.zeros[row + i]);
  for (std::int64_t g = 0; g < groups; ++g) {
    typename Way::Weights weights[kVectors];
    if constexpr (kVectors * kLanes < kPanel) __builtin_prefetch(w + (g + kAhead) * kGroupBytes);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) weights[j] = Way::weights(load(w + g * kGroupBytes + j * kLanes * 4));
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const typename Way::Inputs inputs = Way::inputs(from + i * stride + g * Way::kInputBytes);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = Way::step(sum[i][j], inputs, weights[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    const Outputs<Way> outputs(m, first + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) put(i, j * kLanes, outputs.result(sum[i][j], x.scales[row + i]));
  }
}

template <typename Way, int R>
void panel_rows(const Matrix& m, const PackedRows& x, std::int64_t row, std::int64_t panel, const Target& target) {
  const Results results(m, target, panel);
  for (int part = 0; part < kPanel; part += kVectors * kLanes)
    block<Way, R>(m, x, row, panel * kPanel + part, panel_of(m, panel) + part * 4,
                  [&](int i, int j, Float v) { results.put(row + i, part + j, v); });
}

template <typename Way>
void panel_by_vectors(const Matrix& m, const PackedRows& x, std::int64_t rows, std::int64_t panel, const Target& target) {
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

// A tile has 16 rows or, on the other side, 16 groups of inputs by 16 outputs.
constexpr std::int64_t kStep = kTileLines * kGroupBytes;  // a panel's weights for 16 groups

// Panels by tiles, in blocks of four tiles of sums, one below the other and side by side: two by two or, where one has all rows, one by four. A
// block's results are made of its sums while the next block is multiplied, as the matrix unit does not need the vectors' registers.
template <typename Way>
class PanelsByTiles {
 public:
  PanelsByTiles(const Matrix& m, const Rows& x, std::int64_t rows, const Target& target)
      : m_(m), x_(x), rows_(rows), target_(target), tiles_(static_cast<int>(std::min<std::int64_t>(rows, kTileLines))) {}
  ~PanelsByTiles() {
    put_down<0>(), put_down<1>(), put_down<2>(), put_down<3>();
    for (int tile = 0; tile < 4; ++tile) finish(tile);
  }
  PanelsByTiles(const PanelsByTiles&) = delete;
  PanelsByTiles& operator=(const PanelsByTiles&) = delete;

  void operator()(std::int64_t panel) {
    const std::uint8_t* w = panel_of(m_, panel);
    const std::int64_t groups = groups_of(m_), whole = groups / kTileLines, left = groups % kTileLines;
    if (left) {
      std::memcpy(last_, w + whole * kStep, left * kGroupBytes);
      std::memset(last_ + left * kGroupBytes, 0, kStep - left * kGroupBytes);
    }
    std::int64_t from = 0;
    for (; rows_ - from > kTileLines; from = std::min(from + 2 * kTileLines, rows_))
      multiply<2>(panel, from, std::min(from + 2 * kTileLines, rows_));
    if (from < rows_) multiply<1>(panel, from, rows_);
  }

 private:
  // Rows `from` to `to` of a panel, and 64 / down outputs from `part` on. The lowest tile ends with the last row: where too few rows are left
  // for it, it begins with some whose results are there already.
  struct Block {
    std::int64_t panel, from, to;
    int down, part;

    std::int64_t lowest() const { return std::max<std::int64_t>(0, to - kTileLines); }
    std::int64_t highest() const { return down == 2 ? from : lowest(); }
  };

  template <int kDown>
  void multiply(std::int64_t panel, std::int64_t from, std::int64_t to) {
    for (int part = 0; part < kPanel; part += kPanel / kDown) multiply<kDown>(Block{panel, from, to, kDown, part});
  }

  template <int kDown>
  void multiply(const Block& next) {
    const std::int64_t groups = groups_of(m_), whole = groups / kTileLines, steps = (groups + kTileLines - 1) / kTileLines, stride = x_.stride;
    const std::uint8_t *upper = x_.bytes.data() + next.highest() * stride, *lower = x_.bytes.data() + next.lowest() * stride;
    const std::uint8_t* w = panel_of(m_, next.panel) + next.part * 4;
    const auto step = [&](std::int64_t k, auto first) {
      const std::uint8_t* weights = k < whole ? w + k * kStep : last_ + next.part * 4;
      load_tile<4>(upper + k * 64, stride);
      stream_tile<6>(weights, kGroupBytes);
      if (first) put_down<0>();
      Way::template multiply<0, 4, 6>();
      stream_tile<7>(weights + 64, kGroupBytes);
      if (first) put_down<1>();
      Way::template multiply<1, 4, 7>();
      if constexpr (kDown == 2) load_tile<5>(lower + k * 64, stride);
      else stream_tile<6>(weights + 128, kGroupBytes);
      if (first) put_down<2>();
      Way::template multiply<2, kDown == 2 ? 5 : 4, 6>();
      if constexpr (kDown == 1) stream_tile<7>(weights + 192, kGroupBytes);
      if (first) put_down<3>();
      Way::template multiply<3, kDown == 2 ? 5 : 4, 7>();
    };
    step(0, std::true_type());
    for (std::int64_t k = 1; k < steps; ++k) {
      step(k, std::false_type());
      if (k <= 4) finish(static_cast<int>(k - 1));
    }
    for (std::int64_t tile = steps - 1; tile < 4; ++tile) finish(static_cast<int>(tile));
    before_ = next;
  }

  template <int kTile>
  void put_down() {
    store_tile<kTile>(sums_[kTile], sizeof sums_[kTile][0]);
    clear_tile<kTile>();
  }

  // The results of one tile of the block before. Called, so that the loop around it keeps its registers.
  [[gnu::noinline]] void finish(int tile) const {
    const Block& block = before_;
    const int across = 4 / block.down;
    const bool low = tile >= across;
    const std::int64_t from = low ? block.from + kTileLines : block.from, to = low ? block.to : std::min(block.from + kTileLines, block.to);
    if (from >= to) return;
    const std::int64_t first = block.part + tile % across * kTileWords;
    const Results results(m_, target_, block.panel);
    for (int j = 0; j < kTileWords; j += kLanes) {
      const Outputs<Way> outputs(m_, block.panel * kPanel + first + j);
      const std::int32_t* sum = &sums_[tile][from - (low ? block.lowest() : block.highest())][j];
      for (std::int64_t r = from; r < to; ++r, sum += kTileWords)
        results.put(r, first + j, outputs.result(outputs.complete(load(sum), x_.zeros[r]), x_.scales[r]));
    }
  }

  const Matrix& m_;
  const Rows& x_;
  std::int64_t rows_;
  const Target& target_;
  Tiles tiles_;
  Block before_ = {0, 0, 0, 2, 0};  // of no rows
  alignas(64) std::int32_t sums_[4][kTileLines][kTileWords];
  alignas(64) std::uint8_t last_[kStep];  // a panel's weights for its last groups, where these are fewer than 16, and zeros
};

// Products of a weight and a number of a row, for each thread that shall come: of fewer it would take longer to do so.
constexpr std::int64_t kMuch = 1 << 18;

// What begin() gives is called with each of so many, shared out among the cores where that is so much work: each begins for itself.
template <typename Begin>
void share_out(std::int64_t count, std::int64_t products, const Begin& begin) {
  if (products >= kMuch) return Helpers::all().share(count, 1 + products / kMuch, begin);
  auto work = begin();
  for (std::int64_t i = 0; i < count; ++i) work(i);
}

constexpr std::int64_t panels_of(const Matrix& m) { return (m.outputs + kPanel - 1) / kPanel; }

template <typename Way>
void by_vectors(const Matrix& m, const Rows& x, std::int64_t rows, const Target& target) {
  const PackedRows packed = pack<Way>(x, rows);
  const auto multiply = [&](std::int64_t panel) { panel_by_vectors<Way>(m, packed, rows, panel, target); };
  share_out(panels_of(m), rows * m.inputs * m.outputs, [&] { return multiply; });
}
template <typename Way>
void by_tiles(const Matrix& m, const Rows& x, std::int64_t rows, const Target& target) {
  if (rows) share_out(panels_of(m), rows * m.inputs * m.outputs, [&] { return PanelsByTiles<Way>(m, x, rows, target); });
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
  constexpr std::int64_t kProducts = 16;  // which take as long as what an activation makes of one number
  share_out(rows, kProducts * rows * w.outputs, [&] { return activate; });
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

// The calling thread may run on every core that OpenMP has a place on.
TRANSDUCE_EXPORT use_any_core() {
  run_on_any_core();
  return kDone;
}

// From here on the calling thread may use so many cores; 0: as many as its operations in OpenMP.
TRANSDUCE_EXPORT use_cores(std::int64_t number) {
  own_cores() = number;
  return kDone;
}
