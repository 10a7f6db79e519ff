// What each sentence may write, where that is not all of the vocabulary.
#pragma once
#include <cstdint>

namespace transduce {

// Sentence i: `lengths[i]` symbols in ascending order at symbols + i * longest, of a vocabulary of so many; symbol v's score stands in
// column columns[v]. ranking.py fills the same structure.
struct Lists {
  const std::int64_t *columns, *symbols, *lengths;
  std::int64_t longest, vocabulary;
};

}  // namespace transduce
