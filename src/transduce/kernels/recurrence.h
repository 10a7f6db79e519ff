// What LSTM cells over a ragged batch are made of. The rows of a batch do not know each other: each thread reads rows of its own to their
// ends, and no thread waits for another one.
#pragma once
#include <omp.h>

#include <numeric>

#include "activation.h"
#include "guard.h"
#include "structures.h"
#include "weights.h"

namespace transduce {

constexpr int kGates = 4;  // input, forget, new, output: PyTorch's order

// Near zero 1 - e has few digits left: there by its series, to less than a digit of a float.
inline Sixteen hyperbolic_tangent(Sixteen x) {
  const Sixteen size = choose(x < 0.0f, -x, x), e = exponential(-2.0f * size), square = x * x;
  const Sixteen large = (1.0f - e) / (1.0f + e);
  const Sixteen small = x + x * square * (-1.0f / 3 + square * (2.0f / 15));
  return choose(size < 0.1f, small, choose(x < 0.0f, -large, large));
}

// As many columns as a block of product_of_words has: it reads a panel from end to end.
constexpr std::int64_t kAcross = 16 * kWide;
template <typename T>
using Weights = Panels<T, kAcross>;

// A matrix of (outputs, inputs), for products with rows of its inputs, and with rows of its outputs: those that gradients go back through.
template <typename T>
void lay_out(const float* weight, std::int64_t outputs, std::int64_t inputs, Weights<T>& to) {
  to.by_outputs([=](std::int64_t o) { return weight + o * inputs; }, outputs, inputs);
}
template <typename T>
void lay_out_to_go_back(const float* weight, std::int64_t outputs, std::int64_t inputs, Weights<T>& to) {
  to.by_inputs([=](std::int64_t o) { return weight + o * inputs; }, outputs, inputs);
}
// The input gates of sixteen cells are columns side by side, then come their forget gates ...
constexpr std::int64_t kColumnsOfCells = 16 * kGates;
template <typename T>
void lay_out_gates(const float* weight, std::int64_t hidden, std::int64_t inputs, Weights<T>& to) {
  const auto row_of = [=](std::int64_t c) {
    const std::int64_t cell = c / kColumnsOfCells * 16 + c % 16, gate = c / 16 % kGates;
    return cell < hidden ? weight + (gate * hidden + cell) * inputs : nullptr;
  };
  to.by_outputs(row_of, round_up(hidden, 16) * kGates, inputs);
}

// finish(r, c, sums) for rows r, each `stride` numbers behind the one before, and sixteen columns from c on: so many from `first`, where a
// panel begins.
template <typename T, typename Finish>
void multiply(const T* rows, std::int64_t stride, std::int64_t n, const Weights<T>& weights, std::int64_t first, std::int64_t columns,
              Finish finish) {
  for (std::int64_t c = first; c < first + columns; c += kAcross)
    product_of_words<T>(reinterpret_cast<const char*>(rows), stride * sizeof(T), 4, weights.at(c), kAcross, n,
                        std::min(kAcross, round_up(first + columns - c, 16)), weights.words(),
                        [&](std::int64_t r, std::int64_t j, Sixteen sums) { finish(r, c + j, sums); });
}
// The same of all columns.
template <typename T, typename Finish>
void multiply(const T* rows, std::int64_t stride, std::int64_t n, const Weights<T>& weights, Finish finish) {
  multiply(rows, stride, n, weights, 0, weights.columns(), finish);
}

// How many numbers a row of so many takes, whole words.
template <typename T>
constexpr std::int64_t whole_words(std::int64_t n) {
  return words_of<T>(n) * kGroup<T>;
}

// This thread's rows of a batch, longest first: those that go on at a step are the first ones.
class OwnRows {
 public:
  OwnRows(const std::int64_t* offsets, std::int64_t batch, bool backwards) : offsets_(offsets), backwards_(backwards) {
    std::vector<std::int64_t> all(batch);
    std::iota(all.begin(), all.end(), 0);
    const auto longer = [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); };
    std::stable_sort(all.begin(), all.end(), longer);
    for (std::int64_t i = omp_get_thread_num(); i < batch; i += omp_get_num_threads()) rows_.push_back(all[i]);
  }

