#include "longhand/core/measure/multiply_adds.h"

#include "longhand/core/error.h"

namespace longhand {

MultiplyAdds::MultiplyAdds() {
  check(!detail::counts_multiply_adds.exchange(true),
        "multiply-adds: expected one count at a time, but another is in progress");
  detail::multiply_adds = 0;
}

MultiplyAdds::~MultiplyAdds() { detail::counts_multiply_adds = false; }

int64_t MultiplyAdds::count() const { return detail::multiply_adds; }

}  // namespace longhand
