// Sub-layers of training, one after the other, each in its residual (sections 3.1 and 5.4): by the kernels that they are made of, so that
// Python is asked once for all of them and not for each kernel. The plain formulas are those of the kernels' own files.
#include "sublayers.h"

#include <algorithm>
#include <vector>

#include "activation.h"
#include "guard.h"
#include "training.h"

using namespace transduce;

namespace {

// A kernel's own status, as the exception that it was.
void require(std::int32_t status) {
  if (status == kOutOfMemory) throw std::bad_alloc();
  if (status == kOutOfRange) throw std::out_of_range("index");
  if (status != kDone) throw std::runtime_error("kernel");
}

// Memory in parts, one behind the other; without memory they are counted alone.
class Room {
 public:
  explicit Room(char* start) : start_(start) {}

  template <typename T>
  T* take(std::int64_t numbers) {
    T* part = start_ ? reinterpret_cast<T*>(start_ + used_) : nullptr;
    used_ += (numbers * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }

  std::int64_t used() const { return used_; }

 private:
  char* start_;
  std::int64_t used_ = 0;
};

bool attends(const Sublayer& s) { return s.sequences.heads > 0; }
bool has_memory(const Sublayer& s) { return s.memory.width() > 0; }

// The activation that is part of the products around it.
Activation fused(const Sublayer& s) { return s.activation == kRelu && !s.gated ? kRelu : kIdentity; }
bool activates(const Sublayer& s) { return s.activation != kIdentity && fused(s) == kIdentity; }

// With the strides of what the maps write and read.
Sequences sequences_of(const Sublayer& s) {
  Sequences result = s.sequences;
  result.query_stride = s.before.width();
  result.key_stride = result.value_stride = has_memory(s) ? s.memory.width() : s.before.width();
  result.output_stride = s.after.inputs;
  return result;
}

// Where queries, keys and values begin, or their gradients.
struct Asked {
  Bfloat16 *q, *k, *v;

  Asked(const Sublayer& s, Bfloat16* projected, Bfloat16* remembered) : q(projected) {
    const std::int64_t keys = s.sequences.heads * s.sequences.d_k;
    k = has_memory(s) ? remembered : projected + keys;
    v = k + keys;
  }
};

// What a sub-layer leaves for its backward pass: the sum that was normalized, and its rows' means and deviations; the norm, which the
// maps read, or with post-norm what the next maps read; what the maps made, and attention, or what the activation and its dropout made.
struct Kept {
  float *sum, *statistics, *weights = nullptr;
  Bfloat16 *ready, *mapped, *remembered = nullptr, *activated, *last;

  // Written into what is given to the caller are the sum of the last sub-layer, or with post-norm its norm.
  Kept(Room& room, const Sublayers& r, std::int64_t number) {
    const Sublayer& s = r.all[number];
    const bool end = number == r.count - 1;
    sum = end && !r.post ? r.next_stream : room.take<float>(r.rows * r.d);
    statistics = room.take<float>(2 * r.rows);
    ready = end && r.post ? r.next_joined : room.take<Bfloat16>(r.rows * r.d);
    mapped = room.take<Bfloat16>(r.rows * s.before.width());
    if (attends(s)) {
      if (has_memory(s)) remembered = room.take<Bfloat16>(memory_rows(s) * s.memory.width());
      weights = room.take<float>(2 * s.sequences.heads * r.rows);
      activated = last = room.take<Bfloat16>(r.rows * s.after.inputs);
    } else {
      activated = activates(s) ? room.take<Bfloat16>(r.rows * s.after.inputs) : mapped;
      last = s.inside.active() ? room.take<Bfloat16>(r.rows * s.after.inputs) : activated;
    }
  }

  static std::int64_t memory_rows(const Sublayer& s) { return s.sequences.keys[s.sequences.batch]; }
};

class Forward {
 public:
  Forward(const Sublayers& r, Room room) : r_(r), room_(room), output_(room_.take<Bfloat16>(r.rows * r.d)) {}

  void run() {
    const float* stream = r_.stream;
    const Bfloat16* joined = r_.joined;
    const Dropout* pending = &r_.pending;
    float* coming = nullptr;  // what the next sub-layer's sum becomes holds the stream before it
    for (std::int64_t i = 0; i < r_.count; ++i) {
      const Sublayer& s = r_.all[i];
      const Kept kept(room_, r_, i);
      const bool end = i == r_.count - 1;
      if (r_.post) {
        transform(s, kept, joined, output_);
        if (end) {
          coming = r_.next_stream;
        } else {
          Room ahead = room_;
          coming = Kept(ahead, r_, i + 1).sum;
        }
        normalize(s, kept, stream, output_, coming, s.residual);
        stream = coming;
        joined = kept.ready;
      } else {
        normalize(s, kept, stream, joined, nullptr, *pending);
        Bfloat16* to = end ? r_.next_joined : output_;
        transform(s, kept, kept.ready, to);
        stream = kept.sum;
        joined = to;
        pending = &s.residual;
      }
    }
  }

