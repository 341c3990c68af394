#include "tests/ops/attention_case.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

// attn_prepare: norm, two products, their sum: four roundings, and the sum may cancel.
constexpr Tolerance kPrepared{.ulps = 2, .floor = 0.01, .mismatch = 0.004};
constexpr Tolerance kCopied{.ulps = 0, .mismatch = 0.0};
// attention: when the fp32 sum of a score rounds the other way, that score moves by 2^-8 of itself,
// and its probability by as much as 2 %.
constexpr Tolerance kAttended{.ulps = 2, .floor = 0.01, .mismatch = 0.06};

/// A pool of pages, a table of them per run (shuffled, no page shared), and the cells of positions
/// not yet reached left as poison.
struct Cache {
  TensorRef<bf16> pool = {};
  TensorRef<int32_t> tables = {};
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  KvLayerView view(World& world) const {
    const MatView<bf16> pages = world.mat(pool);
    return {.data = pages.data,
            .page_stride = pages.stride,
            .num_kv_heads = kv_heads,
            .head_dim = head_dim};
  }
};

int64_t num_pages(const RowRun& run) {
  return (run.position + run.num_rows + kKvPageTokens - 1) / kKvPageTokens;
}

Cache add_cache(OpCase& c, const AttnCase& p, Rng& rng) {
  int64_t max_pages = 0;
  int64_t total = 2;  // pages of nobody
  for (const RowRun& run : c.runs) {
    max_pages = std::max(max_pages, num_pages(run));
    total += num_pages(run);
  }
  std::vector<int32_t> order(static_cast<size_t>(total));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(rng.below(static_cast<int64_t>(i) + 1))]);
  }
  Cache cache{.kv_heads = p.kv_heads, .head_dim = p.head_dim};
  cache.pool = c.world.add<bf16>("pages", total, 2 * p.kv_heads * kKvPageTokens * p.head_dim, 64);
  cache.tables =
      c.world.add<int32_t>("page tables", static_cast<int64_t>(c.runs.size()), max_pages);
  size_t next = 0;
  for (size_t i = 0; i < c.runs.size(); ++i) {
    int32_t* table = c.world.mat(cache.tables).row(static_cast<int64_t>(i));
    for (int64_t page = 0; page < num_pages(c.runs[i]); ++page) table[page] = order[next++];
    c.runs[i].slot = static_cast<int32_t>(i);  // finds the table again in any copy of the world
  }
  return cache;
}

/// Pointers into this copy of the world.
std::vector<RowRun> with_tables(World& world, const Cache& cache, std::vector<RowRun> runs) {
  for (RowRun& run : runs) run.page_table = world.mat(cache.tables).row(run.slot);
  return runs;
}

void add_runs(OpCase& c, const AttnCase& p) {
  c.name = fmt::format("heads={}:{} dim={} rotary={} magnitude={} pad={}", p.heads, p.kv_heads,
                       p.head_dim, p.rotary_dim, p.magnitude, p.pad);
  int32_t rows = 0;
  for (const AttnRun& r : p.runs) {
    c.runs.push_back({.first_row = rows, .num_rows = r.rows, .position = r.position});
    rows += r.rows;
    c.name += fmt::format(" [{}, +{})", r.position, r.rows);
  }
}

template <typename Visit>
void for_each_cell(World& world, const Cache& cache, const RowRun& run, int64_t first, int64_t last,
                   Visit visit) {
  const int32_t* table = world.mat(cache.tables).row(run.slot);
  const KvLayerView kv = cache.view(world);
  for (int64_t p = first; p < last; ++p) {
    const int32_t page = table[p / kKvPageTokens];
    for (int64_t h = 0; h < cache.kv_heads; ++h) {
      visit(page, kv.k_row(page, h, p % kKvPageTokens));
      visit(page, kv.v_row(page, h, p % kKvPageTokens));
    }
  }
}

int64_t last_position(const OpCase& c) {
  int64_t last = 0;
  for (const RowRun& run : c.runs) last = std::max<int64_t>(last, run.position + run.num_rows);
  return last;
}

/// cos and sin of position * 1e7^(-2i/rotary_dim), rounded to bf16, as forward builds them.
std::pair<TensorRef<float>, TensorRef<float>> add_rope(World& world, int64_t positions,
                                                       int64_t half) {
  const auto cos = world.add<float>("cos", positions, half, 5);
  const auto sin = world.add<float>("sin", positions, half, 5);
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half);
      const double angle = static_cast<double>(p) * std::pow(1e7, exponent);
      world.mat(cos).row(p)[i] = rb(static_cast<float>(std::cos(angle)));
      world.mat(sin).row(p)[i] = rb(static_cast<float>(std::sin(angle)));
    }
  }
  return {cos, sin};
}

