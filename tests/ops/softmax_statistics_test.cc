// The maximum, the sum and the differences inside attention's softmax, against fp64. Keys make every
// score an exactly known bf16; values are one-hot by position and the gate is open, so that the output
// is the probabilities themselves: p_j = rb( exp(s_j - M) / L ).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/ops/op_cases.h"
#include "tests/ops/statistic_judge.h"

namespace sluice {
namespace {

constexpr int64_t kDim = 256;

/// The score of position j of n; a row sees those up to its own.
struct Pattern {
  const char* name;
  double (*score)(int64_t j, int64_t n, Rng& rng);
};
constexpr Pattern kPatterns[] = {
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
constexpr int64_t kHeads = std::size(kPatterns);

struct Context {
  int64_t length;
  int64_t num_rows = 1;  // the last ones of the context
};

/// One query head a pattern, all of one kv head: head h looks at one dim of the keys only.
class OneHotAttention {
 public:
  explicit OneHotAttention(const Context& c)
      : context_(c),
        pages_((c.length + kKvPageTokens - 1) / kKvPageTokens),
        cells_(static_cast<size_t>(pages_ * 2 * kKvPageTokens * kDim)),
        q_(static_cast<size_t>(c.num_rows * kHeads * kDim)),
        qg_(static_cast<size_t>(2 * c.num_rows * kHeads * kDim), to_bf16(64.0f)) {
    for (int64_t page = 0; page < pages_; ++page) {
      table_.push_back(static_cast<int32_t>(pages_ - 1 - page));
    }
    Rng rng(static_cast<uint64_t>(c.length));
    for (int64_t h = 0; h < kHeads; ++h) {
      scores_.emplace_back();
      for (int64_t j = 0; j < c.length; ++j) {
        const bf16 score = to_bf16(static_cast<float>(kPatterns[h].score(j, c.length, rng)));
        scores_.back().push_back(static_cast<double>(to_float(score)));
        kv().k_row(table_[page_of(j)], 0, j % kKvPageTokens)[dim_of(h)] = score;
      }
      // sqrt(head_dim), which the scale takes back.
      for (int64_t r = 0; r < c.num_rows; ++r) q_[at(r, h, dim_of(h))] = to_bf16(16.0f);
    }
  }

  int64_t num_seen(int64_t row) const { return context_.length - context_.num_rows + row + 1; }
  std::span<const double> scores(int64_t row, int64_t head) const {
    return std::span(scores_[static_cast<size_t>(head)]).first(static_cast<size_t>(num_seen(row)));
  }

  /// p[row * kHeads + head][j], from as many calls as it takes to give every position a value dim.
  std::vector<std::vector<bf16>> probabilities(const OpTable& table) {
    std::vector<std::vector<bf16>> p(static_cast<size_t>(context_.num_rows * kHeads));
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

 private:
  static size_t page_of(int64_t j) { return static_cast<size_t>(j / kKvPageTokens); }
  static int64_t dim_of(int64_t head) { return head * 31; }
  static size_t at(int64_t row, int64_t head, int64_t dim) {
    return static_cast<size_t>((row * kHeads + head) * kDim + dim);
  }
  KvLayerView kv() {
    return {.data = cells_.data(),
            .page_stride = 2 * kKvPageTokens * kDim,
            .num_kv_heads = 1,
            .head_dim = kDim};
  }
  void set_values(int64_t first, int64_t count, bf16 x) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = first + i;
      kv().v_row(table_[page_of(j)], 0, j % kKvPageTokens)[i] = x;
    }
  }
  std::vector<bf16> run(const OpTable& table) {
    std::vector<bf16> out(q_.size());
    const RowRun run{.num_rows = static_cast<int32_t>(context_.num_rows),
                     .position = static_cast<int32_t>(context_.length - context_.num_rows),
                     .page_table = table_.data()};
    OpSession session(2);
    OpContext context = session.context();
    table.attention({.shape = {.num_heads = kHeads, .num_kv_heads = 1, .head_dim = kDim},
                     .q = {q_.data(), context_.num_rows, kHeads * kDim},
                     .qg = {qg_.data(), context_.num_rows, 2 * kHeads * kDim},
                     .runs = {&run, 1},
                     .kv = kv(),
                     .out = {out.data(), context_.num_rows, kHeads * kDim}},
                    context);
    return out;
  }

  Context context_;
  int64_t pages_;
  std::vector<bf16> cells_;
  std::vector<int32_t> table_;
  std::vector<bf16> q_, qg_;
  std::vector<std::vector<double>> scores_;  // [head][position]
};

/// exp(s - M) and their sum, fp64.
struct Softmax64 {
  explicit Softmax64(std::span<const double> scores)
      : max(*std::max_element(scores.begin(), scores.end())) {
    for (const double s : scores) {
      terms.push_back(std::exp(s - max));
      sum += terms.back();
    }
  }
  double max;
  double sum = 0.0;
  std::vector<double> terms;
};

/// A term's own exponential (1 ulp, two roundings) and the division.
constexpr double kOfATerm = 4 * kF32Rounding;

/// All terms have one sign: a rounding per addition on a term's way (16 lanes of a page of 256, a tree
/// of 4, the pages one after another), two of its exponential, three of its page's weight.
double bound_of_sum(size_t n) {
  const double pages = std::ceil(static_cast<double>(n) / kKvPageTokens);
  return (16 + 4 + pages + 2 + 3) * kF32Rounding;
}

struct Statistics {
  Worst sum;          // L, from every p_j = rb(exp(s_j - M) / L)
  Worst total;        // of the p_j, which is 1
  Worst differences;  // ln(p_j / p_max), which is s_j - M
  Bracket common;     // what all L may be wrong by alike: the check is as fine as this