 private:
  void normalize(const Sublayer& s, const Kept& kept, const float* x, const Bfloat16* output, float* wide, const Dropout& dropout) const {
    const AddNorm<Bfloat16> all{x, output, kept.sum, kept.ready, wide, kept.statistics, s.gain, s.bias, r_.rows, r_.d, s.epsilon};
    require(add_norm_bfloat16(&all, &dropout));
  }

  void map(const Bfloat16* x, const Maps& maps, Bfloat16* y, std::int64_t rows, Activation activation = kIdentity) const {
    require((r_.tiles ? map_rows_by_tiles : map_rows)(x, &maps, y, rows, activation));
  }

  void transform(const Sublayer& s, const Kept& kept, const Bfloat16* x, Bfloat16* y) const {
    map(x, s.before, kept.mapped, r_.rows, fused(s));
    if (attends(s)) {
      if (has_memory(s)) map(r_.memory, s.memory, kept.remembered, Kept::memory_rows(s));
      const Asked asked(s, kept.mapped, kept.remembered);
      const Sequences sequences = sequences_of(s);
      require(attention_bfloat16(asked.q, asked.k, asked.v, kept.last, kept.weights, &sequences, &s.inside));
    } else {
      const std::int64_t width = s.after.inputs;
      if (activates(s)) require(activate(kept.mapped, kept.activated, r_.rows, width, s.activation, s.gated));
      if (s.inside.active()) require(drop_bfloat16(kept.activated, kept.last, r_.rows, width, &s.inside));
    }
    map(kept.last, s.after, y, r_.rows);
  }

  const Sublayers& r_;
  Room room_;
  Bfloat16* output_;
};

// The most that any sub-layer's gradients need of one kind.
template <typename Size>
std::int64_t most(const Sublayers& r, Size size) {
  std::int64_t result = 0;
  for (std::int64_t i = 0; i < r.count; ++i) result = std::max(result, size(r.all[i]));
  return result;
}

class Backward {
 public:
  Backward(const Sublayers& r, const SublayersBackward& b, Room room) : r_(r), b_(b) {
    of_output_ = room.take<Bfloat16>(r.rows * r.d);
    of_ready_ = room.take<Bfloat16>(r.rows * r.d);
    of_last_ = room.take<Bfloat16>(r.rows * most(r, [](const Sublayer& s) { return s.after.inputs; }));
    of_mapped_ = room.take<Bfloat16>(r.rows * most(r, [](const Sublayer& s) { return s.before.width(); }));
    of_remembered_ = room.take<Bfloat16>(most(r, [](const Sublayer& s) { return has_memory(s) ? Kept::memory_rows(s) * s.memory.width() : 0; }));
    used_ = room.used();
  }

  std::int64_t used() const { return used_; }

  void run(const Kept* kept) {
    float* gradients = b_.of_parameters;
    for (std::int64_t i = 0; i < r_.count; ++i) gradients = lay_out(i, gradients);
    const float* of_stream = b_.of_next_stream;
    const Bfloat16* of_joined = b_.of_next_joined;
    for (std::int64_t i = r_.count - 1; i >= 0; --i) {
      const Sublayer& s = all_[i];
      if (r_.post) {
        normalize_back(i, kept[i], {nullptr, of_joined, of_stream}, of_output_, s.residual);
        Bfloat16* to = i ? of_ready_ : b_.of_joined;
        transform_back(s, kept[i], i ? kept[i - 1].ready : r_.joined, of_output_, to);
        of_joined = to;
      } else {
        transform_back(s, kept[i], kept[i].ready, of_joined, of_ready_);
        Bfloat16* to = i ? of_output_ : b_.of_joined;
        normalize_back(i, kept[i], {of_stream, of_ready_, nullptr}, to, i ? all_[i - 1].residual : r_.pending);
        of_joined = to;
      }
      of_stream = b_.of_stream;
    }
  }

 private:
  // Of the sum, and of the norm as products and as the stream read it; what is missing counts for nothing.
  struct Received {
    const float* of_sum;
    const Bfloat16* of_y;
    const float* of_wide;
  };

