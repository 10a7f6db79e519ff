// A round of beam search for all sentences of a batch: ranking, what ends, what stays open, and whose outputs are certain. The plain
// formula is search/hypotheses.py, to the last bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "guard.h"
#include "ranking.h"

using namespace transduce;

namespace {

// rounds.py has the same numbers.
enum Penalty : std::int64_t { kNone = 0, kGnmt = 1, kMarian = 2 };

// What a log-probability is divided by.
double penalty(const Searched& s, std::int64_t length) {
  if (s.penalty == kGnmt) return std::pow((5.0 + length) / 6.0, s.alpha);
  if (s.penalty == kMarian) return std::pow(static_cast<double>(length), s.alpha);
  return 1.0;
}

// A continuation.
struct Candidate {
  float log_probability;
  std::int32_t place, symbol;
};

// A sentence's part of the round's arrays.
class Sentence {
 public:
  Sentence(const Round& round, std::int64_t number)
      : r_(round), number_(number), s_(round.searched[number]), ended_(round.ended + number * round.most) {
    require_index(s_.length, r_.columns);
    require_index(s_.n_best - 1, r_.most);
    require_index(r_.beam - 1, r_.most);
    require_index(s_.ended, kept() + 1);
  }

  bool must_end() const { return s_.length + 1 >= s_.limit; }

  // What ends among the best `beam` candidates has ended; the best that do not end stay open. Returns whether any is in another place
  // than the one that it continues.
  bool write(const Candidate* candidates, std::int64_t count) {
    if (s_.length >= s_.min_length)
      for (std::int64_t k = 0; k < std::min(r_.beam, count); ++k)
        if (candidates[k].symbol == r_.end && candidates[k].log_probability > -INFINITY) end(candidates[k]);
    std::int64_t place = 0;
    bool moved = false;
    for (std::int64_t k = 0; k < count && place < r_.beam; ++k)
      if (candidates[k].symbol != r_.end) moved |= go_on(place++, candidates[k]);
    while (place < r_.beam) moved |= go_on(place++, Candidate{-INFINITY, 0, 0});
    ++s_.length;
    drop_hopeless();
    return moved;
  }

  // Whether the `n_best` outputs are final: what could not come among them any more is not open.
  bool is_certain() const {
    const bool none_open = *std::max_element(so_far(), so_far() + r_.beam) == -INFINITY;
    if (none_open || s_.length >= s_.limit) return true;
    if (r_.beam == 1) return s_.ended > 0;
    return s_.full_beam && s_.ended >= r_.beam;
  }

 private:
  std::int64_t kept() const { return std::max(s_.n_best, r_.beam); }
  float* so_far() const { return r_.so_far + number_ * r_.beam; }

  // The outputs stay sorted, the best first; what came first stays first among equals.
  void end(const Candidate& candidate) {
    const double log_probability = candidate.log_probability;
    const Ended output{log_probability / penalty(s_, s_.length + 1), log_probability, s_.length, candidate.place};
    const auto worse = [](const Ended& one, const Ended& other) { return one.score > other.score; };
    Ended* at = std::upper_bound(ended_, ended_ + s_.ended, output, worse);
    if (at == ended_ + kept()) return;
    s_.ended = std::min(s_.ended + 1, kept());
    std::move_backward(at, ended_ + s_.ended - 1, ended_ + s_.ended);
    *at = output;
  }

  // Empty the places of hypotheses that cannot come among the `n_best` outputs any more. A longer one never gains probability, and
  // penalties are monotonic.
  void drop_hopeless() {
    if (r_.beam == 1 || s_.full_beam || s_.ended < s_.n_best) return;
    const double worst = ended_[s_.n_best - 1].score, largest = std::max(penalty(s_, s_.length + 1), penalty(s_, s_.limit));
    for (std::int64_t place = 0; place < r_.beam; ++place)
      if (so_far()[place] / largest <= worst) {
        so_far()[place] = -INFINITY;
        r_.newest[number_ * r_.beam + place] = kReadsNothing;
      }
  }

