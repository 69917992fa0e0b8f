#include "longhand/train/ranks/mpi.h"

#include <mpi.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/worker.h"

namespace longhand::train {
namespace {

/// Throws Error unless an MPI function succeeded.
void require(int result, const char* function) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(concat_message(function, " failed: ", text));
}

/// Converts to an MPI count, which is an int.
int count_of(int64_t elements) {
  check(elements <= std::numeric_limits<int>::max(), "MPI: a message of ", elements,
        " elements is too long, expected at most ", std::numeric_limits<int>::max());
  return static_cast<int>(elements);
}

/// The bytes of a contiguous tensor's elements.
struct Bytes {
  char* data;
  int64_t size;  // of one element
  MPI_Datatype type;
};

Bytes bytes_of(const Tensor& x) {
  check<ShapeError>(x.is_contiguous(),
                    "communicator: expected a contiguous tensor, got strides of ", x.shape());
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  const MPI_Datatype type = size == 8   ? MPI_INT64_T
                            : size == 4 ? MPI_INT32_T
                                        : MPI_UINT8_T;  // only copied, never summed
  return {static_cast<char*>(const_cast<void*>(x.address())), size, type};
}

}  // namespace

/// The thread that makes all MPI calls.
class Mpi::Engine {
 public:
  Engine() {
    call([] {
      prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default would triple the shortest sleep
      int started = 0, provided = 0;
      MPI_Initialized(&started);
      check(!started, "MPI: it was started before in this process");
      // hwloc, which Open MPI calls, would look for X displays on localhost. If /etc/hosts does not
      // list it, that search waits 5 s for a name server.
      setenv("HWLOC_COMPONENTS", "-gl", 0);
      require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
      require(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
    });
  }
  ~Engine() {
    try {
      call([] { MPI_Finalize(); });
    } catch (...) {  // nothing is left to do
    }
  }

  template <class F>
  std::future<void> start(F&& f) {
    return worker_.run(std::packaged_task<void()>(std::forward<F>(f)));
  }
  template <class F>
  void call(F&& f) {
    start(std::forward<F>(f)).get();
  }

  void report_late(double seconds, std::function<void(const std::vector<Late>&)> report) {
    call([&] {
      require(MPI_Comm_dup(MPI_COMM_WORLD, &signs_), "MPI_Comm_dup");
      MPI_Comm_rank(signs_, &rank_);
      int size = 0, length = 0;
      MPI_Comm_size(signs_, &size);
      std::vector<char> names(static_cast<size_t>(size) * MPI_MAX_PROCESSOR_NAME);
      char own[MPI_MAX_PROCESSOR_NAME] = {};
      MPI_Get_processor_name(own, &length);
      require(MPI_Allgather(own, sizeof own, MPI_CHAR, names.data(), sizeof own, MPI_CHAR, signs_),
              "MPI_Allgather");
      for (int rank = 0; rank < size; ++rank)
        hosts_.emplace_back(names.data() + static_cast<size_t>(rank) * sizeof own);
      seen_.assign(hosts_.size(), 0);
      interval_ = seconds / 2;
      report_ = std::move(report);
    });
  }

  // These run on the engine's thread.

  /// Sets the ranks of the world that take part in the operation waited for next.
  void set_members(const std::vector<int>& members) { members_ = &members; }

  /// Waits for requests. MPI_Wait would occupy a core, which others may need to compute.
  void complete(MPI_Request* requests, int count, const char* function) {
    const double begin = clock_seconds();
    double next_sign = interval_, next_report = 2 * interval_;
    for (;;) {
      int done = 0;
      require(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE), function);
      if (done) return;
      const double waited = clock_seconds() - begin;
      if (waited < 100e-6) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (!report_ || waited < std::min(interval_, 0.1)) continue;
      take_signs();
      if (waited > next_sign) {
        give_sign();
        next_sign += interval_;
      }
      if (waited > next_report) {
        report_those_missing(waited);
        next_report *= 2;
      }
    }
  }
  /// Starts an operation by call(&request) and waits for it.
  template <class Call>
  void complete(const char* function, Call call) {
    MPI_Request request;
    require(call(&request), function);
    complete(&request, 1, function);
  }

 private:
  // A waiting rank signals the others once per interval_, so a rank that sends no signal has been
  // stopped, or is computing.
  void give_sign() {
    static const char sign = 0;  // while it is sent
    for (const int rank : *members_) {
      if (rank == rank_) continue;
      MPI_Request request;
      require(MPI_Isend(&sign, 1, MPI_CHAR, rank, 0, signs_, &request), "MPI_Isend");
      MPI_Request_free(&request);
    }
  }
  void take_signs() {
    for (;;) {
      int found = 0;
      MPI_Status status;
      require(MPI_Iprobe(MPI_ANY_SOURCE, 0, signs_, &found, &status), "MPI_Iprobe");
      if (!found) return;
      char sign = 0;
      require(MPI_Recv(&sign, 1, MPI_CHAR, status.MPI_SOURCE, 0, signs_, MPI_STATUS_IGNORE),
              "MPI_Recv");
      seen_[static_cast<size_t>(status.MPI_SOURCE)] = clock_seconds();
    }
  }
  void report_those_missing(double waited) {
    std::vector<Late> late;
    for (const int rank : *members_) {
      const auto at = static_cast<size_t>(rank);
      const bool waits = clock_seconds() - seen_[at] < 1.5 * interval_;
      if (waits && rank < rank_) return;  // that rank reports
      if (!waits && rank != rank_) late.push_back({rank, hosts_[at], waited});
    }
    if (!late.empty()) report_(late);
  }

