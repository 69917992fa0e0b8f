// The peak of memory since a point in time: see MemoryStats in storage.h.
#pragma once

namespace longhand {

/// Sets MemoryStats::peak to what is in use now, to measure the peak of what follows.
void reset_memory_peak();

}  // namespace longhand
