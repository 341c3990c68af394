#include "tests/ops/attention_twin.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice {
namespace {

using Vector = std::vector<float>;

Vector widened(const bf16* x, int64_t n) {
  Vector out;
  for (int64_t i = 0; i < n; ++i) out.push_back(to_float(x[i]));
  return out;
}

float dot(const Vector& a, const Vector& b) {
  float sum = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void norm(Vector& x, std::span<const float> weight, float eps, PrepareMistake mistake) {
  const float inv = 1.0f / std::sqrt(dot(x, x) / static_cast<float>(x.size()) + eps);
  const float plus = mistake == PrepareMistake::kMissingOnePlus ? 0.0f : 1.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = x[i] * inv * (plus + weight[i]);
    if (mistake != PrepareMistake::kRotateUnroundedNorm) x[i] = rb(x[i]);
  }
}

void rotate(Vector& x, const float* cos, const float* sin, size_t half, PrepareMistake mistake) {
  const bool interleaved = mistake == PrepareMistake::kRotateEvenOdd;
  const float sign = mistake == PrepareMistake::kRotateOtherWay ? -1.0f : 1.0f;
  const size_t distance = mistake == PrepareMistake::kRotateWholeHead ? x.size() / 2 : half;
  for (size_t i = 0; i < half; ++i) {
    float& lo = x[interleaved ? 2 * i : i];
    float& hi = x[interleaved ? 2 * i + 1 : i + distance];
    const float a = lo;
    const float b = hi;
    lo = rb(rb(a * cos[i]) + rb(-b * sin[i] * sign));
    hi = rb(rb(b * cos[i]) + rb(a * sin[i] * sign));
  }
}

void store(const Vector& x, bf16* out) {
  std::transform(x.begin(), x.end(), out, to_bf16);
}

/// Where head h's query values lie in a row of qg.
int64_t query_offset(const AttentionShape& shape, int64_t h, PrepareMistake mistake) {
  if (mistake == PrepareMistake::kGatesAfterAllQueries) return h * shape.head_dim;
  const int64_t half = mistake == PrepareMistake::kGateHalvesSwapped ? shape.head_dim : 0;
  return 2 * h * shape.head_dim + half;
}

struct PrepareRow {
  const AttnPrepareArgs& args;
  const RowRun& run;
  int64_t row;
  int64_t position;
  PrepareMistake mistake;

  Vector head(const bf16* x, std::span<const float> weight, bool rotated) const {
    Vector out = widened(x, args.shape.head_dim);
    norm(out, weight, args.eps, mistake);
    const int64_t p = mistake == PrepareMistake::kPositionOffByOne
                          ? std::max<int64_t>(0, position - 1)
                          : position;
    const auto half = static_cast<size_t>(args.shape.rotary_dim / 2);
    if (rotated) rotate(out, args.cos.row(p), args.sin.row(p), half, mistake);
    return out;
  }
  void queries() const {
    for (int64_t h = 0; h < args.shape.num_heads; ++h) {
      const bf16* q = args.qg.row(row) + query_offset(args.shape, h, mistake);
      store(head(q, args.q_norm, true), args.q.row(row) + h * args.shape.head_dim);
    }
  }
  void keys_and_values() const {
    const int64_t dim = args.shape.head_dim;
    const int32_t page = run.page_table[position / kKvPageTokens];
    for (int64_t h = 0; h < args.shape.num_kv_heads; ++h) {
      const bool rotated = mistake != PrepareMistake::kKeyNotRotated;
      store(head(args.k.row(row) + h * dim, args.k_norm, rotated),
            args.kv.k_row(page, h, position % kKvPageTokens));
      const bf16* v = args.v.row(row) + h * dim;
      store(mistake == PrepareMistake::kValueNormed ? head(v, args.k_norm, false) : widened(v, dim),
            args.kv.v_row(page, h, position % kKvPageTokens));
    }
  }
};

struct AttentionHead {
  const AttentionArgs& args;
  const RowRun& run;
  int64_t row;
  int64_t position;
  int64_t head;
  AttentionMistake mistake;

  int64_t dim() const { return args.shape.head_dim; }
  int64_t kv_head() const {
    return mistake == AttentionMistake::kHeadModulo
               ? head % args.shape.num_kv_heads
               : head / (args.shape.num_heads / args.shape.num_kv_heads);
  }
  int64_t context() const {
    const int64_t last = run.position + run.num_rows;
    if (mistake == AttentionMistake::kNotCausal) return last;
    return std::max<int64_t>(1, position + (mistake == AttentionMistake::kMissesItself ? 0 : 1));
  }
  int32_t page_of(int64_t j) const {
    int64_t page = j / kKvPageTokens;
    if (mistake == AttentionMistake::kPageOffByOne && j % kKvPageTokens == kKvPageTokens - 1 &&
        j < position) {
      ++page;  // the last token of a page looked up in the next one
    }
    return run.page_table[page];
  }
  Vector probabilities() const {
    const Vector q = widened(args.q.row(row) + head * dim(), dim());
    const float scale =
        mistake == AttentionMistake::kNoScale ? 1.0f : 1.0f / std::sqrt(static_cast<float>(dim()));
    Vector p;
    for (int64_t j = 0; j < context(); ++j) {
      const bf16* k = args.kv.k_row(page_of(j), kv_head(), j % kKvPageTokens);
      const float s = dot(q, widened(k, dim()));
      p.push_back(mistake == AttentionMistake::kScoresNotRounded ? s * scale : rb(rb(s) * scale));
    }
    const float max = *std::max_element(p.begin(), p.end());
    float sum = 0.0f;
    for (float& x : p) sum += x = std::exp(x - max);
    for (float& x : p) {
      x /= sum;
      if (mistake != AttentionMistake::kProbabilitiesNotRounded) x = rb(x);
    }
    return p;
  }
  void run_head() const {
    const Vector p = probabilities();
    const bool swapped = mistake == AttentionMistake::kGateHalvesSwapped;
    const bf16* gate = args.qg.row(row) + 2 * head * dim() + (swapped ? 0 : dim());
    for (int64_t i = 0; i < dim(); ++i) {
      float o = 0.0f;
      for (int64_t j = 0; j < context(); ++j) {
        const bf16* v = args.kv.v_row(page_of(j), kv_head(), j % kKvPageTokens);
        o += p[static_cast<size_t>(j)] * to_float(v[i]);
      }
      const float z = to_float(gate[i]);
      float sigmoid = 1.0f / (1.0f + std::exp(-z));
      if (mistake == AttentionMistake::kGateIsSilu) sigmoid *= z;
      args.out.row(row)[head * dim() + i] = to_bf16(rb(o) * rb(sigmoid));
    }
  }
};

}  // namespace

void prepare_twin(const AttnPrepareArgs& args, PrepareMistake mistake) {
  for (const RowRun& run : args.runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      const PrepareRow row{args, run, run.first_row + i, run.position + i, mistake};
      row.queries();
      row.keys_and_values();
    }
  }
}

void attention_twin(const AttentionArgs& args, AttentionMistake mistake) {
  for (const RowRun& run : args.runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      for (int64_t h = 0; h < args.shape.num_heads; ++h) {
        AttentionHead{args, run, run.first_row + i, run.position + i, h, mistake}.run_head();
      }
    }
  }
}

}  // namespace sluice
