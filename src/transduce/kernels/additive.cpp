// Attention whose scores have a hidden layer (Bahdanau et al. 2015): of queries that are all known, and in the loop of an LSTM whose state
// asks. The plain forms are in layers/recurrent_attention.py and models/recurrent_decoder.py.
#include "additive.h"

#include <optional>

namespace transduce {
namespace {

// body(additive, rows) in every thread, for its rows of the batch, and then what they leave to be added up, thread by thread.
template <typename Body>
void in_threads(const AdditiveAttention& attention, const std::int64_t* offsets, std::int64_t batch, bool back, Body body) {
  Caught caught;
#pragma omp parallel if (batch > 1)
  {
    std::optional<Additive> additive;
    caught([&] {
      additive.emplace(attention);
      body(*additive, OwnRows(offsets, batch, false));
    });
#pragma omp for ordered schedule(static, 1)
    for (int thread = 0; thread < omp_get_num_threads(); ++thread)
#pragma omp ordered
      if (back && additive) additive->finish();
  }
  caught.rethrow();
}

void attend_all(const AdditiveAttention& all, const std::int64_t* offsets, std::int64_t batch) {
  in_threads(all, offsets, batch, false, [&](Additive& additive, const OwnRows& rows) {
    for (std::int64_t r = 0; r < rows.count(); ++r)
      for (std::int64_t i = offsets[rows[r]]; i < offsets[rows[r] + 1]; ++i)
        additive.forward(rows[r], all.queries + i * all.units, all.weights + i * all.columns, all.contexts + i * all.memory);
  });
}

void attend_all_back(const AdditiveAttention& all, const std::int64_t* offsets, std::int64_t batch) {
  in_threads(all, offsets, batch, true, [&](Additive& additive, const OwnRows& rows) {
    for (std::int64_t r = 0; r < rows.count(); ++r)
      for (std::int64_t i = offsets[rows[r]]; i < offsets[rows[r] + 1]; ++i)
        additive.backward(rows[r], all.queries + i * all.units, all.weights + i * all.columns, all.of_contexts + i * all.memory,
                          all.of_queries + i * all.units);
  });
}

// What a step's rows look at: from the states that ask to the contexts.
template <typename T>
class AttentionForward {
 public:
  AttentionForward(const AdditiveAttention& attention, const OwnRows& rows, std::int64_t hidden)
      : attention_(attention), rows_(rows), hidden_(hidden), stride_(whole_words<T>(hidden)), states_(rows.count() * stride_) {}

  // Of the first n rows; `cells` have the states, and `read(r)` is where a row's context goes, rounded.
  template <typename Read>
  void step(std::int64_t at, std::int64_t n, LstmForward<T>& cells, const Weights<T>& asking, Additive& additive, Read read) {
    for (std::int64_t r = 0; r < n; ++r) std::copy_n(cells.state(r), hidden_, states_.data() + r * stride_);
    multiply(states_.data(), stride_, n, asking, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
      store_first(sums, attention_.units - c, attention_.queries + rows_.token(r, at) * attention_.units + c);
    });
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t token = rows_.token(r, at);
      float* context = attention_.contexts + token * attention_.memory;
      T* to = read(r);
      additive.forward(rows_[r], attention_.queries + token * attention_.units, attention_.weights + token * attention_.columns, context);
      by_sixteens(attention_.memory, [&](std::int64_t m, auto count) { store_first(load_first(context + m, count), count, to + m); });
    }
  }

 private:
  const AdditiveAttention& attention_;
  const OwnRows& rows_;
  std::int64_t hidden_, stride_;
  std::vector<T> states_;
};

// The same backwards: from the gradients of what cells read, [c; h], to those of the states that asked, the same h.
template <typename T>
class AttentionBackward {
 public:
  AttentionBackward(const AdditiveAttention& attention, const OwnRows& rows, std::int64_t hidden)
      : attention_(attention), rows_(rows), hidden_(hidden), wide_(round_up(attention.memory + hidden, 16)),
        stride_(whole_words<T>(attention.units)), of_read_(rows.count() * wide_), asked_(rows.count() * stride_) {}