  Worst worst() const {
    Worst all = sum;
    all.see(total);
    all.see(differences);
    return all;
  }
};

void see_row(Statistics& stats, std::span<const double> scores, std::span<const bf16> p,
             const std::string& where) {
  const Softmax64 truth(scores);
  const auto place = [&] { return where; };
  Bracket sum;
  double total = 0.0;
  double largest = 0.0;
  for (const bf16 x : p) largest = std::max(largest, static_cast<double>(to_float(x)));
  for (size_t j = 0; j < scores.size(); ++j) {
    const auto value = static_cast<double>(to_float(p[j]));
    const double expected = truth.terms[j] / truth.sum;
    total += value;
    if (expected < kVanishing) {
      stats.sum.see(error_before_rounding(p[j], expected), 1.0, place);
      continue;
    }
    const Interval seen = rounded_from(p[j]);
    sum.narrow({truth.terms[j] / seen.high, truth.terms[j] / seen.low}, kOfATerm);
    stats.common.narrow({expected / seen.high, expected / seen.low}, kOfATerm);
    stats.differences.see(std::abs(std::log(value / largest) - (scores[j] - truth.max)),
                          2 * kBf16Rounding + 2 * kOfATerm, place);
  }
  stats.sum.see(sum.outside(truth.sum), bound_of_sum(scores.size()), place);
  stats.total.see(std::abs(total - 1.0), kBf16Rounding + bound_of_sum(scores.size()) + kOfATerm,
                  place);
}

Statistics check_softmax(const OpTable& table, const std::vector<Context>& contexts) {
  Statistics stats;
  for (const Context& c : contexts) {
    OneHotAttention attention(c);
    const auto p = attention.probabilities(table);
    for (int64_t r = 0; r < c.num_rows; ++r) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const std::span<const bf16> row = p[static_cast<size_t>(r * kHeads + h)];
        see_row(stats, attention.scores(r, h),
                row.first(static_cast<size_t>(attention.num_seen(r))),
                fmt::format("{}, {} positions", kPatterns[h].name, attention.num_seen(r)));
      }
    }
  }
  return stats;
}

TEST(SoftmaxStatistics, MaximumSumAndDifferencesAreFp32) {
  const std::vector<Context> contexts = {{1},      {2},    {255},     {256}, {257},
                                         {257, 3}, {1000}, {1000, 9}, {4096}};
  for (const OpTable* backend : with_ref(&OpTable::attention)) {
    const Statistics stats = check_softmax(*backend, contexts);
    expect_within(fmt::format("sum, {}", backend->name), stats.sum);
    expect_within(fmt::format("sum of probabilities, {}", backend->name), stats.total);
    expect_within(fmt::format("score differences, {}", backend->name), stats.differences);
    Worst common;
    common.see(stats.common.farthest(1.0), bound_of_sum(1), [] { return "of all rows alike"; });
    expect_within(fmt::format("sum known to, {}", backend->name), common);
  }
}

// ---- Negative controls

enum class SoftmaxMistake {
  kNone,
  kMaxMissesLastPage,
  kSumNotRescaled,
  kSumMissesItself,
  kSumRounded,
  kDifferenceRounded,
  kTermRounded,
  kTermsOfTheirPagesMaximum,
};

