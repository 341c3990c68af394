// The maximum M, the sum L and the differences inside attention's softmax, against fp64, read from the
// probabilities p_j = rb( exp(s_j - M) / L ) that one_hot_attention.h makes the output of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/ops/one_hot_attention.h"
#include "tests/ops/statistic_judge.h"

namespace sluice {
namespace {

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
  for (const bf16 x : p) {
    total += static_cast<double>(to_float(x));
    largest = std::max(largest, static_cast<double>(to_float(x)));
  }
  for (size_t j = 0; j < scores.size(); ++j) {
    const double expected = truth.terms[j] / truth.sum;
    if (expected < kVanishing) {
      stats.sum.see(error_before_rounding(p[j], expected), bound_of_sum(scores.size()), place);
      continue;
    }
    const Interval seen = rounded_from(p[j]);
    sum.narrow({truth.terms[j] / seen.high, truth.terms[j] / seen.low}, kOfATerm);
    stats.common.narrow({expected / seen.high, expected / seen.low}, kOfATerm);
    const double difference = std::log(static_cast<double>(to_float(p[j])) / largest);
    stats.differences.see(std::abs(difference - (scores[j] - truth.max)),
                          2 * kBf16Rounding + 2 * kOfATerm, place);
  }
  // Positions that the row does not see count here, too.
  stats.total.see(std::abs(total - 1.0), kBf16Rounding + bound_of_sum(scores.size()) + kOfATerm,
                  place);
  stats.sum.see(sum.outside(truth.sum), bound_of_sum(scores.size()), place);
}

Statistics check_softmax(const OpTable& table, const std::vector<OneHotContext>& contexts) {
  Statistics stats;
  for (const OneHotContext& c : contexts) {
    OneHotAttention attention(c);
    const auto p = attention.probabilities(table);
    for (int64_t r = 0; r < c.num_rows; ++r) {
      for (int64_t h = 0; h < attention.num_heads(); ++h) {
        see_row(stats, attention.scores(r, h),
                p[static_cast<size_t>(r * attention.num_heads() + h)],
                fmt::format("{}, {} positions", score_patterns()[static_cast<size_t>(h)].name,
                            attention.num_seen(r)));
      }
    }
  }
  return stats;
}

TEST(SoftmaxStatistics, MaximumSumAndDifferencesAreFp32) {
  const std::vector<OneHotContext> contexts = {{1},      {2},    {255},     {256}, {257},
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
  constexpr int64_t kDim = OneHotAttention::kDim;
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
