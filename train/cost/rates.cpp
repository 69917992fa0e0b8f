#include "longhand/train/cost/rates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/statistics.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::train {
namespace {

constexpr std::array names = {"sum",   "all_gather", "sum_scatter", "all_to_all",
                              "shift", "broadcast",  "barrier"};
constexpr double element = 4;           // bytes
constexpr double small_sum = 1024 * 4;  // up to this size, a sum is one all_gather: see mpi.cpp

/// Returns the number of rounds in which every rank can reach every other.
double rounds(int64_t ranks) {
  double out = 0;
  for (int64_t reached = 1; reached < ranks; reached *= 2) ++out;
  return out;
}

/// Returns an operation on tensors of a size, ready to be repeated.
std::function<void()> operation_on(Communicator& ranks, Collective operation, int64_t bytes) {
  const int64_t P = ranks.size(), n = bytes / 4;
  switch (operation) {
    case Collective::sum:
      // Zeros stay zeros.
      return [&ranks, x = Tensor::full({n}, 0)]() mutable { ranks.sum(x); };
    case Collective::all_gather:
      return [&ranks, x = Tensor::full({n / P}, 1)] { ranks.all_gather(x); };
    case Collective::sum_scatter:
      return [&ranks, x = Tensor::full({P, n / P}, 1)] { ranks.sum_scatter(x); };
    case Collective::all_to_all:
      return [&ranks, x = Tensor::full({P, n / P}, 1)] { ranks.all_to_all(x); };
    case Collective::shift:
      return [&ranks, x = Tensor::full({n}, 1)] { ranks.shift(x, 1); };
    case Collective::broadcast:
      return [&ranks, text = std::string(static_cast<size_t>(bytes), 'x')]() mutable {
        ranks.broadcast(text);
      };
    case Collective::barrier:
      return [&ranks] { ranks.barrier(); };
  }
  return {};
}

/// Returns the seconds of the slowest rank in each of these repetitions, which start together.
std::vector<double> repeat(Communicator& ranks, int64_t repetitions,
                           const std::function<void()>& operation) {
  std::vector<double> own;
  for (int64_t i = 0; i < repetitions; ++i) {
    ranks.barrier();
    const double begin = clock_seconds();
    operation();
    own.push_back(clock_seconds() - begin);
  }
  const std::vector<double> all =
      ranks.all_gather(Tensor::from(own, {repetitions})).to_vector<double>();
  std::vector<double> slowest = own;
  for (size_t i = 0; i < all.size(); ++i)
    slowest[i % own.size()] = std::max(slowest[i % own.size()], all[i]);
  return slowest;
}

CollectiveTime measure(Communicator& ranks, const CollectiveBench& options, Collective operation,
                       int64_t bytes) {
  constexpr int64_t warm_up = 2, fewest = 5, most = 1000;
  const std::function<void()> run = operation_on(ranks, operation, bytes);
  // Equal on all ranks, so that they agree on the number of repetitions.
  const double first = quantile(repeat(ranks, warm_up + 1, run), 0);
  const auto repetitions =
      static_cast<int64_t>(std::clamp<double>(options.seconds / first, fewest, most));
  const std::vector<double> seconds = repeat(ranks, repetitions, run);
  return {operation,
          ranks.size(),
          bytes,
          quantile(seconds, 0.5),
          quantile(seconds, 0.25),
          quantile(seconds, 0.75),
          repetitions};
}

/// Returns the bytes that leave a rank serially, to which the bandwidth refers.
double serial_bytes(const CollectiveTime& t) {
  const auto bytes = static_cast<double>(t.bytes);
  return t.operation == Collective::broadcast ? bytes * rounds(t.ranks)
                                              : bytes_sent(t.operation, t.ranks, bytes);
}

}  // namespace

const char* name_of(Collective operation) { return names[static_cast<size_t>(operation)]; }

