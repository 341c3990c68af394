#pragma once
// Spreading the rows of a cheap op over the pool, or not.

#include <algorithm>

#include "ops/cpu/vec.h"
#include "ops/op_context.h"

namespace sluice::SLUICE_CPU_NS {

/// Elements of an elementwise op below which the caller does them alone: a fork and join costs about
/// as much (some microseconds, estimated).
inline constexpr int64_t kInlineElements = 32'768;

/// fn(row) for every row; a row's work is `row_elements`.
template <typename Fn>
void for_each_row(OpContext& context, int64_t num_rows, int64_t row_elements, Fn fn) {
  const int64_t block = std::max<int64_t>(1, kInlineElements / 2 / row_elements);
  if (num_rows * row_elements <= kInlineElements) {
    for (int64_t r = 0; r < num_rows; ++r) fn(r);
    return;
  }
  context.pool->parallel_for((num_rows + block - 1) / block, [&](int64_t task, int) {
    const int64_t end = std::min(num_rows, (task + 1) * block);
    for (int64_t r = task * block; r < end; ++r) fn(r);
  });
}

/// fn(i, n) over [0, count) in steps of kLanes; n is kLanes but in the last.
template <typename Fn>
void for_each_vec(int64_t count, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) fn(i, kLanes);
  if (i < count) fn(i, count - i);
}

template <typename T>
Vec load_upto(const T* p, int64_t n) {
  return n == kLanes ? load(p) : load_first(p, n);
}
template <typename T>
void store_upto(T* p, Vec x, int64_t n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_first(p, x, n);
  }
}

/// Sum of squares, in an order that depends on `count` alone.
inline float sum_of_squares(const bf16* x, int64_t count) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t u = 0; u < 4; ++u) {
      const Vec v = load(x + i + u * kLanes);
      sums[u] = fma(v, v, sums[u]);
    }
  }
  for_each_vec(count - i, [&](int64_t at, int64_t n) {
    const Vec v = load_upto(x + i + at, n);
    sums[0] = fma(v, v, sums[0]);
  });
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

inline float inverse_rms(const bf16* x, int64_t count, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, count) / static_cast<float>(count) + eps);
}

}  // namespace sluice::SLUICE_CPU_NS