  MPI_Comm signs_ = MPI_COMM_NULL;
  int rank_ = 0;
  double interval_ = 0;
  std::function<void(const std::vector<Late>&)> report_{};
  std::vector<std::string> hosts_{};
  std::vector<double> seen_{};  // time of each rank's last sign
  const std::vector<int>* members_ = nullptr;
  Worker worker_;  // last, because its thread uses the other members
};

class Mpi::Group final : public Communicator {
 public:
  Group(std::shared_ptr<Engine> engine, MPI_Comm group, bool owned)
      : engine_(std::move(engine)), group_(group), owned_(owned) {
    engine_->call([&] {
      require(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
      require(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
      int own = 0;
      MPI_Comm_rank(MPI_COMM_WORLD, &own);
      members_.resize(static_cast<size_t>(size_));
      require(MPI_Allgather(&own, 1, MPI_INT, members_.data(), 1, MPI_INT, group_),
              "MPI_Allgather");
    });
  }
  ~Group() override {
    try {
      if (owned_) engine_->call([&] { MPI_Comm_free(&group_); });
    } catch (...) {
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::future<void> start_sum(Tensor x) override {
    if (size_ == 1) return {};
    return start("sum", [this, x = std::move(x)]() mutable { return sum_now(x); });
  }

  Tensor all_gather(const Tensor& x) override {
    if (size_ == 1) return x.unsqueeze(0);
    Tensor out = Tensor::empty(x.shape().with_axis(0, size_), x.dtype());
    now("all_gather", [&] { return gather_now(x, out); });
    return out;
  }

  Tensor sum_scatter(const Tensor& x) override {
    check_parts(x);
    if (size_ == 1) return x.select(0, 0);
    Tensor all = all_to_all(x), out = Tensor::empty(x.shape().without_axis(0), x.dtype());
    tree_sum(out, all);
    return out;
  }

  Tensor all_to_all(const Tensor& x) override {
    check_parts(x);
    if (size_ == 1) return x;
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    now("all_to_all", [&] { return exchange_now(x, out); });
    return out;
  }

  std::future<void> start_shift(Tensor x, Tensor out, int distance) override {
    const int to = modulo(rank_ + distance), from = modulo(rank_ - distance);
    if (to == rank_) {
      copy_into(out, x);
      return {};
    }
    return start("shift", [this, x = std::move(x), out = std::move(out), to, from] {
      const Bytes send = bytes_of(x), receive = bytes_of(out);
      const int count = count_of(x.numel());
      MPI_Request requests[2];
      require(MPI_Irecv(receive.data, count, receive.type, from, 0, group_, &requests[0]),
              "MPI_Irecv");
      require(MPI_Isend(send.data, count, send.type, to, 0, group_, &requests[1]), "MPI_Isend");
      engine_->complete(requests, 2, "MPI_Isend");
      return x.numel() * send.size;
    });
  }

  void broadcast(std::string& bytes) override {
    if (size_ == 1) return;
    now("broadcast", [&] {
      const auto send = [&](void* data, uint64_t count, MPI_Datatype type) {
        engine_->complete("MPI_Ibcast", [&](MPI_Request* request) {
          return MPI_Ibcast(data, static_cast<int>(count), type, 0, group_, request);
        });
      };
      uint64_t size = bytes.size();
      send(&size, 1, MPI_UINT64_T);
      bytes.resize(size);
      constexpr uint64_t most = uint64_t{1} << 30;
      for (uint64_t begin = 0; begin < size; begin += most)
        send(bytes.data() + begin, std::min(most, size - begin), MPI_CHAR);
      return rank_ == 0 ? static_cast<int64_t>(size) * (size_ - 1) : 0;
    });
  }

  std::vector<std::string> gather(const std::string& own) override {
    if (size_ == 1) return {own};
    std::vector<std::string> out;
    now("gather", [&] {
      Tensor length = Tensor::zeros({1}, DType::i64), lengths = Tensor::empty({size_}, DType::i64);
      *length.data<int64_t>() = std::ssize(own);
      gather_now(length, lengths);
      const int64_t* const n = lengths.data<int64_t>();
      const int64_t most = *std::max_element(n, n + size_);
      Tensor padded = Tensor::zeros({most}, DType::u8),
             all = Tensor::empty({size_, most}, DType::u8);
      std::ranges::copy(own, padded.data<uint8_t>());
      gather_now(padded, all);
      for (int64_t rank = 0; rank < size_; ++rank)
        out.emplace_back(reinterpret_cast<const char*>(all.data<uint8_t>()) + rank * most,
                         static_cast<size_t>(n[rank]));
      return std::ssize(own) * (size_ - 1);
    });
    return out;
  }

  void barrier() override {
    if (size_ == 1) return;
    now("barrier", [&] {
      engine_->complete("MPI_Ibarrier",
                        [&](MPI_Request* request) { return MPI_Ibarrier(group_, request); });
      return int64_t{0};
    });
  }

  std::unique_ptr<Communicator> split(int group) override {
    MPI_Comm part = MPI_COMM_NULL;
    engine_->call([&] {
      require(MPI_Comm_split(group_, group, rank_, &part), "MPI_Comm_split");
      require(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    });
    return std::make_unique<Group>(engine_, part, true);
  }

  void wait(std::future<void> operation) override {
    if (!operation.valid()) return;
    const double begin = clock_seconds();
    operation.wait();
    {
      const std::lock_guard lock(mutex_);
      traffic_.waited += clock_seconds() - begin;
    }
    operation.get();
  }

  Traffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }
  std::vector<Message> take_messages() override {
    const std::lock_guard lock(mutex_);
    keeps_messages_ = true;
    return std::exchange(messages_, {});
  }

 private:
  int modulo(int rank) const { return (rank % size_ + size_) % size_; }
  void check_parts(const Tensor& x) const {
    check<ShapeError>(x.rank() >= 1 && x.size(0) == size_,
                      "communicator: expected one part for each of ", size_, " ranks, (", size_,
                      ", …), got ", x.shape());
  }

  /// Starts an operation, which returns the bytes it has sent.
  template <class F>
  std::future<void> start(const char* name, F operation) {
    return engine_->start([this, name, operation = std::move(operation)]() mutable {
      const double begin = clock_seconds();
      engine_->set_members(members_);
      const int64_t bytes = operation();
      const std::lock_guard lock(mutex_);
      ++traffic_.operations;
      traffic_.bytes += bytes;
      const double end = clock_seconds();
      traffic_.seconds += end - begin;
      if (keeps_messages_) messages_.push_back({name, bytes, begin, end});
    });
  }
  template <class F>
  void now(const char* name, F operation) {
    wait(start(name, std::move(operation)));
  }

  // These run on the engine's thread.

  int64_t gather_now(const Tensor& x, const Tensor& out) {
    return distribute_now(MPI_Iallgather, "MPI_Iallgather", x, out, x.numel());
  }
  int64_t exchange_now(const Tensor& x, const Tensor& out) {
    return distribute_now(MPI_Ialltoall, "MPI_Ialltoall", x, out, x.numel() / size_);
  }
  /// Sends `elements` elements of x to each rank.
  int64_t distribute_now(decltype(MPI_Iallgather)* operation, const char* function, const Tensor& x,
                         const Tensor& out, int64_t elements) {
    const Bytes send = bytes_of(x), receive = bytes_of(out);
    const int count = count_of(elements);
    engine_->complete(function, [&](MPI_Request* request) {
      return operation(send.data, count, send.type, receive.data, count, receive.type, group_,
                       request);
    });
    return elements * send.size * (size_ - 1);
  }

  int64_t sum_now(Tensor& x) {
    const int64_t n = x.numel(), part = (n + size_ - 1) / size_;
    Tensor flat = x.reshape({n});
    // A few elements take the time of one message, regardless of their number.
    if (constexpr int64_t few = 1024; n <= few) {
      Tensor all = Tensor::empty({size_, n}, x.dtype());
      const int64_t bytes = gather_now(flat, all);
      tree_sum(flat, all);
      return bytes;
    }
    // Each rank sums one part of all tensors and passes on the sum.
    const bool whole = n == part * size_;
    Tensor padded = flat;
    if (!whole) {
      padded = Tensor::zeros({part * size_}, x.dtype());
      copy_into(padded.slice(0, 0, n), flat);
    }
    Tensor parts = Tensor::empty({size_, part}, x.dtype()), sum = Tensor::empty({part}, x.dtype());
    int64_t bytes = exchange_now(padded, parts);
    tree_sum(sum, parts);
    bytes += gather_now(sum, padded);
    if (!whole) copy_into(flat, padded.slice(0, 0, n));
    return bytes;
  }

  std::shared_ptr<Engine> engine_;
  MPI_Comm group_;
  bool owned_;
  int rank_ = 0, size_ = 1;
  std::vector<int> members_;  // their ranks in the world
  mutable std::mutex mutex_;
  Traffic traffic_;
  bool keeps_messages_ = false;
  std::vector<Message> messages_;
};

Mpi::Mpi()
    : engine_(std::make_shared<Engine>()),
      world_(std::make_unique<Group>(engine_, MPI_COMM_WORLD, false)) {}

Mpi::~Mpi() = default;

void Mpi::report_late(double seconds, std::function<void(const std::vector<Late>&)> report) {
  engine_->report_late(seconds, std::move(report));
}

Communicator& Mpi::world() { return *world_; }

void Mpi::abort(int code) {
  // From this thread, because the engine's may be waiting for another rank.
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();
}

std::string Mpi::version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace longhand::train
