// The linear maps of training, for processors with matrix units: the same products as linear_maps.cpp, by tiles of 16 lines.
//
// All three are sums over a common depth, of lines from the left and columns from the right: rows by weights, gradients by weights,
// gradients by rows. Squares of 32 x 32 numbers are made ready for both sides, two tiles each:
//   left, for a step of 32 along the depth: 32 lines of 32 numbers;
//   right: 16 pairs of lines, a word for each pair and column. Two lines become pairs by interleaving within lanes of 128 bits, so that
//   one tile has the columns 0-3, 8-11, 16-19 and 24-27, and the other those between. The sums lie so, too, until they are put down.
#include <vector>

#include "maps.h"
#include "tiles.h"
#include "training.h"
#include "words.h"

namespace transduce {
namespace {

constexpr std::int64_t kSide = 32;                // lines and columns of a block, whose sums stay in four tiles, and the depth of a step
constexpr std::int64_t kWordsOfStep = kSide * 16;  // of either side
constexpr std::int64_t kCachedColumns = 512;  // columns whose right side lies in the second cache

// What is added up at once, `deep` numbers along the depth, whose 32 lines of the left side lie in the first cache; and the lines whose
// sums lie beside the right side, where the depth is more than that.
struct Sizes {
  std::int64_t deep, tall;
};
constexpr Sizes kOfRows = {512, 512};
// Here both sides are laid out for each use, which more lines share; and the left side's lines lie far apart, where more would fall on the
// same few places of the caches.
constexpr Sizes kOfColumns = {256, 1024};

using Halves = Bfloat16 __attribute__((vector_size(64)));
using Singles = std::uint32_t __attribute__((vector_size(64)));
using Quarters = std::uint64_t __attribute__((vector_size(64)));

template <typename T>
inline T load(const void* from) {
  T result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
template <typename T>
inline void store(T x, void* to) {
  std::memcpy(to, &x, sizeof x);
}

// In every lane: the lower, or the upper, numbers of both, by turns.
inline Words interleave_lower(Words x, Words y) {
  return as<Words>(__builtin_shuffle(as<Halves>(x), as<Halves>(y), Halves{0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43,
                                                              16, 48, 17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59}));
}
inline Words interleave_upper(Words x, Words y) {
  return as<Words>(__builtin_shuffle(as<Halves>(x), as<Halves>(y), Halves{4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47,
                                                              20, 52, 21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63}));
}
// In every lane: word j of x[i] becomes word i of x[j].
inline void transpose_lanes(Words (&x)[4]) {
  constexpr Singles kLower = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}, kUpper = kLower + 2;
  constexpr Quarters kEven = {0, 8, 2, 10, 4, 12, 6, 14}, kOdd = kEven + 1;
  const auto halves = [&](int i, Singles which) { return as<Quarters>(__builtin_shuffle(as<Singles>(x[i]), as<Singles>(x[i + 1]), which)); };
  const Quarters a = halves(0, kLower), b = halves(2, kLower), c = halves(0, kUpper), d = halves(2, kUpper);
  x[0] = as<Words>(__builtin_shuffle(a, b, kEven)), x[1] = as<Words>(__builtin_shuffle(a, b, kOdd));
  x[2] = as<Words>(__builtin_shuffle(c, d, kEven)), x[3] = as<Words>(__builtin_shuffle(c, d, kOdd));
}
// Lanes of four lines that lie `stride` numbers apart.
inline Words load_lanes(const Bfloat16* x, std::int64_t stride) {
#if defined(__AVX512F__)
  const auto lane = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i * stride)); };
  const __m512i one = _mm512_inserti32x4(_mm512_castsi128_si512(lane(0)), lane(1), 1);
  return (Words)_mm512_inserti32x4(_mm512_inserti32x4(one, lane(2), 2), lane(3), 3);
#else
  Bfloat16 lanes[4][8];
  for (int i = 0; i < 4; ++i) std::memcpy(lanes[i], x + i * stride, sizeof lanes[i]);
  return load<Words>(lanes);
#endif
}

