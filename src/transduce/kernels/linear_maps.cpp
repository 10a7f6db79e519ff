// The linear maps of training, for processors that multiply bfloat16 in vectors: rows of bfloat16 with weights of float32,
// which are rounded as they are laid out for the products. Their sums are float32's, and rounded once, in the same pass.
#include <vector>

#include "maps.h"
#include "training.h"
#include "weights.h"

namespace transduce {
namespace {

// Rows and vectors of a block whose sums stay in registers. Without AVX-512 PyTorch's products are taken: what is here is only tried there,
// and small blocks compile in a fifth of the time.
#if defined(__AVX512F__)
constexpr int kHigh = 6, kAcross = 4;
#else
constexpr int kHigh = kRows, kAcross = kWide;
#endif
constexpr std::int64_t kPanelColumns = 16 * kAcross;
using Weights = Panels<Bfloat16, kPanelColumns>;
constexpr std::int64_t kTall = 8 * kHigh;   // outputs of a tile where rows are added up: whole vectors, and whole blocks
constexpr std::int64_t kSlab = 8 * kTall;   // outputs that one thread lays out at a time
constexpr std::int64_t kDeep = 256;         // pairs of rows that it lays out at a time: with a slab, half of the second-level cache
constexpr std::int64_t kAhead = 8;          // rows that are called into the cache before they are needed
constexpr std::int64_t kNear = 256 * 1024;  // bytes of rows that meet all panels before the next rows do

// A block of so many rows, kHigh at most, with a panel: what is less than a block goes row by row, which costs little and compiles soon.
template <typename Finish>
inline void multiply_block(std::int64_t rows, const void* a, std::int64_t row_bytes, std::int64_t group_bytes, const std::uint32_t* panel,
                           std::int64_t groups, Finish finish) {
  const char* from = static_cast<const char*>(a);
  if (rows == kHigh) return product_block<Bfloat16, kHigh, kAcross>(from, row_bytes, group_bytes, panel, kPanelColumns, groups, finish);
  for (int i = 0; i < rows; ++i)
    product_block<Bfloat16, 1, kAcross>(from + i * row_bytes, row_bytes, group_bytes, panel, kPanelColumns, groups,
                                        [&](int, int j, Sixteen sums) { finish(i, j, sums); });
}

// Rows of `depth` numbers by weights: y[r][c] is what finish(sum, r, c, n) makes of the sum, for sixteen columns from c on, of which the
// first n are there.
template <typename Finish>
void multiply_rows(const Bfloat16* x, std::int64_t depth, const Weights& weights, Bfloat16* y, std::int64_t rows, Finish finish) {
  const std::int64_t width = weights.columns(), row_bytes = depth * sizeof(Bfloat16);
#pragma omp parallel
  {
    // A last number without a twin has a word of its own, beside a zero.
    std::uint32_t last[kHigh];
    const Span mine = my_share(rows, kHigh);
    const std::int64_t near = std::max<std::int64_t>(kHigh, kNear / row_bytes / kHigh * kHigh);
    for (std::int64_t c = mine.from; c < mine.to; c += near) {
      const std::int64_t end = std::min(mine.to, c + near);
      for (std::int64_t n = 0; n < width; n += kPanelColumns)
        for (std::int64_t r = c; r < end; r += kHigh) {
          const std::uint32_t* panel = weights.at(n);
          const Bfloat16* from = x + r * depth;
          const std::int64_t count = std::min<std::int64_t>(kHigh, end - r);
          Bfloat16* to = y + r * width + n;
          const auto multiply = [&](auto store) {
            multiply_block(count, from, row_bytes, 4, panel, depth / 2, store);
          };
          if (n + kPanelColumns <= width && depth % 2 == 0) {
            multiply([&](int i, int j, Sixteen sums) { store_sixteen(finish(sums, r + i, n + j, 16), to + i * width + j); });
            continue;
          }
          if (depth % 2)
            for (std::int64_t i = 0; i < count; ++i) last[i] = from[(i + 1) * depth - 1];
          multiply([&](int i, int j, Sixteen sums) {
            const std::int64_t left = width - n - j;
            if (left <= 0) return;
            if (depth % 2) sums = multiply_add<Bfloat16>(sums, last[i] + Words{}, load_words(panel + depth / 2 * kPanelColumns + j));
            store_first(finish(sums, r + i, n + j, left), left, to + i * width + j);
          });
        }
    }
  }
}

// Pairs of rows as words, in columns of `across` words; zeros beside the last row of an odd number. The sum of column c
// is added to sums[c], where these are asked for.
void lay_out_pairs(const Bfloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t n, std::int64_t across, std::uint32_t* to,
                   float* sums) {
  constexpr std::uint32_t kOnes = 0x3f803f80;
  const std::int64_t groups = words_of<Bfloat16>(rows);
  for (std::int64_t g = 0; g < groups; ++g, x += 2 * stride) {
    const Bfloat16* other = 2 * g + 1 < rows ? x + stride : nullptr;
    for (std::int64_t c = 0; c < n; c += 16) {
      if (c % 32 == 0)
        for (const Bfloat16* later : {x + kAhead * stride, x + (kAhead + 1) * stride}) __builtin_prefetch(later + c);
      Words words;
      if (n - c >= 16) {
        words = join_words(x + c, other ? other + c : nullptr);
      } else {
        Bfloat16 rest[2][16] = {};
        std::copy(x + c, x + n, rest[0]);
        if (other) std::copy(other + c, other + n, rest[1]);
        words = join_words(rest[0], rest[1]);
      }
      store_words(words, to + (c / across * groups + g) * across + c % across);
      if (sums) store_sixteen(multiply_add<Bfloat16>(load_sixteen(sums + c), words, kOnes + Words{}), sums + c);
    }
  }
}

// The gradients of weights and biases; `add`: beside what is there. Every thread has outputs of its own.
void multiply_columns(const Bfloat16* gradient, const Bfloat16* x, const Maps& maps, std::int64_t rows, bool add) {
  const std::int64_t width = maps.width(), inputs = maps.inputs, deep = std::min(kDeep, words_of<Bfloat16>(rows));
  Caught caught;
#pragma omp parallel
  caught([&] {
    static thread_local std::vector<std::uint32_t> room;
    std::uint32_t* left = at_least(room, deep * (kSlab + kPanelColumns));
    std::uint32_t* right = left + deep * kSlab;
    const Span mine = my_share(width, kHigh);
    const std::int64_t slabs = std::max<std::int64_t>(1, (mine.to - mine.from + kSlab - 1) / kSlab);
    const std::int64_t even = round_up((mine.to - mine.from + slabs - 1) / slabs, kHigh);
    for (std::int64_t o = mine.from, end; o < mine.to; o = end) {
      end = std::min(mine.to, o + even);
      float sums[kSlab] = {};
      for (std::int64_t first = 0; first < rows; first += 2 * kDeep) {
        const std::int64_t count = std::min(rows - first, 2 * kDeep), groups = words_of<Bfloat16>(count);
        const Bfloat16 *g = gradient + first * width + o, *v = x + first * inputs;
        lay_out_pairs(g, width, count, end - o, kTall, left, maps.of_biases[0] ? sums : nullptr);
        const bool more = add || first;
        for (std::int64_t n = 0; n < inputs; n += kPanelColumns) {
          lay_out_pairs(v + n, inputs, count, std::min(kPanelColumns, inputs - n), kPanelColumns, right, nullptr);
          for (std::int64_t r = 0; r < end - o; r += kHigh) {
            const std::uint32_t* from = left + r / kTall * groups * kTall + r % kTall;
            const std::int64_t high = std::min<std::int64_t>(kHigh, end - o - r);
            float* to[kHigh];
            for (std::int64_t i = 0; i < high; ++i) to[i] = maps.of(maps.of_weights, o + r + i, inputs) + n;
            const auto multiply = [&](auto finish) {
              multiply_block(high, from, 4, kTall * 4, right, groups, finish);
            };
            if (n + kPanelColumns <= inputs) {
              multiply([&](int i, int j, Sixteen sums) {
                if (more) sums += load_sixteen(to[i] + j);
                store_sixteen(sums, to[i] + j);
              });
            } else {
              multiply([&](int i, int j, Sixteen sums) {
                const std::int64_t left = inputs - n - j;
                if (left > 0) store_first(more ? sums + load_first(to[i] + j, left) : sums, left, to[i] + j);
              });
            }
          }
        }
      }
      if (maps.of_biases[0])
        for (std::int64_t i = o; i < end; ++i) {
          float* to = maps.of(maps.of_biases, i, 1);
          *to = add ? *to + sums[i - o] : sums[i - o];
        }
    }
  });
  caught.rethrow();
}

void map(const Bfloat16* x, const Maps& maps, Bfloat16* y, std::int64_t rows, Activation activation) {
  require_fused(activation);
  static thread_local Weights weights;
  static thread_local std::vector<float> biases;
  const std::int64_t width = maps.width(), padded = round_up(width, kPanelColumns);
  weights.by_outputs([&](std::int64_t o) { return maps.of(maps.weights, o, maps.inputs); }, width, maps.inputs);
  float* bias = at_least(biases, padded);
  for (std::int64_t o = 0; o < padded; ++o) bias[o] = o < width && maps.biases[0] ? *maps.of(maps.biases, o, 1) : 0.0f;
  const auto multiply = [&](auto finish) { multiply_rows(x, maps.inputs, weights, y, rows, finish); };
  if (activation == kRelu) {
    multiply([=](Sixteen sums, std::int64_t, std::int64_t c, std::int64_t) {
      return value_of<kRelu>(sums + load_sixteen(bias + c));
    });
  } else {
    multiply([=](Sixteen sums, std::int64_t, std::int64_t c, std::int64_t) { return sums + load_sixteen(bias + c); });
  }
}

// The gradient of the rows; `activation` made them.
void map_back(const Bfloat16* gradient, const Bfloat16* x, const Maps& maps, Bfloat16* of_x, std::int64_t rows, Activation activation) {
  require_fused(activation);
  static thread_local Weights weights;
  const std::int64_t width = maps.inputs;
  weights.by_inputs([&](std::int64_t o) { return maps.of(maps.weights, o, width); }, maps.width(), width);
  const auto multiply = [&](auto finish) { multiply_rows(gradient, maps.width(), weights, of_x, rows, finish); };
  if (activation == kRelu) {
    multiply([=](Sixteen sums, std::int64_t r, std::int64_t c, std::int64_t n) {
      return choose(load_first(x + r * width + c, n) <= 0.0f, Sixteen{}, sums);
    });
  } else {
    multiply([](Sixteen sums, std::int64_t, std::int64_t, std::int64_t) { return sums; });
  }
}

}  // namespace
}  // namespace transduce

using namespace transduce;

// y = activation(x W^T + b), the activation being the identity or a ReLU.
TRANSDUCE_EXPORT map_rows(const Bfloat16* x, const Maps* maps, Bfloat16* y, std::int64_t rows, std::int64_t activation) {
  return guarded([=] { map(x, *maps, y, rows, static_cast<Activation>(activation)); });
}

// `of_x` may be missing; weights' and biases' gradients replace what is there, or with `add` are added to it. x is what
// `activation` made, and `of_x` the gradient before it.
TRANSDUCE_EXPORT map_rows_backward(const Bfloat16* gradient, const Bfloat16* x, const Maps* maps, Bfloat16* of_x, std::int64_t rows,
                                   std::int64_t add, std::int64_t activation) {
  return guarded([=] {
    if (rows == 0) return clear_gradients(*maps, add != 0);
    if (of_x) map_back(gradient, x, *maps, of_x, rows, static_cast<Activation>(activation));
    multiply_columns(gradient, x, *maps, rows, add != 0);
  });
}