Collective collective_named(const std::string& name, const std::string& source) {
  const auto found = std::ranges::find(names, name);
  check<DataError>(found != names.end(), source, ": unknown operation \"", name,
                   "\", expected one of ", fmt::format("{}", fmt::join(names, ", ")));
  return all_collectives[static_cast<size_t>(found - names.begin())];
}

double bytes_sent(Collective operation, int64_t ranks, double bytes) {
  const auto others = static_cast<double>(ranks - 1);
  if (operation == Collective::barrier || ranks == 1) return 0;
  if (operation == Collective::shift) return bytes;
  if (operation == Collective::broadcast) return others * bytes;  // of rank 0
  if (operation == Collective::sum && bytes <= small_sum) return others * bytes;
  const double part = std::ceil(bytes / element / static_cast<double>(ranks)) * element;
  return (operation == Collective::sum ? 2 : 1) * others * part;
}

int64_t least_bytes(int64_t ranks) { return 4 * ranks; }

std::vector<CollectiveTime> measure_collectives(Communicator& ranks,
                                                const CollectiveBench& options) {
  const int64_t least = least_bytes(ranks.size());
  check<ConfigError>(options.max_bytes >= least, "bench: max_bytes = ", options.max_bytes,
                     ", expected at least ", least, ", one element for each of ", ranks.size(),
                     " ranks");
  std::vector<std::pair<Collective, int64_t>> planned;
  for (const Collective operation : all_collectives)
    if (operation == Collective::barrier)
      planned.emplace_back(operation, 0);
    else
      for (int64_t bytes = least; bytes <= options.max_bytes; bytes *= 4)
        planned.emplace_back(operation, bytes);
  std::vector<CollectiveTime> out;
  for (const auto& [operation, bytes] : planned) {
    if (options.on_progress) options.on_progress(std::ssize(out), std::ssize(planned), operation);
    out.push_back(measure(ranks, options, operation, bytes));
  }
  return out;
}

std::vector<CollectiveRate> fit_rates(const std::vector<CollectiveTime>& times) {
  std::vector<CollectiveRate> out;
  for (const auto& own : in_groups(times, [](const auto& each) { return each.operation; })) {
    const double latency = std::ranges::min(own, {}, &CollectiveTime::bytes)->seconds;
    // Minimises the sum of ((t - latency - x b) / t)² over x = 1 / bandwidth.
    double with_rest = 0, squares = 0, fastest = 0;
    for (const CollectiveTime* const t : own) {
      const double b = serial_bytes(*t) / t->seconds;
      with_rest += b * (1 - latency / t->seconds);
      squares += b * b;
      fastest = std::max(fastest, b);
    }
    double inverse = squares > 0 ? with_rest / squares : 0;
    // Times that do not grow with the size still bound the bandwidth from below.
    if (inverse <= 0 && squares > 0) inverse = 1 / fastest;
    double error = 0;
    for (const CollectiveTime* const t : own)
      error += std::abs((latency + inverse * serial_bytes(*t)) / t->seconds - 1);
    out.push_back({own[0]->operation, own[0]->ranks, latency, 1 / inverse,
                   error / static_cast<double>(own.size())});
  }
  return out;
}

Table rate_table(const std::vector<CollectiveRate>& rates) {
  Table table{
      "rates", "Latency and bandwidth of each operation",
      "Time = latency + bytes sent by a rank / bandwidth. The latency is the time of the smallest "
      "message; deviation is the mean distance of all measured times from that line."};
  for (const CollectiveRate& r : rates)
    add_row(table,
            {{"operation", name_of(r.operation)},
             {"ranks", r.ranks},
             {"latency_us", 1e6 * r.latency, "latency (us)", 3},
             {"gb_per_second", std::isfinite(r.bandwidth) ? Cell(1e-9 * r.bandwidth) : Cell(),
              "bandwidth (GB/s)", 3},
             {"deviation", 1e2 * r.error, "deviation (%)", 2}});
  return table;
}