inline Words narrow_two(Sixteen one, Sixteen other) {
#if defined(__AVX512BF16__)
  return (Words)_mm512_cvtne2ps_pbh((__m512)other, (__m512)one);
#else
  Bfloat16 both[32];
  store_sixteen(one, both), store_sixteen(other, both + 16);
  return load<Words>(both);
#endif
}

// 32 x 32 numbers: where they lie or, at an edge, beside zeros.
struct Square {
  const Bfloat16* x;
  std::int64_t stride;
};
struct Room {
  alignas(64) Bfloat16 x[kSide * kSide];
};
inline Square square(const Bfloat16* x, std::int64_t stride, std::int64_t lines, std::int64_t columns, Room& room) {
  if (lines >= kSide && columns >= kSide) return {x, stride};
  std::memset(room.x, 0, sizeof room.x);
  for (std::int64_t i = 0; i < std::min(lines, kSide); ++i) std::copy_n(x + i * stride, std::min(columns, kSide), room.x + i * kSide);
  return {room.x, kSide};
}
inline Square square(const Maps& maps, std::int64_t o, std::int64_t i, Room& room) {
  for (std::int64_t l = 0; l < kSide; ++l) {
    Words line = {};
    if (o + l < maps.width()) {
      const float* from = maps.of(maps.weights, o + l, maps.inputs) + i;
      const std::int64_t left = maps.inputs - i;
      line = narrow_two(load_first(from, left), left > 16 ? load_first(from + 16, left - 16) : Sixteen{});
    }
    store(line, room.x + l * kSide);
  }
  return {room.x, kSide};
}

// Lines along the depth become pairs for the right side. What stands in a column is added to its sum, where these are asked for.
inline void pair_lines(Square from, std::uint32_t* to, Sixteen* sums = nullptr) {
  constexpr std::uint32_t kOnes = 0x3f803f80;
  Sixteen one_sum = sums ? sums[0] : Sixteen{}, other_sum = sums ? sums[1] : Sixteen{};
  for (int i = 0; i < 16; ++i, to += 16) {
    const Words one = load<Words>(from.x + 2 * i * from.stride), other = load<Words>(from.x + (2 * i + 1) * from.stride);
    const Words lower = interleave_lower(one, other), upper = interleave_upper(one, other);
    store(lower, to), store(upper, to + 16 * 16);
    if (!sums) continue;
    one_sum = multiply_add<Bfloat16>(one_sum, lower, kOnes + Words{}), other_sum = multiply_add<Bfloat16>(other_sum, upper, kOnes + Words{});
  }
  if (sums) sums[0] = one_sum, sums[1] = other_sum;
}
// Sixteen lines of sixteen words become columns: those from `from` on, and those `apart` lines behind each of them, three times.
inline void turn_words(const Bfloat16* from, std::int64_t apart, std::uint32_t* to, const int (&lines)[4]) {
  for (int lane = 0; lane < 4; ++lane) {
    Words x[4];
    for (int i = 0; i < 4; ++i) x[i] = load_lanes(from + i * kSide + 8 * lane, apart * kSide);
    transpose_lanes(x);
    for (int i = 0; i < 4; ++i) store(x[i], to + 16 * (lines[lane] + i));
  }
}
// Lines across the depth, end to end, become columns of the right side.
inline void pair_columns(const Room& from, std::uint32_t* to) {
  for (int half = 0; half < 2; ++half) turn_words(from.x + 4 * half * kSide, 8, to + 16 * 16 * half, {0, 4, 8, 12});
}
// Lines along the depth become lines of the left side.
inline void turn(Square from, std::uint32_t* to, Sixteen* sums) {
  Room pairs;
  pair_lines(from, reinterpret_cast<std::uint32_t*>(pairs.x), sums);
  turn_words(pairs.x, 4, to, {0, 8, 16, 24});
  turn_words(pairs.x + 16 * kSide, 4, to, {4, 12, 20, 28});
}

// 32 lines of the left side: bytes from line to line, and from step to step.
struct Left {
  const void* at;
  std::int64_t line, step;
};

