// Which elements of a row a dropout leaves out: the plain formula is in dropout.py and seeds.py.
#pragma once
#include "sixteen.h"

namespace transduce {

// Eight draws of a seed's stream: 64 random bits each for four adjacent columns (SplitMix64, as in config/splitmix.py).
inline Words64 mix(Words64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Which elements stay, and what they are multiplied with: `kept` of 65,536 levels stay. The draws are a pure function of
// the row's seed and the column, so that the backward pass draws them again and nothing has to be stored.
struct Dropout {
  const std::uint64_t* seeds;
  std::int32_t kept;
  float scale;

  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;  // between two draws of a stream

  bool active() const { return kept < 65536; }

  // What elements are multiplied with that drew these 16 bits, read as signed numbers.
  Sixteen factor(Numbers drawn) const { return choose(drawn < kept - 32768, scale + Sixteen{}, Sixteen{}); }

  // How many columns are drawn at a time: `to` must have space for a multiple of them.
  static constexpr std::int64_t kColumns = 32;

  // to[i] = 0 or scale for the columns of a row; left alone where nothing is dropped.
  void draw(float* to, std::int64_t n, std::int64_t row) const {
    if (!active()) return;
    for (std::int64_t i = 0; i < n; i += kColumns) {
      const Words64 words = mix(seeds[row] + (i / 4 + kPlaces64) * kStep);
      Shorts bits[2];
      std::memcpy(bits, &words, sizeof bits);
      for (int half = 0; half < 2; ++half) store_sixteen(factor(spread(bits[half])), to + i + 16 * half);
    }
  }

  // Where the streams of sixteen rows begin, of which there are `n`, behind the `before` first draws.
  struct Streams {
    Words64 halves[2];

    Streams(const Dropout& dropout, std::int64_t row, std::int64_t n, std::uint64_t before) : halves{} {
      if (dropout.active()) std::memcpy(halves, dropout.seeds + row, std::min<std::int64_t>(n, 16) * sizeof(std::uint64_t));
      for (Words64& half : halves) half = half + before * kStep;
    }
  };

  // The factors of columns 4 w to 4 w + 3, each in all sixteen rows.
  void draw_across(const Streams& streams, std::uint64_t w, Sixteen (&to)[4]) const {
    if (!active()) {
      std::fill(to, to + 4, 1.0f + Sixteen{});
      return;
    }
    const Numbers first = as<Numbers>(mix(streams.halves[0] + w * kStep)), second = as<Numbers>(mix(streams.halves[1] + w * kStep));
    const Numbers low = even_ones(first, second), high = odd_ones(first, second);
    to[0] = factor(low << 16 >> 16);
    to[1] = factor(low >> 16);
    to[2] = factor(high << 16 >> 16);
    to[3] = factor(high >> 16);
  }
};

}  // namespace transduce
