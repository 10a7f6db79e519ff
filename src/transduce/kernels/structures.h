// Structures that Python fills: addresses and sizes of what a kernel reads. interface.py has the same.
#pragma once
#include <cstdint>

namespace transduce {

// In place of the symbol that a row reads in a step: it is left out.
constexpr std::int64_t kReadsNothing = -1;

// Sentence b's queries are rows queries[b] to queries[b + 1]. Strides are of rows, in elements.
struct Sequences {
  std::int64_t batch, heads, d_k, d_v;
  const std::int64_t *queries, *keys;
  std::int64_t query_stride, key_stride, value_stride, output_stride;
  std::int32_t causal;
  float scale;
};

// Linear maps of the same rows in training, concatenated. Biases may be missing.
struct Maps {
  static constexpr int kMost = 3;
  const float* weights[kMost];
  const float* biases[kMost];
  float* of_weights[kMost];
  float* of_biases[kMost];
  std::int64_t outputs[kMost];
  std::int64_t inputs;

  std::int64_t width() const { return outputs[0] + outputs[1] + outputs[2]; }

  // Where what is of output o begins, `size` numbers for each output.
  template <typename T>
  T* of(T* const* parts, std::int64_t o, std::int64_t size) const {
    int map = 0;
    for (; o >= outputs[map]; ++map) o -= outputs[map];
    return parts[map] ? parts[map] + o * size : nullptr;
  }
};

// Sentence i: `lengths[i]` symbols in ascending order at symbols + i * longest, of a vocabulary of so many; symbol v's score is in
// column columns[v].
struct Lists {
  const std::int64_t *columns, *symbols, *lengths;
  std::int64_t longest, vocabulary;
};

// What `rank` reads and writes: the logits of `sentences` x `beam` rows of `width` columns, which it overwrites, those of row i in row
// places[i] unless `places` is missing; each row's score so far, minus infinity where it has no hypothesis, so that nothing continues
// it; the tokens that are banned, and the sentences that must end. Without `lists`, the columns are the vocabulary. Unless `which` is
// missing, row i is continued with nothing but choices[first[which[i]]] up to choices[first[which[i] + 1]], or with anything where
// which[i] is -1; there are so many `kinds` of choices. To `values` and `indices` go the best `count` continuations of each sentence.
struct Ranking {
  float* logits;
  const std::int64_t* places;
  const float* so_far;
  std::int64_t sentences, beam, width;
  const std::int64_t* banned;
  std::int64_t bans;
  const bool* must_end;
  std::int64_t end, count;
  const std::int64_t *which, *first, *choices;
  std::int64_t kinds;
  float* values;
  std::int64_t* indices;
};

// A sentence of a search. What it was asked for: the longest output, end symbol counted, and the shortest, without it; how many outputs;
// whether it stops at a full beam of them; and the length penalty. How far it is: the symbols that its open hypotheses have written, and
// the outputs that it keeps.
struct Searched {
  std::int64_t limit, min_length, n_best, full_beam, penalty;
  double alpha;
  std::int64_t length, ended;
};

// An output: its `length` symbols end in the hypothesis of that place of the beam.
struct Ended {
  double score, log_probability;
  std::int64_t length, place;
};

// The symbol that a hypothesis wrote in a round, and the place in the beam of the hypothesis that it continued.
struct Written {
  std::int32_t place, symbol;
};

// A round of a search: `sentences`, each with `beam` hypotheses, room for `most` outputs and for `columns` symbols of each hypothesis.
// Reads the `logits` and the lists of what rows may be continued with as `rank` does, and overwrites the logits. Of every row it leaves
// the newest symbol, kReadsNothing where it has no hypothesis, and in `rows` the row that it goes on from; it says which sentences'
// outputs are certain, and how many are; whether any row goes on from another one; and whether scores are no numbers: then nothing else
// is as it should be.
struct Round {
  float* logits;
  std::int64_t width;
  Searched* searched;
  float* so_far;
  Ended* ended;
  Written* written;
  std::int64_t *newest, *rows;
  bool* certain;
  std::int64_t sentences, beam, most, columns;
  const std::int64_t* banned;
  std::int64_t bans, end;
  const std::int64_t *which, *first, *choices;
  std::int64_t kinds;
  std::int64_t done, moved, not_a_number;
};

// How long a search may go on by itself: rounds, and seconds, behind which it ends with its round; and the rounds that it has made.
struct Pace {
  std::int64_t rounds;
  double seconds;
  std::int64_t made;
};

// What `add_norm` reads and writes: x and `out`, which may be missing; their sum, its LayerNorm y in T and, unless missing, in
// float32; all rows' means, then all rows' 1 / standard deviation.
template <typename T>
struct AddNorm {
  const float* x;
  const T* out;
  float* sum;
  T* y;
  float *wide, *statistics;
  const float *gain, *bias;
  std::int64_t rows, d;
  float epsilon;
};

// The gradients of the same: given those of the sum, of y and of `wide` (each may be missing), those of x, `out`, gain and bias.
template <typename T>
struct AddNormBackward {
  const float *sum, *statistics, *gain, *of_sum;
  const T* of_y;
  const float *of_wide;
  float* of_x;
  T* of_out;
  float *of_gain, *of_bias;
  std::int64_t rows, d;
};

// An LSTM over a ragged batch: row b has the symbols offsets[b] to offsets[b + 1], read from the last one on where `backwards`. What is given:
// of each symbol what its gates are of its input, W x + b; U; and the states and memories before the first symbol, or zeros where these are
// missing. What is made: each symbol's state; and unless missing, for the backward pass, its memory, its gates, and what was multiplied with U.
// Then the gradients: those of the states are given, the others made, those of the start unless missing.
template <typename T>
struct Cells {
  std::int64_t batch, hidden;
  const std::int64_t* offsets;
  std::int64_t backwards;
  const T* gates;
  const float *weight, *start, *start_memory;
  float *states, *memories, *activated;
  T* previous;
  const float* of_states;
  T* of_gates;
  float *of_start, *of_start_memory;
};

// An attention with a hidden layer of `units` (e_j = v tanh(q + k_j), weights softmax(sharpness e)): the query of each symbol of row b looks at
// the rows begins[b] to ends[b] of keys and values. Made are the contexts, `memory` wide, and each symbol's weights, `columns` of them,
// zeros behind its source. Gradients are those of contexts, which are given, and the others, those of keys and values added to what is there.
struct AdditiveAttention {
  std::int64_t units, memory, columns;
  const std::int64_t *begins, *ends;
  const float *keys, *values, *vector;
  float *queries, *contexts, *weights;
  const float* of_contexts;
  float *of_queries, *of_keys, *of_values, *of_vector;
  float sharpness;
};

}  // namespace transduce