  template <typename OfState>
  void step(std::int64_t at, std::int64_t n, const T* of_gates, const Weights<T>& weights, const Weights<T>& asking, Additive& additive,
            OfState of_state) {
    multiply(of_gates, kGates * hidden_, n, weights,
             [&](std::int64_t r, std::int64_t c, Sixteen sums) { store_sixteen(sums, &of_read_[r * wide_ + c]); });
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t token = rows_.token(r, at);
      float *of_context = &of_read_[r * wide_], *of_query = attention_.of_queries + token * attention_.units;
      const float* received = attention_.of_contexts + token * attention_.memory;
      for (std::int64_t m = 0; m < attention_.memory; ++m) of_context[m] += received[m];
      additive.backward(rows_[r], attention_.queries + token * attention_.units, attention_.weights + token * attention_.columns, of_context,
                        of_query);
      by_sixteens(attention_.units,
                  [&](std::int64_t u, auto count) { store_first(load_first(of_query + u, count), count, asked_.data() + r * stride_ + u); });
    }
    multiply(asked_.data(), stride_, n, asking, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
      store_first(sums + load_first(&of_read_[r * wide_ + attention_.memory + c], hidden_ - c), hidden_ - c, of_state(r) + c);
    });
  }

 private:
  const AdditiveAttention& attention_;
  const OwnRows& rows_;
  std::int64_t hidden_, wide_, stride_;
  Floats of_read_;
  std::vector<T> asked_;
};

// Bahdanau's loop: the state before a step asks, and the cells read the context beside what is known.
template <typename T>
void read_rows(const Cells<T>& all, const AdditiveAttention& attention, const float* asking) {
  static thread_local Weights<T> room, asking_room;
  Weights<T>&weights = room, &of_queries = asking_room;
  const std::int64_t width = attention.memory + all.hidden;
  lay_out_gates(all.weight, all.hidden, width, weights);
  lay_out(asking, attention.units, all.hidden, of_queries);
  in_threads(attention, all.offsets, all.batch, false, [&](Additive& additive, const OwnRows& rows) {
    LstmForward<T> cells(all, rows, width);
    AttentionForward<T> attending(attention, rows, all.hidden);
    for (std::int64_t step = 0; step < rows.longest(); ++step) {
      attending.step(step, rows.going(step), cells, of_queries, additive, [&](std::int64_t r) { return cells.read(r); });
      cells.step(step, weights);
    }
  });
}

template <typename T>
void go_back(const Cells<T>& all, const AdditiveAttention& attention, const float* asking) {
  static thread_local Weights<T> room, asking_room;
  Weights<T>&weights = room, &of_queries = asking_room;
  const std::int64_t width = attention.memory + all.hidden;
  lay_out_to_go_back(all.weight, kGates * all.hidden, width, weights);
  lay_out_to_go_back(asking, attention.units, all.hidden, of_queries);
  in_threads(attention, all.offsets, all.batch, true, [&](Additive& additive, const OwnRows& rows) {
    LstmBackward<T> cells(all, rows);
    AttentionBackward<T> attending(attention, rows, all.hidden);
    for (std::int64_t step = rows.longest() - 1; step >= 0; --step)
      attending.step(step, rows.going(step), cells.step(step), weights, of_queries, additive, [&](std::int64_t r) { return cells.of_state(r); });
    cells.finish();
  });
}

// Two cells in a step (Sennrich et al. 2017): the first one's state asks, and the second goes on from it and reads the context.
template <typename T>
void read_rows_twice(const Cells<T>& one, const Cells<T>& other, const AdditiveAttention& attention, const float* asking) {
  static thread_local Weights<T> room[3];
  Weights<T>&of_first = room[0], &of_second = room[1], &of_queries = room[2];
  lay_out_gates(one.weight, one.hidden, one.hidden, of_first);
  lay_out_gates(other.weight, one.hidden, attention.memory + one.hidden, of_second);
  lay_out(asking, attention.units, one.hidden, of_queries);
  in_threads(attention, one.offsets, one.batch, false, [&](Additive& additive, const OwnRows& rows) {
    LstmForward<T> first(one, rows, one.hidden), second(other, rows, attention.memory + one.hidden);
    AttentionForward<T> attending(attention, rows, one.hidden);
    for (std::int64_t step = 0; step < rows.longest(); ++step) {
      const std::int64_t n = rows.going(step);
      first.step(step, of_first);
      attending.step(step, n, first, of_queries, additive, [&](std::int64_t r) { return second.read(r); });
      first.hand_over(n, second);
      second.step(step, of_second);
      second.hand_over(n, first);
    }
  });
}