// Room that begins where a line of the cache does.
template <typename T>
inline T* aligned(std::vector<T>& room, std::int64_t size) {
  T* from = at_least(room, size + static_cast<std::int64_t>(64 / sizeof(T)));
  return from + (64 - reinterpret_cast<std::uintptr_t>(from) % 64) % 64 / sizeof(T);
}

constexpr std::int64_t steps_of(std::int64_t n) { return (n + kSide - 1) / kSide; }

template <int kTile>
inline void put_down(float* sums) {
  store_tile<kTile>(sums + kTile / 2 * 16 * kSide + kTile % 2 * 16, kSide * sizeof(float));
  clear_tile<kTile>();
}

// The tiles' sums are put to `sums` one by one as the first step of the next block begins them anew: left by right. After every step comes
// between(step): the matrix unit does not need the vectors' registers, and goes on meanwhile.
template <typename Between>
inline void add_up(Left left, const std::uint32_t* right, std::int64_t steps, float* sums, Between between) {
  const char *a = static_cast<const char*>(left.at), *second = a + 16 * left.line;
  const auto multiply = [&](std::int64_t k, auto first) {
    if (first) put_down<0>(sums);
    stream_tile<6>(right + k * kWordsOfStep, 64);
    load_tile<4>(a + k * left.step, left.line);
    multiply_tiles<0, 4, 6>();
    if (first) put_down<1>(sums);
    stream_tile<7>(right + k * kWordsOfStep + 256, 64);
    multiply_tiles<1, 4, 7>();
    if (first) put_down<2>(sums);
    load_tile<5>(second + k * left.step, left.line);
    multiply_tiles<2, 5, 6>();
    if (first) put_down<3>(sums);
    multiply_tiles<3, 5, 7>();
    between(k);
  };
  multiply(0, std::true_type());
  for (std::int64_t k = 1; k < steps; ++k) multiply(k, std::false_type());
}

// What is multiplied while its right side stays in the second cache.
struct Phase {
  Span m, n, k;
};

// For every line of a block finish(m, n, two sums of sixteen), while the next block is multiplied; prepare(phase) is called before left(m, k)
// and right(n, k) are asked for steps of the depth between k.from and k.to. Without the overlap it would be
//
//     for each phase: prepare(phase); for each i, j of its blocks: sums of (i, j) += left(i, k) right(j, k)
//     and behind the last k: finish each line of (i, j)
//
// Here the tiles of a block are put down as the next block begins (`add_up`), and its lines are finished (`settle`) by `share` after each of the
// next block's steps: `of` is the block that waits for that.
template <const Sizes& kSizes, typename Prepare, typename LeftOf, typename RightOf, typename Finish>
void multiply(Span lines, std::int64_t columns, std::int64_t depth, Prepare prepare, LeftOf left, RightOf right,
              Finish finish) {
  static thread_local std::vector<float> room;
  constexpr std::int64_t kBlock = kSide * kSide;
  float* block = aligned(room, depth <= kSizes.deep ? kBlock : kBlock + kSizes.tall * kCachedColumns);
  struct {
    std::int64_t m, n;
    float* sums;
    bool first, last;
  } of = {};
  const auto settle = [&](std::int64_t l, std::int64_t end) {
    for (end = std::min(lines.to - of.m, end); l < end; ++l) {
      Sixteen one = load_sixteen(block + l * kSide), other = load_sixteen(block + l * kSide + 16);
      float* sums = of.sums + l * kSide;
      if (!of.first) one += load_sixteen(sums), other += load_sixteen(sums + 16);
      if (of.last) {
        finish(of.m + l, of.n, one, other);
      } else {
        store_sixteen(one, sums), store_sixteen(other, sums + 16);
      }
    }
  };
  const auto multiply_phase = [&](const Phase& phase) {
    const auto [m, n, k] = phase;
    const std::int64_t steps = steps_of(k.to - k.from), share = steps > 1 ? (kSide + steps - 2) / (steps - 1) : 0;
    prepare(phase);
    for (std::int64_t i = m.from; i < m.to; i += kSide) {
      const Left a = left(i, k);
      for (std::int64_t j = n.from; j < n.to; j += kSide) {
        add_up(a, right(j, k), steps, block, [&](std::int64_t step) {
          if (step && of.sums) settle((step - 1) * share, std::min(kSide, step * share));
        });
        if (steps == 1 && of.sums) settle(0, kSide);
        of = {i, j, block + kBlock + ((i - m.from) / kSide * (kCachedColumns / kSide) + (j - n.from) / kSide) * kBlock, k.from == 0, k.to == depth};
      }
    }
  };
  for (std::int64_t n = 0; n < columns; n += kCachedColumns)
    for (std::int64_t m = lines.from; m < lines.to; m += kSizes.tall)
      for (std::int64_t k = 0; k < depth; k += kSizes.deep)
        multiply_phase({{m, std::min(lines.to, m + kSizes.tall)}, {n, std::min(columns, n + kCachedColumns)}, {k, std::min(depth, k + kSizes.deep)}});
  put_down<0>(block), put_down<1>(block), put_down<2>(block), put_down<3>(block);
  if (of.sums) settle(0, kSide);
}

