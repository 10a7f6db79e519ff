// LSTM layers of training: all symbols of a ragged batch in one call. The plain form is PyTorch's LSTM (layers/recurrent.py).
#include "recurrence.h"

namespace transduce {
namespace {

template <typename T>
void read_rows(const Cells<T>& all) {
  static thread_local Weights<T> room;
  Weights<T>& weights = room;  // the caller's, for all threads
  lay_out_gates(all.weight, all.hidden, all.hidden, weights);
  Caught caught;
#pragma omp parallel if (all.batch > 1)
  caught([&] {
    const OwnRows rows(all.offsets, all.batch, all.backwards != 0);
    LstmForward<T> cells(all, rows, all.hidden);
    for (std::int64_t step = 0; step < rows.longest(); ++step) cells.step(step, weights);
  });
  caught.rethrow();
}

template <typename T>
void go_back(const Cells<T>& all) {
  static thread_local Weights<T> room;
  Weights<T>& weights = room;
  lay_out_to_go_back(all.weight, kGates * all.hidden, all.hidden, weights);
  Caught caught;
#pragma omp parallel if (all.batch > 1)
  caught([&] {
    const OwnRows rows(all.offsets, all.batch, all.backwards != 0);
    LstmBackward<T> cells(all, rows);
    for (std::int64_t step = rows.longest() - 1; step >= 0; --step) {
      const T* of_gates = cells.step(step);
      multiply(of_gates, kGates * all.hidden, rows.going(step), weights, [&](std::int64_t r, std::int64_t c, Sixteen sums) {
        store_first(sums, all.hidden - c, cells.of_state(r) + c);
      });
    }
    cells.finish();
  });
  caught.rethrow();
}

}  // namespace
}  // namespace transduce

using namespace transduce;

// The states behind every symbol.
TRANSDUCE_EXPORT lstm_float32(const Cells<float>* all) {
  return guarded([=] { read_rows(*all); });
}
TRANSDUCE_EXPORT lstm_bfloat16(const Cells<Bfloat16>* all) {
  return guarded([=] { read_rows(*all); });
}

// The gradients of what gates were given and of the states at the start, from that of the states.
TRANSDUCE_EXPORT lstm_backward_float32(const Cells<float>* all) {
  return guarded([=] { go_back(*all); });
}
TRANSDUCE_EXPORT lstm_backward_bfloat16(const Cells<Bfloat16>* all) {
  return guarded([=] { go_back(*all); });
}
