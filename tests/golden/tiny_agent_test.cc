// The embedded model end to end against transformers' values (tests/golden/tiny_agent, tools/tiny_agent/golden.py).
//
// The oracle computes with weights rounded to bf16 after dequantisation, ours with exact ones, so logits differ by
// the weights' rounding and the order of sums. Each run prints how close it is.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "decode/prefill.h"
#include "decode/round.h"
#include "engine/backend.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

const Path kGoldens = Path(SLUICE_SOURCE_DIR) / "tests/golden/tiny_agent";
const Path kModel = Path(SLUICE_SOURCE_DIR) / "models/tiny-agent";

struct Golden {
  std::string file;
  std::vector<int32_t> ids, top_ids, greedy;
  std::vector<float> top_logits, last_logits;
  int64_t num_top() const { return static_cast<int64_t>(top_ids.size() / ids.size()); }
};

template <typename T>
std::vector<T> read_tensor(const SafetensorsFile& file, std::string_view name) {
  const TensorEntry* entry = file.find(name);
  SLUICE_CHECK(entry != nullptr);
  std::vector<T> values(static_cast<size_t>(entry->num_elements()));
  const std::span<const std::byte> bytes = file.bytes(*entry);
  SLUICE_CHECK_EQ(bytes.size(), values.size() * sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<Golden> load_goldens() {
  const JsonValue manifest = *parse_json(*read_file(kGoldens / "manifest.json", 1 << 20));
  std::vector<Golden> goldens;
  for (const JsonValue& c : manifest.find("cases")->items()) {
    const std::string name = c.find("file")->text();
    const SafetensorsFile file = *SafetensorsFile::open(kGoldens / name);
    goldens.push_back({name, read_tensor<int32_t>(file, "ids"),
                       read_tensor<int32_t>(file, "top_ids"), read_tensor<int32_t>(file, "greedy"),
                       read_tensor<float>(file, "top_logits"),
                       read_tensor<float>(file, "last_logits")});
  }
  return goldens;
}

const LoadedModel& model() {
  static const LoadedModel loaded = *load_model(kModel, LoadOptions());
  return loaded;
}

/// Limits of expect_agreement; a wrong engine is far outside (the controls below), ours well inside (it prints).
constexpr double kRmsLimit = 0.1;
constexpr double kMarginLimit = 0.5;

constexpr int64_t kContext = 2048;
constexpr int32_t kRows = 128;

/// Every position's logits, as the rows of one long prompt.
std::vector<std::vector<float>> all_logits(const ModelWeights& weights,
                                           const std::vector<int32_t>& ids, GdnForm form) {
  ThreadPool pool(0);
  StatePool state = *StatePool::create(weights.config, {2, kContext / kKvPageTokens, kContext});
  Forward forward =
      *Forward::create(weights, **cpu_ops(best_cpu_isa()), pool, {kRows, kRows, kContext});
  Sequence sequence = *state.open();
  SLUICE_CHECK(state.reserve(&sequence, static_cast<int64_t>(ids.size())).ok());
  std::vector<std::vector<float>> out;
  while (out.size() < ids.size()) {
    const auto count = static_cast<int32_t>(std::min<size_t>(kRows, ids.size() - out.size()));
    std::vector<int32_t> wanted;
    for (int32_t i = 0; i < count; ++i) wanted.push_back(i);
    const RowRun run = state.next_run(sequence, 0, count);
    const StepOutput step = forward.forward_rows(
        {std::span(ids).subspan(out.size(), static_cast<size_t>(count)), {&run, 1}, form, wanted},
        state);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<float>& row = out.emplace_back();
      for (int64_t j = 0; j < step.logits.num_cols; ++j)
        row.push_back(to_float(step.logits.row(i)[j]));
    }
    state.advance(&sequence, count, form == GdnForm::kChunk);
  }
  state.close(&sequence);
  return out;
}

int32_t argmax(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

int32_t argmax(const bf16* row, int64_t size) {
  std::vector<float> widened;
  for (int64_t i = 0; i < size; ++i) widened.push_back(to_float(row[i]));
  return argmax(widened);
}

struct Agreement {
  double rms = 0.0;         // of the differences of the oracle's top logits
  int64_t num_flips = 0;    // positions whose top-1 differs
  double worst_margin = 0;  // the oracle's margin at the worst flip
};

Agreement compare(const std::vector<std::vector<float>>& ours, const Golden& golden) {
  Agreement agreement;
  const int64_t k = golden.num_top();
  for (size_t i = 0; i < golden.ids.size(); ++i) {
    const int32_t* ids = golden.top_ids.data() + static_cast<int64_t>(i) * k;
    const float* logits = golden.top_logits.data() + static_cast<int64_t>(i) * k;
    for (int64_t j = 0; j < k; ++j) {
      const double difference = ours[i][static_cast<size_t>(ids[j])] - logits[j];
      agreement.rms += difference * difference;
    }
    const int32_t best = argmax(ours[i]);
    if (best == ids[0]) continue;
    ++agreement.num_flips;
    double margin =
        logits[0] - logits[k - 1];  // at least this, when ours is not among the recorded
    for (int64_t j = 0; j < k; ++j) {
      if (ids[j] == best) margin = logits[0] - logits[j];
    }
    agreement.worst_margin = std::max(agreement.worst_margin, margin);
  }
  agreement.rms = std::sqrt(agreement.rms / static_cast<double>(golden.top_ids.size()));
  return agreement;
}

bool agrees(const Agreement& a, const Golden& golden, std::string_view what) {
  std::printf("%s %s: rms %.4f, top-1 differs at %ld of %zu, largest margin there %.3f\n",
              golden.file.c_str(), std::string(what).c_str(), a.rms, static_cast<long>(a.num_flips),
              golden.ids.size(), a.worst_margin);
  return a.rms < kRmsLimit && a.worst_margin < kMarginLimit &&
         static_cast<double>(a.num_flips) < 0.03 * static_cast<double>(golden.ids.size());
}

TEST(TinyAgentGolden, EveryPositionAgreesWithTheOracle) {
  for (const Golden& golden : load_goldens()) {
    for (const GdnForm form : {GdnForm::kStep, GdnForm::kChunk}) {
      const Agreement a = compare(all_logits(model().weights, golden.ids, form), golden);
      EXPECT_TRUE(agrees(a, golden, form == GdnForm::kStep ? "step form" : "chunk form"));
    }
  }
}

TEST(TinyAgentGolden, GreedyContinuationIsOursUpToTheMargin) {
  for (const Golden& golden : load_goldens()) {
    // On the oracle's own tokens, so that one difference does not make the rest meaningless.
    std::vector<int32_t> ids = golden.ids;
    ids.insert(ids.end(), golden.greedy.begin(), golden.greedy.end() - 1);
    const auto logits = all_logits(model().weights, ids, GdnForm::kStep);
    for (size_t i = 0; i < golden.greedy.size(); ++i) {
      const std::vector<float>& row = logits[golden.ids.size() - 1 + i];
      const float behind =
          *std::max_element(row.begin(), row.end()) - row[static_cast<size_t>(golden.greedy[i])];
      EXPECT_LT(behind, kMarginLimit) << golden.file << " token " << i;
    }
  }
}

/// Which ids the model wrote: behind the generation prompt, up to and with "<|im_end|>".
std::vector<bool> written_by_model(const std::vector<int32_t>& ids) {
  const Tokenizer tokenizer = *Tokenizer::load(kModel, TokenizerOptions());
  const std::vector<int32_t> opening =
      tokenizer.encode("<|im_start|>assistant\n<think>\n", AddedTokens::kMatch);
  const int32_t end = *tokenizer.added_token_id("<|im_end|>");
  std::vector<bool> written(ids.size());
  bool inside = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    written[i] = inside;
    if (ids[i] == end) inside = false;
    if (i + 1 >= opening.size() &&
        std::equal(opening.begin(), opening.end(),
                   ids.begin() + static_cast<int64_t>(i + 1 - opening.size()))) {
      inside = true;
    }
  }
  return written;
}

/// Share of the model's own tokens that the draft head, one position earlier, names as the target does.
double draft_agreement(const ModelWeights& weights) {
  int64_t num_tokens = 0;
  int64_t num_equal = 0;
  for (const Golden& golden : load_goldens()) {
    ThreadPool pool(0);
    StatePool state = *StatePool::create(weights.config, {2, kContext / kKvPageTokens, kContext});
    Forward forward =
        *Forward::create(weights, **cpu_ops(best_cpu_isa()), pool, {kRows, kRows, kContext});
    Sequence sequence = *state.open();
    SLUICE_CHECK(state.reserve(&sequence, static_cast<int64_t>(golden.ids.size())).ok());
    const std::vector<bool> written = written_by_model(golden.ids);
    std::vector<int32_t> target_says(golden.ids.size());
    std::vector<int32_t> draft_says(golden.ids.size() + 1);
    for (size_t first = 0; first + 1 < golden.ids.size();) {
      const auto count =
          static_cast<int32_t>(std::min<size_t>(kRows, golden.ids.size() - 1 - first));
      std::vector<int32_t> wanted;
      for (int32_t i = 0; i < count; ++i) wanted.push_back(i);
      const std::span<const int32_t> ids(golden.ids);
      const RowRun run = state.next_run(sequence, 0, count);
      const StepOutput target = forward.forward_rows(
          {ids.subspan(first, static_cast<size_t>(count)), {&run, 1}, GdnForm::kStep, wanted},
          state);
      for (int32_t i = 0; i < count; ++i)
        target_says[first + static_cast<size_t>(i) + 1] =
            argmax(target.logits.row(i), target.logits.num_cols);
      const StepOutput draft = forward.mtp_rows(
          {target.hidden, ids.subspan(first + 1, static_cast<size_t>(count)), {&run, 1}, wanted},
          state);
      for (int32_t i = 0; i < count; ++i)
        draft_says[first + static_cast<size_t>(i) + 2] =
            argmax(draft.logits.row(i), draft.logits.num_cols);
      state.advance(&sequence, count, false);
      first += static_cast<size_t>(count);
    }
    state.close(&sequence);
    for (size_t i = 2; i < golden.ids.size(); ++i) {
      if (!written[i]) continue;
      ++num_tokens;
      num_equal += draft_says[i] == target_says[i] ? 1 : 0;
    }
  }
  SLUICE_CHECK_GT(num_tokens, 100);
  return static_cast<double>(num_equal) / static_cast<double>(num_tokens);
}

TEST(TinyAgentGolden, DraftHeadAgreesWithTheTargetAndWrongWiringDoesNot) {
  ModelWeights weights = model().weights;
  const double right = draft_agreement(weights);
  // The hidden half in the embedding half's place and the other way round: the norms' weights go along.
  std::vector<bf16> swapped(static_cast<size_t>(weights.mtp->fc.num_out * weights.mtp->fc.num_in));
  const int64_t hidden = weights.config.hidden_size;
  for (int64_t row = 0; row < weights.mtp->fc.num_out; ++row) {
    const bf16* from = static_cast<const bf16*>(weights.mtp->fc.data) + row * 2 * hidden;
    bf16* to = swapped.data() + row * 2 * hidden;
    std::copy_n(from + hidden, hidden, to);
    std::copy_n(from, hidden, to + hidden);
  }
  weights.mtp->fc.data = swapped.data();
  const double wrong = draft_agreement(weights);
  std::printf("draft agreement %.4f; halves swapped %.4f\n", right, wrong);
  EXPECT_GE(right, 0.9);
  EXPECT_LT(wrong, 0.2);
}

TEST(TinyAgentGolden, WrongEnginesAreRejected) {
  const Golden golden = load_goldens().at(1);
  const auto rejected = [&](const ModelWeights& weights, std::string_view what) {
    return !agrees(compare(all_logits(weights, golden.ids, GdnForm::kStep), golden), golden, what);
  };
  ModelWeights rope = model().weights;
  rope.config.rope_theta = 1e4;
  EXPECT_TRUE(rejected(rope, "RoPE base 10,000"));
  ModelWeights eps = model().weights;
  eps.config.rms_norm_eps = 0.1f;
  EXPECT_TRUE(rejected(eps, "norm eps 0.1"));
  ModelWeights swapped = model().weights;
  std::swap(swapped.layers[1].mlp.gate_proj, swapped.layers[1].mlp.up_proj);
  EXPECT_TRUE(rejected(swapped, "gate and up swapped in one layer"));
}

}  // namespace
}  // namespace sluice
