// Rates of collective operations: measured on the ranks of a group, predicted for any number of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/report/table.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// The operations of a Communicator whose time matters in training.
enum class Collective { sum, all_gather, sum_scatter, all_to_all, shift, broadcast, barrier };
inline constexpr std::array all_collectives = {
    Collective::sum,   Collective::all_gather, Collective::sum_scatter, Collective::all_to_all,
    Collective::shift, Collective::broadcast,  Collective::barrier};
/// "sum", "all_gather", …: the names of Communicator's functions.
const char* name_of(Collective operation);
/// Throws DataError, naming `source`, for another name.
Collective collective_named(const std::string& name, const std::string& source);

/// Bytes that a rank sends in one operation, as Communicator::traffic() counts them. `bytes` are those of
/// the larger one of the tensors that the rank gives and gets, of 4 bytes an element.
double bytes_sent(Collective operation, int64_t ranks, double bytes);

/// How long an operation takes: medians and quartiles over repetitions of the time of the slowest rank.
struct CollectiveTime {
  Collective operation;
  int64_t ranks;
  int64_t bytes;
  double seconds, seconds_low, seconds_high;
  int64_t repetitions;
};

struct CollectiveBench {
  int64_t max_bytes = int64_t{1} << 24;  // of a tensor, at least least_bytes()
  double seconds = 0.05;                 // for each operation and size, or five repetitions
  /// Called between measurements on every rank.
  std::function<void(int64_t done, int64_t all, Collective next)> on_progress = {};
};
/// The smallest tensor that is measured: one element for each rank.
int64_t least_bytes(int64_t ranks);
/// Times every operation for tensors of least_bytes(), four times as much, and so on. Collective.
std::vector<CollectiveTime> measure_collectives(Communicator& ranks,
                                                const CollectiveBench& options);

/// What the times of one operation follow: latency + sent / bandwidth.
struct CollectiveRate {
  Collective operation;
  int64_t ranks;     // with which it was measured
  double latency;    // seconds of the smallest message
  double bandwidth;  // bytes per second; infinite for a barrier
  double error;      // mean relative deviation of the times from the line
};
/// One for each operation, in order of first appearance. The latency is the time of the smallest message;
/// the bandwidth minimises the sum of the squares of relative deviations.
std::vector<CollectiveRate> fit_rates(const std::vector<CollectiveTime>& times);

/// The rates as a table of results, "rates", and back. Throws DataError, naming `source`, for other results.
Table rate_table(const std::vector<CollectiveRate>& rates);
std::vector<CollectiveRate> rates_in(const Results& results, const std::string& source);

/// Predicts times of operations between any number of ranks. With L = ceil(log2 P), the latency a of
/// one message (the measured one, divided by the L of that measurement), bandwidth b, and m bytes for each
/// pair of ranks, as Thakur, Rabenseifner & Gropp 2005 (doi 10.1177/1094342005051521) have them:
///
///   all_gather               L a + (P - 1) m / b                         recursive doubling
///   all_to_all, sum_scatter  min((P - 1) (a + m / b), L (a + P m / 2b))  pairwise, or Bruck
///   sum                      an all_to_all and an all_gather of its parts; an all_gather if it is small
///   shift                    a + m / b
///   broadcast                L (a + m / b)                               binomial tree
///   barrier                  L a
class Rates {
 public:
  /// At least one for each operation; several numbers of ranks are possible. Throws DataError, naming
  /// `source`, if an operation has none, and for values that are no rates.
  Rates(std::vector<CollectiveRate> rates, std::string source);
  /// A network of this latency and bandwidth, the same for all operations.
  static Rates assumed(double latency, double bandwidth);

  /// Seconds of an operation between `ranks`, with `bytes` as in bytes_sent(). The rate is the one that
  /// was measured with the number of ranks nearest to this, in logarithms. 0 for one rank.
  double seconds(Collective operation, int64_t ranks, double bytes) const;
  const CollectiveRate& rate(Collective operation, int64_t ranks) const;
  /// What they are from: a file, or "an assumed network of …".
  const std::string& source() const { return source_; }

 private:
  std::vector<CollectiveRate> rates_;
  std::string source_;
};

}  // namespace longhand::train