  // Where the gradients of a sub-layer's parameters are; behind the last of them is returned.
  float* lay_out(std::int64_t number, float* to) {
    Sublayer& s = all_[number] = r_.all[number];
    of_gain_[number] = to;
    std::fill_n(to, 2 * r_.d, 0.0f);  // where they are added up
    to += 2 * r_.d;
    for (Maps* maps : {&s.before, &s.memory, &s.after}) {
      for (int m = 0; m < Maps::kMost; ++m)
        if (maps->weights[m]) maps->of_weights[m] = to, to += maps->outputs[m] * maps->inputs;
      for (int m = 0; m < Maps::kMost; ++m)
        if (maps->biases[m]) maps->of_biases[m] = to, to += maps->outputs[m];
    }
    return to;
  }

  // In place, where the sum's gradient is the stream's behind it.
  void normalize_back(std::int64_t number, const Kept& kept, const Received& given, Bfloat16* of_output, const Dropout& dropout) const {
    float* of_gain = of_gain_[number];
    const AddNormBackward<Bfloat16> all{kept.sum,      kept.statistics, all_[number].gain, given.of_sum, given.of_y, given.of_wide,
                                        b_.of_stream, of_output,       of_gain,           of_gain + r_.d, r_.rows,   r_.d};
    require(add_norm_backward_bfloat16(&all, &dropout));
  }

  void map_back(const Bfloat16* gradient, const Bfloat16* x, const Maps& maps, Bfloat16* of_x, std::int64_t rows,
                Activation activation = kIdentity) const {
    require((r_.tiles ? map_rows_backward_by_tiles : map_rows_backward)(gradient, x, &maps, of_x, rows, 0, activation));
  }

  void transform_back(const Sublayer& s, const Kept& kept, const Bfloat16* x, const Bfloat16* gradient, Bfloat16* of_x) const {
    map_back(gradient, kept.last, s.after, of_last_, r_.rows, fused(s));
    const Bfloat16* of_mapped = of_mapped_;
    if (attends(s)) {
      const Asked asked(s, kept.mapped, kept.remembered), gradients(s, of_mapped_, of_remembered_);
      const Sequences sequences = sequences_of(s);
      require(attention_backward_bfloat16(asked.q, asked.k, asked.v, of_last_, kept.weights, gradients.q, gradients.k, gradients.v,
                                          &sequences, &s.inside));
      if (has_memory(s)) map_back(of_remembered_, r_.memory, s.memory, b_.of_memory, Kept::memory_rows(s));
    } else {
      const std::int64_t width = s.after.inputs;
      if (s.inside.active()) require(drop_bfloat16(of_last_, of_last_, r_.rows, width, &s.inside));
      if (activates(s)) {
        require(activate_backward(of_last_, kept.mapped, of_mapped_, r_.rows, width, s.activation, s.gated));
      } else {
        of_mapped = of_last_;
      }
    }
    map_back(of_mapped, x, s.before, of_x, r_.rows);
  }

  const Sublayers& r_;
  const SublayersBackward& b_;
  std::vector<Sublayer> all_ = std::vector<Sublayer>(r_.count);
  std::vector<float*> of_gain_ = std::vector<float*>(r_.count);
  Bfloat16 *of_output_, *of_ready_, *of_last_, *of_mapped_, *of_remembered_;
  std::int64_t used_;
};

}  // namespace

// How many bytes the forward pass keeps, and how many the backward pass needs beside them.
TRANSDUCE_EXPORT sublayers_room(const Sublayers* all, std::int64_t* to) {
  return guarded([=] {
    Room kept(nullptr);
    kept.take<Bfloat16>(all->rows * all->d);
    for (std::int64_t i = 0; i < all->count; ++i) Kept(kept, *all, i);
    to[0] = kept.used();
    const SublayersBackward nothing = {};
    to[1] = Backward(*all, nothing, Room(nullptr)).used();
  });
}

TRANSDUCE_EXPORT sublayers(const Sublayers* all) {
  return guarded([=] { Forward(*all, Room(all->kept)).run(); });
}

TRANSDUCE_EXPORT sublayers_backward(const Sublayers* all, const SublayersBackward* gradients) {
  return guarded([=] {
    Room room(all->kept);
    room.take<Bfloat16>(all->rows * all->d);
    std::vector<Kept> kept;
    for (std::int64_t i = 0; i < all->count; ++i) kept.emplace_back(room, *all, i);
    Backward(*all, *gradients, Room(gradients->room)).run(kept.data());
  });
}