// In the order in which the numbers are: rounded, or as they are.
inline Words put_in_order(Sixteen one, Sixteen other) {
  const Quarters both = as<Quarters>(narrow_two(one, other));
  return as<Words>(__builtin_shuffle(both, Quarters{0, 4, 1, 5, 2, 6, 3, 7}));
}
inline void put_in_order(Sixteen (&x)[2]) {
  const Quarters one = as<Quarters>(x[0]), other = as<Quarters>(x[1]);
  x[0] = as<Sixteen>(__builtin_shuffle(one, other, Quarters{0, 1, 8, 9, 2, 3, 10, 11}));
  x[1] = as<Sixteen>(__builtin_shuffle(one, other, Quarters{4, 5, 12, 13, 6, 7, 14, 15}));
}

// y = x by what is laid out in panels of 32 columns; change(row, column, two sums of sixteen) makes 32 numbers of them.
template <typename Change>
void multiply_rows(const Bfloat16* x, std::int64_t depth, const std::uint32_t* panels, Bfloat16* y, std::int64_t width, std::int64_t rows,
                   Change change) {
  static thread_local std::vector<Room> room;
  const Tiles tiles;
  const std::int64_t steps = steps_of(depth), row = depth * sizeof(Bfloat16);
  const auto right = [&](std::int64_t n, Span k) { return panels + (n / kSide * steps + k.from / kSide) * kWordsOfStep; };
  const auto left = [&](std::int64_t m, Span k) -> Left {
    const std::int64_t lines = std::min(rows - m, kSide), deep = steps_of(k.to - k.from);
    const Bfloat16* from = x + m * depth + k.from;
    // Lines that lie 2048 bytes apart would push one another out of the first cache.
    if (lines == kSide && k.to % kSide == 0 && row % 2048) return {from, row, 64};
    Room* squares = at_least(room, kOfRows.deep / kSide);
    for (std::int64_t i = 0; i < deep; ++i) {
      const Square from_square = square(from + i * kSide, depth, lines, depth - k.from - i * kSide, squares[i]);
      if (from_square.x == squares[i].x) continue;
      for (std::int64_t l = 0; l < kSide; ++l) store(load<Words>(from_square.x + l * depth), squares[i].x + l * kSide);
    }
    return {squares, 64, sizeof(Room)};
  };
  const auto finish = [&](std::int64_t m, std::int64_t n, Sixteen one, Sixteen other) {
    const Words numbers = change(m, n, one, other);
    Bfloat16* to = y + m * width + n;
    __builtin_prefetch(to + kSide, 1);  // where this line goes on, in another page of memory than the next line
    if (width - n >= kSide) store(numbers, to);
    else std::memcpy(to, &numbers, (width - n) * sizeof(Bfloat16));
  };
  multiply<kOfRows>(my_share(rows, kSide), width, depth, [](const Phase&) {}, left, right, finish);
}