  bool go_on(std::int64_t place, const Candidate& candidate) {
    const std::int64_t first = number_ * r_.beam;
    so_far()[place] = candidate.log_probability;
    r_.written[(number_ * r_.columns + s_.length) * r_.beam + place] = {candidate.place, candidate.symbol};
    r_.newest[first + place] = candidate.log_probability > -INFINITY ? candidate.symbol : kReadsNothing;
    r_.rows[first + place] = first + candidate.place;
    return candidate.place != place;
  }

  const Round& r_;
  std::int64_t number_;
  Searched& s_;
  Ended* ended_;
};

}  // namespace

void transduce::advance(Round& r, const Lists* lists, const std::int64_t* places) {
  static thread_local std::vector<float> values;
  static thread_local std::vector<std::int64_t> indices;
  static thread_local std::vector<Candidate> candidates;
  const std::int64_t vocabulary = lists ? lists->vocabulary : r.width;
  // Each hypothesis has one continuation that ends: so many leave a full beam of others.
  const std::int64_t count = std::min(2 * r.beam, r.beam * vocabulary);
  values.resize(r.sentences * count);
  indices.resize(r.sentences * count);
  candidates.resize(count);
  bool* must_end = r.certain;  // until the ranking is done
  for (std::int64_t i = 0; i < r.sentences; ++i) must_end[i] = Sentence(r, i).must_end();
  Ranking ranking{};
  ranking.logits = r.logits;
  ranking.places = places;
  ranking.so_far = r.so_far;
  ranking.sentences = r.sentences;
  ranking.beam = r.beam;
  ranking.width = r.width;
  ranking.banned = r.banned;
  ranking.bans = r.bans;
  ranking.must_end = must_end;
  ranking.end = r.end;
  ranking.count = count;
  ranking.which = r.which;
  ranking.first = r.first;
  ranking.choices = r.choices;
  ranking.kinds = r.kinds;
  ranking.values = values.data();
  ranking.indices = indices.data();
  rank_all(ranking, lists);
  r.done = r.moved = 0;
  r.not_a_number = std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
  if (r.not_a_number) return;
  for (std::int64_t i = 0; i < r.sentences; ++i) {
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t index = indices[i * count + k];
      candidates[k] = {values[i * count + k], static_cast<std::int32_t>(index / vocabulary), static_cast<std::int32_t>(index % vocabulary)};
    }
    Sentence sentence(r, i);
    r.moved |= sentence.write(candidates.data(), count);
    r.certain[i] = sentence.is_certain();
    r.done += r.certain[i];
  }
}

// The symbols of the best outputs of `count` sentences, of as many as each was asked for and `outputs` at most, each in `longest` places
// of `ids`.
TRANSDUCE_EXPORT read_outputs(const Round* round, const std::int64_t* sentences, std::int64_t count, std::int64_t outputs,
                              std::int64_t longest, std::int64_t* ids) {
  return guarded([=] {
    const Round& r = *round;
    for (std::int64_t i = 0; i < count; ++i) {
      require_index(sentences[i], r.sentences);
      const Searched& searched = r.searched[sentences[i]];
      require_index(searched.ended, r.most + 1);
      for (std::int64_t k = 0; k < std::min({outputs, searched.ended, searched.n_best}); ++k) {
        const Ended& output = r.ended[sentences[i] * r.most + k];
        require_index(output.length, std::min(r.columns, longest) + 1);
        std::int64_t place = output.place;
        for (std::int64_t t = output.length; t-- > 0;) {
          require_index(place, r.beam);
          const Written& written = r.written[(sentences[i] * r.columns + t) * r.beam + place];
          ids[(i * outputs + k) * longest + t] = written.symbol;
          place = written.place;
        }
      }
    }
  });
}

TRANSDUCE_EXPORT advance_beams(Round* round, const Lists* lists) {
  return guarded([=] { advance(*round, lists); });
}