template <typename T>
void go_back_twice(const Cells<T>& one, const Cells<T>& other, const AdditiveAttention& attention, const float* asking) {
  static thread_local Weights<T> room[3];
  Weights<T>&of_first = room[0], &of_second = room[1], &of_queries = room[2];
  lay_out_to_go_back(one.weight, kGates * one.hidden, one.hidden, of_first);
  lay_out_to_go_back(other.weight, kGates * one.hidden, attention.memory + one.hidden, of_second);
  lay_out_to_go_back(asking, attention.units, one.hidden, of_queries);
  in_threads(attention, one.offsets, one.batch, true, [&](Additive& additive, const OwnRows& rows) {
    LstmBackward<T> first(one, rows), second(other, rows);
    AttentionBackward<T> attending(attention, rows, one.hidden);
    for (std::int64_t step = rows.longest() - 1; step >= 0; --step) {
      const std::int64_t n = rows.going(step);
      first.hand_over(second);
      const T* of_gates = second.step(step, [&](std::int64_t r) { return one.memories + rows.token(r, step) * one.hidden; });
      attending.step(step, n, of_gates, of_second, of_queries, additive, [&](std::int64_t r) { return first.of_state(r); });
      second.hand_over_memories(first);
      of_gates = first.step(step, [&](std::int64_t r) { return first.before(r, step, other.memories); });
      multiply(of_gates, kGates * one.hidden, n, of_first, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
        store_first(sums, one.hidden - c, first.of_state(r) + c);
      });
    }
    first.finish();
  });
}

}  // namespace
}  // namespace transduce

using namespace transduce;

// The contexts of the symbols' queries: row b has those from offsets[b] to offsets[b + 1].
TRANSDUCE_EXPORT additive_attention(const AdditiveAttention* all, const std::int64_t* offsets, std::int64_t batch) {
  return guarded([=] { attend_all(*all, offsets, batch); });
}
TRANSDUCE_EXPORT additive_attention_backward(const AdditiveAttention* all, const std::int64_t* offsets, std::int64_t batch) {
  return guarded([=] { attend_all_back(*all, offsets, batch); });
}

// As `lstm`: cells that read [c; h] beside what is known, c being what a query, `asking` (units, hidden) times the state before, looks at.
TRANSDUCE_EXPORT attending_lstm_float32(const Cells<float>* all, const AdditiveAttention* attention, const float* asking) {
  return guarded([=] { read_rows(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_bfloat16(const Cells<Bfloat16>* all, const AdditiveAttention* attention, const float* asking) {
  return guarded([=] { read_rows(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_backward_float32(const Cells<float>* all, const AdditiveAttention* attention, const float* asking) {
  return guarded([=] { go_back(*all, *attention, asking); });
}
TRANSDUCE_EXPORT attending_lstm_backward_bfloat16(const Cells<Bfloat16>* all, const AdditiveAttention* attention, const float* asking) {
  return guarded([=] { go_back(*all, *attention, asking); });
}

// The same of two cells in each step: `one` reads what is known, asks with its state, and `other` reads [c; h] of that state.
TRANSDUCE_EXPORT conditional_lstm_float32(const Cells<float>* one, const Cells<float>* other, const AdditiveAttention* attention,
                                          const float* asking) {
  return guarded([=] { read_rows_twice(*one, *other, *attention, asking); });
}
TRANSDUCE_EXPORT conditional_lstm_bfloat16(const Cells<Bfloat16>* one, const Cells<Bfloat16>* other, const AdditiveAttention* attention,
                                           const float* asking) {
  return guarded([=] { read_rows_twice(*one, *other, *attention, asking); });
}
TRANSDUCE_EXPORT conditional_lstm_backward_float32(const Cells<float>* one, const Cells<float>* other, const AdditiveAttention* attention,
                                                   const float* asking) {
  return guarded([=] { go_back_twice(*one, *other, *attention, asking); });
}
TRANSDUCE_EXPORT conditional_lstm_backward_bfloat16(const Cells<Bfloat16>* one, const Cells<Bfloat16>* other,
                                                    const AdditiveAttention* attention, const float* asking) {
  return guarded([=] { go_back_twice(*one, *other, *attention, asking); });
}