// The gradients of weights and biases; `add`: beside what is there. Every thread has outputs of its own.
void multiply_columns(const Bfloat16* gradient, const Bfloat16* x, const Maps& maps, std::int64_t rows, bool add) {
  static thread_local std::vector<std::uint32_t> room;
  const Tiles tiles;
  const std::int64_t width = maps.width(), inputs = maps.inputs;
  constexpr std::int64_t kBlock = kOfColumns.deep / kSide * kWordsOfStep;
  std::uint32_t* lefts = aligned(room, (1 + kCachedColumns / kSide) * kBlock);
  std::uint32_t* rights = lefts + kBlock;
  Sixteen sums[kOfColumns.tall / kSide][2];
  Phase now = {};
  Room padded;
  const auto prepare = [&](const Phase& phase) {
    now = phase;
    if (now.k.from == 0) std::fill_n(sums[0], 2 * kOfColumns.tall / kSide, Sixteen{});
    for (std::int64_t r = now.k.from; r < now.k.to; r += kSide)
      for (std::int64_t i = now.n.from; i < now.n.to; i += kSide)
        pair_lines(square(x + r * inputs + i, inputs, rows - r, inputs - i, padded),
                   rights + (i - now.n.from) / kSide * kBlock + (r - now.k.from) / kSide * kWordsOfStep);
  };
  const auto left = [&](std::int64_t m, Span k) {
    Sixteen* sum = sums[(m - now.m.from) / kSide];
    const Bfloat16* from = gradient + k.from * width + m;
    for (std::int64_t r = 0; r < k.to - k.from; ++r) __builtin_prefetch(from + r * width + kSide);  // the next block's
    for (std::int64_t r = 0; r < k.to - k.from; r += kSide)
      turn(square(from + r * width, width, k.to - k.from - r, width - m, padded), lefts + r / kSide * kWordsOfStep, sum);
    if (k.to == rows && now.n.from == 0 && maps.of_biases[0])
      for (std::int64_t l = 0; l < std::min(kSide, width - m); ++l) {
        float* to = maps.of(maps.of_biases, m + l, 1);
        *to = (add ? *to : 0.0f) + sum[l % 8 / 4][l / 8 * 4 + l % 4];
      }
    return Left{lefts, 64, kWordsOfStep * 4};
  };
  const auto right = [&](std::int64_t n, Span) { return rights + (n - now.n.from) / kSide * kBlock; };
  const auto finish = [&](std::int64_t m, std::int64_t n, Sixteen one, Sixteen other) {
    float* to = maps.of(maps.of_weights, m, inputs) + n;
    Sixteen x[2] = {one, other};
    put_in_order(x);
    for (int i = 0; i < 2; ++i, to += 16) {
      const std::int64_t count = inputs - n - 16 * i;
      if (count >= 16) store_sixteen(add ? x[i] + load_sixteen(to) : x[i], to);
      else if (count > 0) store_first(add ? x[i] + load_first(to, count) : x[i], count, to);
    }
  };
  multiply<kOfColumns>(my_share(width, kSide), inputs, rows, prepare, left, right, finish);
}

// Panels of 32 outputs, by all threads of a region: for every 32 inputs a square of the right side.
void lay_out_by_outputs(const Maps& maps, std::uint32_t* panels) {
  const std::int64_t steps = steps_of(maps.inputs);
  Room room;
#pragma omp for schedule(static)
  for (std::int64_t o = 0; o < maps.width(); o += kSide)
    for (std::int64_t i = 0; i < maps.inputs; i += kSide) {
      square(maps, o, i, room);
      pair_columns(room, panels + (o / kSide * steps + i / kSide) * kWordsOfStep);
    }
}

// Panels of 32 inputs: for every 32 outputs a square.
void lay_out_by_inputs(const Maps& maps, std::uint32_t* panels) {
  const std::int64_t steps = steps_of(maps.width());
  Room room;
#pragma omp for schedule(static)
  for (std::int64_t o = 0; o < maps.width(); o += kSide)
    for (std::int64_t i = 0; i < maps.inputs; i += kSide)
      pair_lines(square(maps, o, i, room), panels + (i / kSide * steps + o / kSide) * kWordsOfStep);
}

