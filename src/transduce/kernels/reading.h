// A decoder's step as a search makes it: which rows read, and their scores.
#pragma once
#include "stack.h"

namespace transduce {

// The rows that read a symbol in a step, without gaps: all arrays between embedding and projection have these alone. Row k of such
// an array is row rows[k] of the step's; sentence i's begin at first[i].
struct Reading {
  std::vector<std::int64_t> rows, symbols, first;

  void of(const Step& step) {
    rows.clear(), symbols.clear(), first.clear();
    for (std::int64_t i = 0; i < step.sentences; ++i) {
      first.push_back(count());
      for (std::int64_t r = i * step.beam; r < (i + 1) * step.beam; ++r)
        if (step.tokens[r] != kReadsNothing) rows.push_back(r), symbols.push_back(step.tokens[r]);
    }
    first.push_back(count());
  }

  std::int64_t count() const { return rows.size(); }
  // The sentence behind sentence i of which any row reads; else how many there are.
  std::int64_t next(std::int64_t i) const {
    const std::int64_t sentences = first.size() - 1;
    do ++i;
    while (i < sentences && first[i] == first[i + 1]);
    return i;
  }
};

// One symbol in every row that reads one: row k of `logits` has the scores of what may follow in row rows[k] of what it returns, which the
// thread's next step writes over.
template <typename T>
const Reading& read(const Stack& stack, const Matrix& projection, const Step& step, float* logits);

}  // namespace transduce