AttentionShape shape_of(const AttnCase& p) {
  return {.num_heads = p.heads,
          .num_kv_heads = p.kv_heads,
          .head_dim = p.head_dim,
          .rotary_dim = p.rotary_dim};
}

}  // namespace

OpCase attn_prepare_case(const AttnCase& p) {
  Rng rng(static_cast<uint64_t>(p.heads * 100 + p.kv_heads));
  OpCase c;
  add_runs(c, p);
  const int64_t rows = c.runs.back().first_row + c.runs.back().num_rows;
  const Cache cache = add_cache(c, p, rng);
  c.world.tensors[cache.pool.index].tolerance = kPrepared;
  for (const RowRun& run : c.runs) {
    bf16* base = c.world.data(cache.pool);
    const int64_t stride = c.world.mat(cache.pool).stride;
    for_each_cell(c.world, cache, run, run.position, run.position + run.num_rows,
                  [&](int64_t page, bf16* cell) {
                    c.world.allow_writes(cache.pool, page, cell - base - page * stride, p.head_dim);
                  });
  }
  const auto draw = [&] { return p.magnitude * rng.normal(); };
  const auto qg = c.world.filled<bf16>("qg", rows, 2 * p.heads * p.head_dim, draw, p.pad);
  const auto k = c.world.filled<bf16>("k", rows, p.kv_heads * p.head_dim, draw, p.pad);
  const auto v = c.world.filled<bf16>("v", rows, p.kv_heads * p.head_dim, draw, p.pad);
  const auto weight = [&] { return rng.uniform(-0.3, 0.5); };
  const auto q_norm = c.world.filled<float>("q_norm", 1, p.head_dim, weight);
  const auto k_norm = c.world.filled<float>("k_norm", 1, p.head_dim, weight);
  const auto [cos, sin] = add_rope(c.world, last_position(c), p.rotary_dim / 2);
  const auto q = c.world.output<bf16>("q", rows, p.heads * p.head_dim, kPrepared, p.pad);
  c.call = [=, cos = cos, sin = sin](const OpTable& t, World& world, OpContext& context,
                                     std::span<const RowRun> runs) {
    const RowWindow window(runs);
    const std::vector<RowRun> placed = with_tables(world, cache, window.runs);
    t.attn_prepare({.shape = shape_of(p),
                    .qg = window.rows(world.mat(qg)),
                    .k = window.rows(world.mat(k)),
                    .v = window.rows(world.mat(v)),
                    .q_norm = world.span(q_norm),
                    .k_norm = world.span(k_norm),
                    .cos = world.mat(cos),
                    .sin = world.mat(sin),
                    .runs = placed,
                    .kv = cache.view(world),
                    .q = window.rows(world.mat(q))},
                   context);
  };
  return c;
}

OpCase attention_case(const AttnCase& p) {
  Rng rng(static_cast<uint64_t>(p.heads * 100 + p.kv_heads) + 7);
  OpCase c;
  add_runs(c, p);
  const int64_t rows = c.runs.back().first_row + c.runs.back().num_rows;
  const Cache cache = add_cache(c, p, rng);
  const auto value = [&] { return to_bf16(static_cast<float>(rng.normal())); };
  for (const RowRun& run : c.runs) {
    for_each_cell(c.world, cache, run, 0, run.position + run.num_rows,
                  [&](int64_t, bf16* cell) { std::generate_n(cell, p.head_dim, value); });
  }
  const auto draw = [&] { return p.magnitude * rng.normal(); };
  const auto q = c.world.filled<bf16>("q", rows, p.heads * p.head_dim, draw, p.pad);
  const auto qg = c.world.filled<bf16>(
      "qg", rows, 2 * p.heads * p.head_dim, [&] { return 2 * rng.normal(); }, p.pad);
  const auto out = c.world.output<bf16>("out", rows, p.heads * p.head_dim, kAttended, p.pad);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    const std::vector<RowRun> placed = with_tables(world, cache, window.runs);
    t.attention({.shape = shape_of(p),
                 .q = window.rows(world.mat(q)),
                 .qg = window.rows(world.mat(qg)),
                 .runs = placed,
                 .kv = cache.view(world),
                 .out = window.rows(world.mat(out))},
                context);
  };
  return c;
}

}  // namespace sluice
