// Matrices of weights, laid out for products of words: rounded where words hold two numbers, and in panels of so many columns, the words of
// the columns side by side. The last panel is filled up with zeros, and so is a last word.
#pragma once
#include "words.h"

namespace transduce {

template <typename T, std::int64_t kColumns>
class Panels {
 public:
  // Of a matrix of (outputs, inputs), row o of which lies at row_of(o), or is zeros where that is null: column c is output c, and words are
  // of inputs.
  template <typename RowOf>
  void by_outputs(RowOf row_of, std::int64_t outputs, std::int64_t inputs) {
    std::uint32_t* to = begin(outputs, inputs);
#pragma omp parallel for schedule(static)
    for (std::int64_t o = 0; o < round_up(outputs, kColumns); o += 16) lay_out_sixteen(row_of, o, outputs, inputs, place(to, o));
  }

  // Column c is input c, and words are of outputs: the product that gradients go back through.
  template <typename RowOf>
  void by_inputs(RowOf row_of, std::int64_t outputs, std::int64_t inputs) {
    std::uint32_t* to = begin(inputs, outputs);
#pragma omp parallel for schedule(static)
    for (std::int64_t w = 0; w < words_; ++w) {
      const float* from[kGroup<T>] = {};
      for (std::int64_t i = 0; i < kGroup<T> && w * kGroup<T> + i < outputs; ++i) from[i] = row_of(w * kGroup<T> + i);
      for (std::int64_t c = 0; c < round_up(inputs, kColumns); c += 16) {
        Sixteen rows[kGroup<T>] = {};
        for (std::int64_t i = 0; i < kGroup<T>; ++i)
          if (from[i] && c < inputs) rows[i] = load_first(from[i] + c, inputs - c);
        store_words(join_words(rows), place(to, c) + w * kColumns);
      }
    }
  }

  std::int64_t columns() const { return columns_; }
  std::int64_t words() const { return words_; }  // of a column
  // The panel that begins with column c, word after word of its columns.
  const std::uint32_t* at(std::int64_t c) const { return panels_.data() + c * words_; }

 private:
  std::uint32_t* begin(std::int64_t columns, std::int64_t depth) {
    columns_ = columns, words_ = words_of<T>(depth);
    return at_least(panels_, round_up(columns, kColumns) * words_);
  }
  std::uint32_t* place(std::uint32_t* to, std::int64_t c) const { return to + c / kColumns * words_ * kColumns + c % kColumns; }

  // Sixteen rows from `first` on become columns.
  template <typename RowOf>
  static void lay_out_sixteen(RowOf row_of, std::int64_t first, std::int64_t rows, std::int64_t inputs, std::uint32_t* to) {
    constexpr std::int64_t kNumbers = 16 * kGroup<T>;
    for (std::int64_t k = 0; k < inputs; k += kNumbers) {
      Sixteen tile[16] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, rows - first); ++i) {
        const float* row = row_of(first + i);
        T numbers[kNumbers] = {};
        for (std::int64_t j = 0; row && j < kNumbers && k + j < inputs; j += 16)
          store_sixteen(load_first(row + k + j, inputs - k - j), numbers + j);
        tile[i] = load_vector<Sixteen>(numbers);
      }
      transpose_sixteen(tile);
      const std::int64_t words = std::min<std::int64_t>(16, words_of<T>(inputs - k));
      for (std::int64_t w = 0; w < words; ++w, to += kColumns) store_words(as<Words>(tile[w]), to);
    }
  }

  std::vector<std::uint32_t> panels_;
  std::int64_t columns_ = 0, words_ = 0;
};

}  // namespace transduce
