// What a kernel says when it cannot do its work: no exception may leave a library that C calls, or a parallel region.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>

namespace transduce {

// native.py turns these into Python's exceptions.
enum Status : std::int32_t { kDone = 0, kOutOfMemory = 1, kOutOfRange = 2, kFailed = 3 };

// A number that is read as an index (a symbol's id, a slot, a length) has to lie in [0, end).
inline void require_index(std::int64_t index, std::int64_t end) {
  if (index < 0 || index >= end) throw std::out_of_range("index");
}

// The body of an exported function.
template <typename Body>
std::int32_t guarded(Body body) noexcept {
  try {
    body();
    return kDone;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::length_error&) {  // a vector longer than any memory
    return kOutOfMemory;
  } catch (const std::out_of_range&) {
    return kOutOfRange;
  } catch (...) {
    return kFailed;
  }
}

// The first exception of a parallel region, kept for the thread that began it.
class Caught {
 public:
  template <typename Body>
  void operator()(Body body) noexcept {
    try {
      body();
    } catch (...) {
      if (!taken_.test_and_set()) first_ = std::current_exception();
    }
  }

  // Behind the region.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;
  std::exception_ptr first_;
};

}  // namespace transduce

// An exported function: its status is a Status.
#define TRANSDUCE_EXPORT extern "C" __attribute__((visibility("default"))) std::int32_t