// In the order of the tiles' columns, zeros behind the last.
float* lay_out_biases(const Maps& maps) {
  static thread_local std::vector<float> room;
  const std::int64_t width = maps.width(), padded = round_up(width, kSide);
  float* to = at_least(room, padded);
  for (std::int64_t o = 0; o < padded; ++o)
    to[o / kSide * kSide + o % 8 / 4 * 16 + o % kSide / 8 * 4 + o % 4] = o < width && maps.biases[0] ? *maps.of(maps.biases, o, 1) : 0.0f;
  return to;
}

template <Activation kActivation>
void map(const Bfloat16* x, const Maps& maps, Bfloat16* y, std::int64_t rows) {
  static thread_local std::vector<std::uint32_t> room;
  const std::int64_t width = maps.width(), depth = maps.inputs;
  std::uint32_t* panels = aligned(room, round_up(width, kSide) * steps_of(depth) * 16);
  const float* biases = lay_out_biases(maps);
  Caught caught;
#pragma omp parallel
  {
    lay_out_by_outputs(maps, panels);
    caught([&] {
      multiply_rows(x, depth, panels, y, width, rows, [=](std::int64_t, std::int64_t n, Sixteen one, Sixteen other) {
        one += load_sixteen(biases + n), other += load_sixteen(biases + n + 16);
        return put_in_order(value_of<kActivation>(one), value_of<kActivation>(other));
      });
    });
  }
  caught.rethrow();
}

// All gradients; `kActivation` made the rows.
template <Activation kActivation>
void map_back(const Bfloat16* gradient, const Bfloat16* x, const Maps& maps, Bfloat16* of_x, std::int64_t rows, bool add) {
  static thread_local std::vector<std::uint32_t> room;
  const std::int64_t width = maps.inputs, depth = maps.width();
  std::uint32_t* panels = of_x ? aligned(room, round_up(width, kSide) * steps_of(depth) * 16) : nullptr;
  const auto change = [=](std::int64_t r, std::int64_t c, Sixteen one, Sixteen other) {
    const Words sums = put_in_order(one, other);
    if constexpr (kActivation == kIdentity) return sums;
    Halves made = {};
    __builtin_prefetch(x + r * width + c + kSide);
    std::memcpy(&made, x + r * width + c, std::min(width - c, kSide) * sizeof(Bfloat16));
    // Not above zero: no number counts as above.
    const auto none = (made == 0) | ((made >= 0x8000) & (made <= 0xff80));
    return as<Words>(as<Halves>(sums) & ~(Halves)none);
  };
  Caught caught;
#pragma omp parallel
  {
    if (of_x) lay_out_by_inputs(maps, panels);
    caught([&] {
      if (of_x) multiply_rows(gradient, depth, panels, of_x, width, rows, change);
      if (maps.of_weights[0]) multiply_columns(gradient, x, maps, rows, add);
    });
  }
  caught.rethrow();
}

}  // namespace
}  // namespace transduce

using namespace transduce;

// Whether the functions of this file may be called: the system can refuse.
TRANSDUCE_EXPORT allow_tiles() { return may_use_tiles() ? kDone : kFailed; }

// As map_rows and map_rows_backward, by tiles.
TRANSDUCE_EXPORT map_rows_by_tiles(const Bfloat16* x, const Maps* maps, Bfloat16* y, std::int64_t rows, std::int64_t activation) {
  return guarded([=] {
    require_fused(static_cast<Activation>(activation));
    activation == kRelu ? map<kRelu>(x, *maps, y, rows) : map<kIdentity>(x, *maps, y, rows);
  });
}

TRANSDUCE_EXPORT map_rows_backward_by_tiles(const Bfloat16* gradient, const Bfloat16* x, const Maps* maps, Bfloat16* of_x,
                                            std::int64_t rows, std::int64_t add, std::int64_t activation) {
  return guarded([=] {
    require_fused(static_cast<Activation>(activation));
    if (rows == 0) return clear_gradients(*maps, add != 0);
    const auto back = activation == kRelu ? map_back<kRelu> : map_back<kIdentity>;
    back(gradient, x, *maps, of_x, rows, add != 0);
  });
}
