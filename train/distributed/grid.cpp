#include "longhand/train/distributed/grid.h"

#include <unistd.h>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"

namespace longhand::train {

RankGrid::RankGrid() = default;
RankGrid::~RankGrid() = default;

bool RankGrid::leads() const { return world_->rank() == 0; }

RankGrid::RankGrid(Communicator& world, int64_t sequence_ranks, int64_t shards) : world_(&world) {
  const int64_t ranks = world.size();
  check<ConfigError>(ranks % sequence_ranks == 0, "train.sequence_ranks = ", sequence_ranks,
                     ": expected a divisor of the number of ranks, ", ranks);
  const int64_t rows = ranks / sequence_ranks;
  std::string possible;
  for (int64_t rows_of = 1; rows_of <= shards; rows_of *= 2)
    possible += (rows_of == 1        ? ""
                 : rows_of == shards ? " or "
                                     : ", ") +
                std::to_string(rows_of * sequence_ranks);
  check<ConfigError>(rows <= shards && shards % rows == 0, "train.shards = ", shards, ": ", ranks,
                     " ranks cannot share out that many parts of a batch; start ", possible,
                     shards == 1 ? " rank" : " ranks",
                     ", or begin a new run with another power of two as train.shards");
  if (ranks == 1) return;
  const int row = world.rank() / static_cast<int>(sequence_ranks),
            column = world.rank() % static_cast<int>(sequence_ranks);
  data_ = world.split(column);
  sequence_ = world.split(row);
}

std::string rank_name(int rank, const std::string& host) {
  return concat_message("rank ", rank, " on ", host);
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace longhand::train
