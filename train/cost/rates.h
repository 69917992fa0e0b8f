// Rates of collective operations: measured on a group of ranks, predicted for any number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/results/table.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// The Communicator operations whose time matters in training.
enum class Collective { sum, all_gather, sum_scatter, all_to_all, shift, broadcast, barrier };
inline constexpr std::array all_collectives = {
    Collective::sum,   Collective::all_gather, Collective::sum_scatter, Collective::all_to_all,
    Collective::shift, Collective::broadcast,  Collective::barrier};
/// Returns the name of the Communicator's function: "sum", "all_gather", ….
const char* name_of(Collective operation);
/// Parses the name of an operation. Throws DataError, naming `source`, for another name.
Collective collective_named(const std::string& name, const std::string& source);

/// Returns the bytes that a rank sends in one operation, as Communicator::traffic() counts them.
/// `bytes`: the larger of the rank's input and output tensors, at 4 bytes per element.
double bytes_sent(Collective operation, int64_t ranks, double bytes);

/// The duration of an operation: medians and quartiles over repetitions of the slowest rank's time.
struct CollectiveTime {
  Collective operation;
  int64_t ranks;
  int64_t bytes;
  double seconds, seconds_low, seconds_high;
  int64_t repetitions;
};

struct CollectiveBench {
  int64_t max_bytes = int64_t{1} << 24;  // largest tensor, at least least_bytes()
  double seconds = 0.05;                 // per operation and size, or five repetitions
  /// Called between measurements on every rank.
  std::function<void(int64_t done, int64_t all, Collective next)> on_progress = {};
};
/// Returns the size of the smallest measured tensor: one element per rank.
int64_t least_bytes(int64_t ranks);
/// Times every operation for tensors of least_bytes(), four times as much, and so on. Collective.
std::vector<CollectiveTime> measure_collectives(Communicator& ranks,
                                                const CollectiveBench& options);

/// A model of the times of one operation: latency + sent / bandwidth.
struct CollectiveRate {
  Collective operation;
  int64_t ranks;     // ranks of the measurement
  double latency;    // seconds for the smallest message
  double bandwidth;  // bytes per second; infinite for a barrier
  double error;      // mean relative deviation of the times from the line
};
/// Returns one rate per operation, in order of first appearance. The latency is the time of the
/// smallest message; the bandwidth minimises the sum of squared relative deviations.
std::vector<CollectiveRate> fit_rates(const std::vector<CollectiveTime>& times);

/// Converts rates to the table "rates" and back. Throws DataError, naming `source`, for others.
Table rate_table(const std::vector<CollectiveRate>& rates);
std::vector<CollectiveRate> rates_in(const Results& results, const std::string& source);

/// Predicts the time of operations between any number of ranks, following Thakur, Rabenseifner &
/// Gropp 2005 (doi 10.1177/1094342005051521). With L = ceil(log2 P), latency a of one message (the
/// measured one, divided by the L of that measurement), bandwidth b, and m bytes per pair of ranks:
///
///   all_gather               L a + (P - 1) m / b                         recursive doubling
///   all_to_all, sum_scatter  min((P - 1) (a + m / b), L (a + P m / 2b))  pairwise, or Bruck
///   sum                      an all_to_all and an all_gather of its parts; if small, an all_gather
///   shift                    a + m / b
///   broadcast                L (a + m / b)                               binomial tree
///   barrier                  L a
class Rates {
 public:
  /// Needs at least one rate per operation; several numbers of ranks are possible. Throws
  /// DataError, naming `source`, if an operation has none, and for invalid rates.
  Rates(std::vector<CollectiveRate> rates, std::string source);
  /// Returns the rates of a network with this latency and bandwidth for all operations.
  static Rates assumed(double latency, double bandwidth);

  /// Returns the seconds of an operation between `ranks`, with `bytes` as in bytes_sent(), by the
  /// rate measured with the logarithmically nearest number of ranks. 0 for one rank.
  double seconds(Collective operation, int64_t ranks, double bytes) const;
  const CollectiveRate& rate(Collective operation, int64_t ranks) const;
  /// The origin of the rates: a file, or "an assumed network of …".
  const std::string& source() const { return source_; }

 private:
  std::vector<CollectiveRate> rates_;
  std::string source_;
};

}  // namespace longhand::train