std::vector<CollectiveRate> rates_in(const Results& results, const std::string& source) {
  const auto found = std::ranges::find(results.tables, "rates", &Table::name);
  check<DataError>(results.kind == "bench comm" && found != results.tables.end(), source,
                   ": expected results of longhand-mpi bench comm, got those of ", results.kind);
  // Integral values may have been read as integers.
  const auto number = [&](const Cell& cell) {
    check<DataError>(!std::holds_alternative<std::string>(cell), source,
                     ": expected a number in the table rates, got text");
    return number_in(cell).value_or(std::numeric_limits<double>::infinity());
  };
  std::vector<CollectiveRate> out;
  for (const std::vector<Cell>& row : found->rows) {
    const auto cell = [&](const char* name) { return row[found->column(name)]; };
    const auto operation = cell("operation");
    const auto* const name = std::get_if<std::string>(&operation);
    check<DataError>(name, source, ": expected the name of an operation in the table rates");
    out.push_back({collective_named(*name, source),
                   static_cast<int64_t>(std::clamp(number(cell("ranks")), 0.0, 1e9)),
                   1e-6 * number(cell("latency_us")), 1e9 * number(cell("gb_per_second")),
                   1e-2 * number(cell("deviation"))});
  }
  return out;
}

Rates::Rates(std::vector<CollectiveRate> rates, std::string source)
    : rates_(std::move(rates)), source_(std::move(source)) {
  for (const Collective operation : all_collectives)
    check<DataError>(std::ranges::any_of(
                         rates_, [&](const CollectiveRate& r) { return r.operation == operation; }),
                     source_, ": has no rate of ", name_of(operation));
  for (const CollectiveRate& r : rates_)
    check<DataError>(r.ranks >= 2 && r.latency > 0 && std::isfinite(r.latency) && r.bandwidth > 0,
                     source_, ": the rate of ", name_of(r.operation), " is a latency of ",
                     r.latency, " s and a bandwidth of ", r.bandwidth, " bytes/s between ", r.ranks,
                     " ranks, expected both above 0, and at least 2 ranks");
}

Rates Rates::assumed(double latency, double bandwidth) {
  std::vector<CollectiveRate> rates;
  for (const Collective operation : all_collectives)
    rates.push_back(
        {operation, 2, latency,
         operation == Collective::barrier ? std::numeric_limits<double>::infinity() : bandwidth,
         0});
  return {std::move(rates), concat_message("an assumed network of ", latency * 1e6, " us and ",
                                           bandwidth * 1e-9, " GB/s")};
}

const CollectiveRate& Rates::rate(Collective operation, int64_t ranks) const {
  const CollectiveRate* nearest = nullptr;
  const auto distance = [&](const CollectiveRate& r) {
    return std::abs(std::log(static_cast<double>(ranks) / static_cast<double>(r.ranks)));
  };
  for (const CollectiveRate& r : rates_)
    if (r.operation == operation && (!nearest || distance(r) < distance(*nearest))) nearest = &r;
  return *nearest;
}

double Rates::seconds(Collective operation, int64_t ranks, double bytes) const {
  if (ranks == 1) return 0;
  const CollectiveRate& r = rate(operation, ranks);
  const double P = static_cast<double>(ranks), L = rounds(ranks), b = r.bandwidth;
  const double a = operation == Collective::shift ? r.latency : r.latency / rounds(r.ranks);
  const auto gather = [&](double m) { return L * a + (P - 1) * m / b; };
  const auto exchange = [&](double m) {
    return std::min((P - 1) * (a + m / b), L * (a + P * m / (2 * b)));
  };
  switch (operation) {
    case Collective::sum:
      return bytes <= small_sum ? gather(bytes) : exchange(bytes / P) + gather(bytes / P);
    case Collective::all_gather:
      return gather(bytes / P);
    case Collective::sum_scatter:
    case Collective::all_to_all:
      return exchange(bytes / P);
    case Collective::shift:
      return a + bytes / b;
    case Collective::broadcast:
      return L * (a + bytes / b);
    case Collective::barrier:
      return L * a;
  }
  return 0;
}

}  // namespace longhand::train
