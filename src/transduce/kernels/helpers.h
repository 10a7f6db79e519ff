// Threads that lend a hand with a product, where the calling thread may use more cores than its own.
//
// Nobody waits for a thread that has no core: whoever is awake takes the next part. A team of OpenMP's waits at the end of every product for
// all of its threads, and beside other programs each of these for its turn on a core: there the search for one sentence, of some hundred
// products, took a hundred times as long.
#pragma once
#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

namespace transduce {

// Where OpenMP is told to bind its threads (OMP_PROC_BIND), it binds the first thread to one core, and whatever thread is made has its parent's:
// all that are not OpenMP's would share that core. The calling thread may run wherever OpenMP has a place.
inline void run_on_any_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    int of[CPU_SETSIZE];
    const int count = omp_get_place_num_procs(place);
    if (count > CPU_SETSIZE) return;  // a machine of more cores than this set can name
    omp_get_place_proc_ids(place, of);
    for (int i = 0; i < count; ++i)
      if (of[i] < CPU_SETSIZE) CPU_SET(of[i], &cores);
  }
  if (CPU_COUNT(&cores)) pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);  // else it is bound to none
}

// So many cores the calling thread may use; as long as nothing was said, as many as its operations in OpenMP.
inline std::int64_t& own_cores() {
  static thread_local std::int64_t cores = 0;
  return cores;
}
inline std::int64_t cores() { return own_cores() > 0 ? own_cores() : omp_get_max_threads(); }

class Helpers {
  using Clock = std::chrono::steady_clock;

 public:
  // Those of this process: made when first asked for, and never destroyed, as they may be at work when it ends.
  static Helpers& all() {
    static Helpers* const helpers = [] {
      auto* made = new Helpers;
      of_process() = made;
      // A fork leaves the child none of its threads, and whatever one of them held.
      pthread_atfork(nullptr, nullptr, [] { new (of_process()) Helpers; });
      return made;
    }();
    return *helpers;
  }

  // Calls work(i) once for every i below count, where work is what begin() gives: each thread that takes part begins for itself. There are at
  // most so many of them, with the caller.
  template <typename Begin>
  void share(std::int64_t count, std::int64_t threads, const Begin& begin) {
    const std::int64_t wanted = std::min({cores(), threads, kMost}) - 1;
    if (wanted < 1 || count < 2 || is_resting() || taken_.test_and_set(std::memory_order_acquire)) {
      auto work = begin();
      for (std::int64_t i = 0; i < count; ++i) work(i);
      return;
    }
    const std::uint64_t number = publish(count, wanted, &run<Begin>, &begin);
    const Claim first = claim(number, count);
    if (first.is_any) run<Begin>(*this, &begin, first, number, count);
    wait_for(count);
    taken_.clear(std::memory_order_release);
  }

 private:
  struct Claim {
    bool is_any;
    std::int64_t index;
  };
  using Run = void (*)(Helpers&, const void*, Claim, std::uint64_t, std::int64_t);

  static constexpr std::int64_t kMost = 16;           // threads, with the caller
  static constexpr std::uint64_t kNone = 0xffffffff;  // an index that is below no count
  static constexpr int kLook = 64;                    // looks between two at the clock, each a pause of the processor's
  static constexpr std::chrono::microseconds kAwake{1000};  // from one step of a search to the next
  static constexpr std::chrono::microseconds kLong{300};    // a part takes a few; the rest is a thread that has lost its core
  static constexpr std::chrono::milliseconds kRest{50};     // without helpers, then

  static Helpers*& of_process() {
    static Helpers* helpers = nullptr;
    return helpers;
  }

  // What one thread does: parts until none is left.
  template <typename Begin>
  static void run(Helpers& self, const void* begin, Claim next, std::uint64_t number, std::int64_t count) {
    std::int64_t done = 0;
    {
      auto work = (*static_cast<const Begin*>(begin))();
      for (; next.is_any; next = self.claim(number, count), ++done) work(next.index);
    }  // tiles put down their last part
    self.finished_.fetch_add(done, std::memory_order_acq_rel);
  }