  std::int64_t count() const { return rows_.size(); }
  std::int64_t longest() const { return rows_.empty() ? 0 : length_of(rows_[0]); }
  // Which row of the batch it is.
  std::int64_t operator[](std::int64_t r) const { return rows_[r]; }
  // How many rows have a symbol at a step.
  std::int64_t going(std::int64_t step) const {
    const auto ended = [&](std::int64_t row, std::int64_t at) { return length_of(row) > at; };
    return std::lower_bound(rows_.begin(), rows_.end(), step, ended) - rows_.begin();
  }
  std::int64_t token(std::int64_t r, std::int64_t step) const {
    const std::int64_t row = rows_[r];
    return backwards_ ? offsets_[row + 1] - 1 - step : offsets_[row] + step;
  }

 private:
  std::int64_t length_of(std::int64_t row) const { return offsets_[row + 1] - offsets_[row]; }

  const std::int64_t* offsets_;
  bool backwards_;
  std::vector<std::int64_t> rows_;
};

// The cells of this thread's rows, forwards: what each remembers.
template <typename T>
class LstmForward {
 public:
  // `inputs` are the numbers that gates are made of beside what is known of them; the state is the last ones.
  LstmForward(const Cells<T>& all, const OwnRows& rows, std::int64_t inputs)
      : all_(all), rows_(rows), stride_(whole_words<T>(inputs)), state_(inputs - all.hidden), read_(rows.count() * stride_),
        next_(rows.count() * stride_), memories_(rows.count() * all.hidden), sums_(rows.count() * kColumnsOfCells) {
    for (std::int64_t r = 0; r < rows.count(); ++r)
      if (all.start) {
        put(all.start + rows[r] * all.hidden, all.hidden, state(r));
        std::copy_n(all.start_memory + rows[r] * all.hidden, all.hidden, memories_.data() + r * all.hidden);
      }
  }

  // All that row r reads in the next step, and the state in it.
  T* read(std::int64_t r) { return read_.data() + r * stride_; }
  T* state(std::int64_t r) { return read(r) + state_; }

  // The first n rows go on in other cells.
  void hand_over(std::int64_t n, LstmForward& other) {
    for (std::int64_t r = 0; r < n; ++r) std::copy_n(state(r), all_.hidden, other.state(r));
    memories_.swap(other.memories_);
  }

  void step(std::int64_t at, const Weights<T>& weights) {
    const std::int64_t n = rows_.going(at), width = all_.hidden;
    if (all_.previous)
      for (std::int64_t r = 0; r < n; ++r)
        std::copy_n(read(r), state_ + width, all_.previous + rows_.token(r, at) * (state_ + width));
    for (std::int64_t cell = 0; cell < width; cell += 16) {
      const std::int64_t first = kGates * cell;
      multiply(read_.data(), stride_, n, weights, first, kColumnsOfCells, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
        store_sixteen(sums, &sums_[r * kColumnsOfCells + c - first]);
      });
      for (std::int64_t r = 0; r < n; ++r)
        if (width - cell >= 16) advance(r, rows_.token(r, at), cell, std::integral_constant<std::int64_t, 16>{});
        else advance(r, rows_.token(r, at), cell, width - cell);
    }
    read_.swap(next_);
  }

 private:
  static void put(const float* from, std::int64_t n, T* to) {
    by_sixteens(n, [&](std::int64_t i, auto count) { store_first(load_first(from + i, count), count, to + i); });
  }

  // Sixteen cells of a row, of which n are there.
  template <typename Count>
  void advance(std::int64_t r, std::int64_t token, std::int64_t cell, Count n) {
    const std::int64_t width = all_.hidden, place = token * width + cell;
    const float* sums = &sums_[r * kColumnsOfCells];
    const auto given = [&](int gate) {
      return load_sixteen(sums + 16 * gate) + load_first(all_.gates + (token * kGates + gate) * width + cell, n);
    };
    const Sixteen in = sigmoid(given(0)), forget = sigmoid(given(1)), fresh = hyperbolic_tangent(given(2)), out = sigmoid(given(3));
    float* memory = &memories_[r * width + cell];
    const Sixteen kept = forget * load_first(memory, n) + in * fresh, state = out * hyperbolic_tangent(kept);
    store_first(kept, n, memory);
    store_first(state, n, all_.states + place);
    store_first(state, n, next_.data() + r * stride_ + state_ + cell);
    if (!all_.memories) return;
    store_first(kept, n, all_.memories + place);
    const Sixteen gates[kGates] = {in, forget, fresh, out};
    for (int gate = 0; gate < kGates; ++gate) store_first(gates[gate], n, all_.activated + (token * kGates + gate) * width + cell);
  }

  const Cells<T>& all_;
  const OwnRows& rows_;
  std::int64_t stride_, state_;
  std::vector<T> read_, next_;
  std::vector<float> memories_, sums_;
};

