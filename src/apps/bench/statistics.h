#pragma once

#include <algorithm>
#include <vector>

namespace sluice {

/// The value that a share `q` (0 to 1) of the others does not exceed, nearest rank. Pre: not empty.
inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace sluice