  // The ticket is the number of what is shared out, and the next part of it. Its upper half is odd while the caller writes
  // down what that is: whoever has read a part of it fails to claim any. So three things must stay as they are: the fields are written while
  // the number is odd and at no other time; whoever takes part reads the number before any of them; and what was read counts
  // only if a claim with that number succeeds.
  std::uint64_t publish(std::int64_t count, std::int64_t wanted, Run run, const void* begin) {
    while (threads_ < wanted && add_thread()) {
    }
    const std::uint64_t number = ((ticket_.load(std::memory_order_relaxed) >> 32) + 2) & 0xffffffff;
    ticket_.store((number - 1) << 32 | kNone);
    finished_.store(0);
    count_.store(count);
    wanted_.store(wanted);
    run_.store(run);
    begin_.store(begin);
    ticket_.store(number << 32);
    if (sleeping_.load() > 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      awake_.notify_all();
    }
    return number;
  }

  Claim claim(std::uint64_t number, std::int64_t count) {
    std::uint64_t ticket = ticket_.load();
    do {
      if (ticket >> 32 != number || static_cast<std::int64_t>(ticket & kNone) >= count) return {false, 0};
    } while (!ticket_.compare_exchange_weak(ticket, ticket + 1));
    return {true, static_cast<std::int64_t>(ticket & kNone)};
  }

  // For parts that others are at. One that has lost its core has to get it back: then helpers do without for a while.
  void wait_for(std::int64_t count) {
    Clock::time_point began;
    for (int looks = 0; finished_.load() < count; ++looks) {
      _mm_pause();
      if (looks % kLook != kLook - 1) continue;
      if (looks == kLook - 1) began = Clock::now();
      if (Clock::now() - began < kLong) continue;
      rest_until_.store((Clock::now() + kRest).time_since_epoch().count(), std::memory_order_relaxed);
      std::this_thread::yield();
    }
  }

  bool is_resting() {
    const auto until = rest_until_.load(std::memory_order_relaxed);
    if (until == 0) return false;
    if (Clock::now().time_since_epoch().count() < until) return true;
    rest_until_.store(0, std::memory_order_relaxed);
    return false;
  }

  // By the thread that has taken all of this. Whether there is one more.
  bool add_thread() {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);  // signals are for the threads that know of them
    bool is_there = true;
    try {
      std::thread([this, me = threads_] { help(me); }).detach();
      ++threads_;
    } catch (...) {  // no thread, or no memory for one
      is_there = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_there;
  }

  [[noreturn]] void help(std::int64_t me) {
    pthread_setname_np(pthread_self(), "product helper");  // for whoever looks at threads
    run_on_any_core();
    auto idle_since = Clock::now();
    for (unsigned looks = 0;; ++looks) {
      if (take_part(me)) {
        idle_since = Clock::now();
        looks = 0;
        continue;
      }
      _mm_pause();
      if (looks % kLook != kLook - 1) continue;
      if (Clock::now() - idle_since < kAwake) {
        std::this_thread::yield();  // to whoever wants this core
        continue;
      }
      sleep();
      idle_since = Clock::now();
    }
  }

  bool take_part(std::int64_t me) {
    const std::uint64_t number = ticket_.load() >> 32;
    const std::int64_t count = count_.load();
    if (me >= wanted_.load()) return false;
    const Run run = run_.load();
    const void* begin = begin_.load();
    const Claim first = claim(number, count);  // so all that was read is of this number
    if (first.is_any) run(*this, begin, first, number, count);
    return first.is_any;
  }

  // Until something more is shared out.
  void sleep() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t number = ticket_.load() >> 32;
    ++sleeping_;
    awake_.wait(lock, [&] { return ticket_.load() >> 32 != number; });
    --sleeping_;
  }

  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;  // by a caller: there is one at a time, and others work alone
  std::int64_t threads_ = 0;                   // whoever has taken it may read and change this
  alignas(64) std::atomic<std::uint64_t> ticket_{kNone};
  std::atomic<std::int64_t> count_{0}, wanted_{0};
  std::atomic<Run> run_{nullptr};
  std::atomic<const void*> begin_{nullptr};
  alignas(64) std::atomic<std::int64_t> finished_{0};
  std::atomic<Clock::rep> rest_until_{0};
  std::mutex mutex_;
  std::condition_variable awake_;
  std::atomic<int> sleeping_{0};
};

}  // namespace transduce