/// exp(s - M) / L over pages, unrounded. fp32 where an overflow must show.
std::vector<float> wrong_softmax(const std::vector<float>& scores, SoftmaxMistake mistake) {
  const auto round_if = [&](SoftmaxMistake m, float x) { return mistake == m ? rb(x) : x; };
  const auto term = [&](float s, float max) {
    return round_if(SoftmaxMistake::kTermRounded,
                    std::exp(round_if(SoftmaxMistake::kDifferenceRounded, s - max)));
  };
  const size_t n = scores.size();
  constexpr size_t kPage = kKvPageTokens;
  const size_t last_page = (n - 1) / kPage * kPage;
  float max = -std::numeric_limits<float>::infinity();
  std::vector<float> max_of_page;
  double sum = 0.0;
  for (size_t first = 0; first < n; first += kPage) {
    const auto page = std::span(scores).subspan(first, std::min(kPage, n - first));
    max_of_page.push_back(*std::max_element(page.begin(), page.end()));
    float next = std::max(max, max_of_page.back());
    if (mistake == SoftmaxMistake::kMaxMissesLastPage && first > 0 && first == last_page)
      next = max;
    if (mistake != SoftmaxMistake::kSumNotRescaled && first > 0) {
      sum *= std::exp(static_cast<double>(max) - static_cast<double>(next));
    }
    max = next;
    for (size_t j = first; j < first + page.size(); ++j) {
      if (mistake == SoftmaxMistake::kSumMissesItself && j + 1 == n && n > 1) continue;
      sum += static_cast<double>(term(scores[j], max));
      if (mistake == SoftmaxMistake::kSumRounded)
        sum = static_cast<double>(rb(static_cast<float>(sum)));
    }
  }
  std::vector<float> p;
  for (size_t j = 0; j < n; ++j) {
    const bool local = mistake == SoftmaxMistake::kTermsOfTheirPagesMaximum;
    const float x = term(scores[j], local ? max_of_page[j / kPage] : max);
    p.push_back(static_cast<float>(static_cast<double>(x) / sum));
  }
  return p;
}

template <SoftmaxMistake kMistake>
void wrong_attention(const AttentionArgs& args, OpContext&) {
  const RowRun& run = args.runs[0];
  for (int64_t r = 0; r < run.num_rows; ++r) {
    for (int64_t h = 0; h < args.shape.num_heads; ++h) {
      const bf16* q = args.q.row(r) + h * kDim;
      const auto used = std::find_if(q, q + kDim, [](bf16 x) { return x != bf16{}; }) - q;
      std::vector<float> scores;
      for (int64_t j = 0; j <= run.position + r; ++j) {
        const bf16* k = args.kv.k_row(run.page_table[j / kKvPageTokens], 0, j % kKvPageTokens);
        scores.push_back(to_float(k[used]));
      }
      const std::vector<float> p = wrong_softmax(scores, kMistake);
      std::vector<float> o(kDim, 0.0f);
      for (size_t j = 0; j < p.size(); ++j) {
        const auto position = static_cast<int64_t>(j);
        const bf16* v =
            args.kv.v_row(run.page_table[position / kKvPageTokens], 0, position % kKvPageTokens);
        for (size_t i = 0; i < o.size(); ++i) o[i] += rb(p[j]) * to_float(v[i]);
      }
      std::transform(o.begin(), o.end(), args.out.row(r) + h * kDim, to_bf16);
    }
  }
}

template <SoftmaxMistake kMistake>
Worst check_wrong() {
  OpTable wrong = ref_ops();
  wrong.attention = wrong_attention<kMistake>;
  return check_softmax(wrong, {{255}, {257}, {600}}).worst();
}

TEST(SoftmaxStatistics, RejectsWrongOnes) {
  expect_within("no mistake", check_wrong<SoftmaxMistake::kNone>());
  expect_beyond("maximum misses the last page", check_wrong<SoftmaxMistake::kMaxMissesLastPage>());
  expect_beyond("sum not rescaled", check_wrong<SoftmaxMistake::kSumNotRescaled>());
  expect_beyond("sum misses the row itself", check_wrong<SoftmaxMistake::kSumMissesItself>());
  expect_beyond("sum kept in bf16", check_wrong<SoftmaxMistake::kSumRounded>());
  expect_beyond("differences rounded to bf16", check_wrong<SoftmaxMistake::kDifferenceRounded>());
  expect_beyond("exponentials rounded to bf16", check_wrong<SoftmaxMistake::kTermRounded>());
  expect_beyond("terms of their page's maximum",
                check_wrong<SoftmaxMistake::kTermsOfTheirPagesMaximum>());
}

}  // namespace
}  // namespace sluice
