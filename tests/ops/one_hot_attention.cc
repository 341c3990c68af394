#include "tests/ops/one_hot_attention.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr ScorePattern kPatterns[] = {
    {"spread", [](int64_t, int64_t, Rng& rng) { return rng.uniform(-6.0, 0.0); }},
    {"equal", [](int64_t, int64_t, Rng&) { return 1.5; }},
    {"huge maximum last",
     [](int64_t j, int64_t n, Rng& rng) { return j == n - 1 ? 120.0 : rng.uniform(-4.0, 0.0); }},
    {"maximum grows along the context",
     [](int64_t j, int64_t n, Rng& rng) {
       return 8.0 * static_cast<double>(j) / static_cast<double>(n) + rng.uniform(-1.0, 1.0);
     }},
    {"maximum first",
     [](int64_t j, int64_t, Rng& rng) { return j == 0 ? 7.0 : rng.uniform(-2.0, 0.0); }},
    {"all very negative",
     [](int64_t, int64_t, Rng& rng) { return -700.0 - 4.0 * static_cast<double>(rng.below(3)); }},
    {"far apart", [](int64_t, int64_t, Rng& rng) { return rng.uniform(-90.0, 0.0); }},
    {"falls along the context",
     [](int64_t j, int64_t, Rng& rng) {
       return -0.01 * static_cast<double>(j) + rng.uniform(-1.0, 1.0);
     }},
};
constexpr int64_t kNumHeads = std::size(kPatterns);
constexpr int64_t kDim = OneHotAttention::kDim;
/// The key dim that a head looks at.
constexpr int64_t kDimsApart = 31;
static_assert(kNumHeads * kDimsApart < kDim);

size_t page_of(int64_t j) {
  return static_cast<size_t>(j / kKvPageTokens);
}

}  // namespace

std::span<const ScorePattern> score_patterns() {
  return kPatterns;
}

OneHotAttention::OneHotAttention(const OneHotContext& context)
    : context_(context),
      q_(static_cast<size_t>(context.num_rows * kNumHeads * kDim)),
      qg_(2 * q_.size(), to_bf16(64.0f)),  // sigmoid(64) is 1
      scores_(kNumHeads) {
  const int64_t num_pages = (context.length + kKvPageTokens - 1) / kKvPageTokens;
  for (int64_t page = num_pages; page > 0; --page) {
    table_.push_back(static_cast<int32_t>(page - 1));
  }
  cells_.resize(static_cast<size_t>(num_pages * kv().page_stride));
  Rng rng(static_cast<uint64_t>(context.length));
  for (int64_t h = 0; h < kNumHeads; ++h) {
    const int64_t dim = h * kDimsApart;
    for (int64_t j = 0; j < context.length; ++j) {
      const bf16 score = to_bf16(static_cast<float>(kPatterns[h].score(j, context.length, rng)));
      scores_[static_cast<size_t>(h)].push_back(static_cast<double>(to_float(score)));
      kv().k_row(table_[page_of(j)], 0, j % kKvPageTokens)[dim] = score;
    }
    for (int64_t r = 0; r < context.num_rows; ++r) {
      // sqrt(head_dim), which the scale takes back.
      q_[static_cast<size_t>((r * kNumHeads + h) * kDim + dim)] = to_bf16(16.0f);
    }
  }
}

std::vector<std::vector<bf16>> OneHotAttention::probabilities(const OpTable& table) {
  std::vector<std::vector<bf16>> p(static_cast<size_t>(context_.num_rows * kNumHeads));
  for (int64_t first = 0; first < context_.length; first += kDim) {
    const int64_t count = std::min(kDim, context_.length - first);
    set_values(first, count, to_bf16(1.0f));
    const std::vector<bf16> out = run(table);
    set_values(first, count, bf16{});
    for (size_t i = 0; i < p.size(); ++i) {
      const auto row = out.begin() + static_cast<std::ptrdiff_t>(i) * kDim;
      p[i].insert(p[i].end(), row, row + count);
    }
  }
  return p;
}

KvLayerView OneHotAttention::kv() {
  return {.data = cells_.data(),
          .page_stride = 2 * kKvPageTokens * kDim,
          .num_kv_heads = 1,
          .head_dim = kDim};
}

/// The i-th value of positions from `first` on is x.
void OneHotAttention::set_values(int64_t first, int64_t count, bf16 x) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = first + i;
    kv().v_row(table_[page_of(j)], 0, j % kKvPageTokens)[i] = x;
  }
}

std::vector<bf16> OneHotAttention::run(const OpTable& table) {
  std::vector<bf16> out(q_.size());
  const RowRun run{.num_rows = static_cast<int32_t>(context_.num_rows),
                   .position = static_cast<int32_t>(context_.length - context_.num_rows),
                   .page_table = table_.data()};
  OpSession session(2);
  OpContext context = session.context();
  table.attention({.shape = {.num_heads = kNumHeads, .num_kv_heads = 1, .head_dim = kDim},
                   .q = {q_.data(), context_.num_rows, kNumHeads * kDim},
                   .qg = {qg_.data(), context_.num_rows, 2 * kNumHeads * kDim},
                   .runs = {&run, 1},
                   .kv = kv(),
                   .out = {out.data(), context_.num_rows, kNumHeads * kDim}},
                  context);
  return out;
}

}  // namespace sluice