// The same cells backwards: the gradients of what they remember.
template <typename T>
class LstmBackward {
 public:
  LstmBackward(const Cells<T>& all, const OwnRows& rows)
      : all_(all), rows_(rows), of_memories_(rows.count() * all.hidden), of_states_(rows.count() * all.hidden),
        of_gates_(rows.count() * kGates * all.hidden) {}

  // The gradient of the state that row r came to the step with, beside what it gave out.
  float* of_state(std::int64_t r) { return of_states_.data() + r * all_.hidden; }

  // What row r remembered before a step, where these cells, or others, made `memories`; null: zeros.
  const float* before(std::int64_t r, std::int64_t at, const float* memories) const {
    if (at) return memories + rows_.token(r, at - 1) * all_.hidden;
    return all_.start_memory ? all_.start_memory + rows_[r] * all_.hidden : nullptr;
  }

  // From the gradients of what a step made to those of what its gates were given: rows of these. `before` tells what a row remembered.
  template <typename Before>
  const T* step(std::int64_t at, Before before) {
    const std::int64_t n = rows_.going(at), width = all_.hidden;
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t token = rows_.token(r, at);
      const float* memory = before(r);
      by_sixteens(width, [&](std::int64_t cell, auto count) { go_back(r, token, memory, cell, count); });
    }
    return of_gates_.data();
  }
  const T* step(std::int64_t at) {
    return step(at, [&](std::int64_t r) { return before(r, at, all_.memories); });
  }

  // What is known so far goes on in other cells.
  void hand_over(LstmBackward& other) {
    of_states_.swap(other.of_states_);
    of_memories_.swap(other.of_memories_);
  }
  void hand_over_memories(LstmBackward& other) { of_memories_.swap(other.of_memories_); }

  // Behind the first step.
  void finish() {
    if (!all_.of_start) return;
    for (std::int64_t r = 0; r < rows_.count(); ++r) {
      std::copy_n(of_state(r), all_.hidden, all_.of_start + rows_[r] * all_.hidden);
      std::copy_n(of_memories_.data() + r * all_.hidden, all_.hidden, all_.of_start_memory + rows_[r] * all_.hidden);
    }
  }

 private:
  template <typename Count>
  void go_back(std::int64_t r, std::int64_t token, const float* before, std::int64_t cell, Count n) {
    const std::int64_t width = all_.hidden, place = token * width + cell;
    const auto gate = [&](int number) { return load_first(all_.activated + (token * kGates + number) * width + cell, n); };
    const Sixteen in = gate(0), forget = gate(1), fresh = gate(2), out = gate(3), shown = hyperbolic_tangent(load_first(all_.memories + place, n));
    const Sixteen given_out = all_.of_states ? load_first(all_.of_states + place, n) : Sixteen{};
    const Sixteen of_shown = given_out + load_first(of_state(r) + cell, n);
    float* of_memory = &of_memories_[r * width + cell];
    const Sixteen received = load_first(of_memory, n) + of_shown * out * (1.0f - shown * shown);
    const Sixteen memory = before ? load_first(before + cell, n) : Sixteen{};
    store_first(received * forget, n, of_memory);
    const Sixteen given[kGates] = {received * fresh * in * (1.0f - in), received * memory * forget * (1.0f - forget),
                                   received * in * (1.0f - fresh * fresh), of_shown * shown * out * (1.0f - out)};
    for (int number = 0; number < kGates; ++number) {
      store_first(given[number], n, all_.of_gates + (token * kGates + number) * width + cell);
      store_first(given[number], n, of_gates_.data() + (r * kGates + number) * width + cell);
    }
  }

  const Cells<T>& all_;
  const OwnRows& rows_;
  std::vector<float> of_memories_, of_states_;
  std::vector<T> of_gates_;
};

}  // namespace transduce
