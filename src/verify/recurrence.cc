#include "verify/recurrence.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/arena.h"
#include "base/threads.h"
#include "forward/forward.h"

namespace sluice {
namespace {

/// Two chunks and a tail.
constexpr int64_t kRows = 2 * kGdnChunk + 5;
/// Outputs are rounded to bf16 once (2^-9 of an element at most, 0.0011 in the mean); the state is fp32 throughout.
constexpr double kOutputLimit = 3e-3;
constexpr double kStateLimit = 5e-5;

struct Scenario {
  std::string_view name;
  float key_size;          // of q's and k's elements
  float g_weak, g_strong;  // log decays, drawn between on a log scale
  float parallel;          // share of a common direction in every key
};
constexpr Scenario kScenarios[] = {{"ordinary", 0.3f, -1e-3f, -2.0f, 0.0f},
                                   {"tiny keys", 1e-4f, -1e-3f, -2.0f, 0.0f},
                                   {"weak decay", 0.3f, -1e-5f, -1e-3f, 0.0f},
                                   {"strong decay", 0.3f, -3.0f, -30.0f, 0.0f},
                                   {"near-parallel keys", 0.3f, -1e-4f, -0.1f, 0.8f}};

/// The inputs of one call and what it left, for every head of the shape.
class Trial {
 public:
  Trial(const GdnShape& shape, const Scenario& scenario)
      : shape_(shape),
        qkv_(static_cast<size_t>(kRows * shape.qkv_width())),
        g_(static_cast<size_t>(kRows * shape.num_v_heads)),
        beta_(g_.size()),
        o_(static_cast<size_t>(kRows * shape.value_width()),
           bf16{0x7fc0}),  // NaN: every output is to be written
        state_(static_cast<size_t>(shape.state_size())) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    fill_qkv(scenario, [&] { return normal(rng); });
    const float weak = std::log(-scenario.g_weak);
    const float strong = std::log(-scenario.g_strong);
    for (float& g : g_) g = -std::exp(weak + (strong - weak) * uniform(rng));
    for (float& beta : beta_) beta = rb(0.05f + 0.94f * uniform(rng));
  }

  /// One call of `op` on all rows, in the backend's memory.
  Status run(const OpTable& ops, GdnForm form, OpContext& context) {
    const MemoryTable& memory = *ops.memory;
    RowRun run;
    run.num_rows = kRows;
    run.slot = 0;
    SLUICE_ASSIGN_OR_RETURN(Buffer buffer,
                            memory.allocate(num_bytes(), "recurrence check", MemoryKind::kPrivate));
    Arena arena(std::move(buffer));
    const auto place = [&]<typename T>(const std::vector<T>& values) {
      T* to = arena.take<T>(static_cast<int64_t>(values.size()));
      memory.upload(to, values.data(), values.size() * sizeof(T));
      return to;
    };
    float* state = place(state_);
    bf16* o = place(o_);
    const GdnArgs args = {shape_,
                          {place(qkv_), kRows, shape_.qkv_width()},
                          {place(g_), kRows, shape_.num_v_heads},
                          {place(beta_), kRows, shape_.num_v_heads},
                          {&run, 1},
                          {state, shape_.state_size()},
                          {o, kRows, shape_.value_width()}};
    const std::vector<int32_t> ids(kRows);
    ops.begin_step({.token_ids = ids, .runs = args.runs, .logit_rows = {}, .num_rows = kRows},
                   context);
    (form == GdnForm::kStep ? ops.gdn_step : ops.gdn_chunk)(args, context);
    state_ = fetch(memory, state, shape_.state_size());
    o_ = fetch(memory, o, kRows * shape_.value_width());
    return Status();
  }

  struct Errors {
    double output = 0.0;
    double state = 0.0;
  };
  /// Relative differences (Frobenius) of one value head from the same recurrence in fp64.
  Errors errors_of_head(int64_t head) const;

 private:
  template <typename Normal>
  void fill_qkv(const Scenario& scenario, Normal&& normal) {
    std::vector<float> common(static_cast<size_t>(shape_.qkv_width()));
    for (float& x : common) x = normal();
    const auto keys = static_cast<size_t>(2 * shape_.key_width());
    const float rest = std::sqrt(1.0f - scenario.parallel * scenario.parallel);
    for (size_t i = 0; i < qkv_.size(); ++i) {
      const size_t channel = i % common.size();
      const float own = normal();
      const float key = scenario.key_size * (scenario.parallel * common[channel] + rest * own);
      qkv_[i] = to_bf16(channel < keys ? key : own);
    }
  }
  size_t num_bytes() const {
    constexpr size_t kArrays = 5;
    return (state_.size() + g_.size() + beta_.size()) * sizeof(float) +
           (o_.size() + qkv_.size()) * sizeof(bf16) + kArrays * Arena::kAlignment;
  }
  std::vector<double> unit(int64_t row, int64_t first) const;
  std::vector<double> advance(int64_t row, int64_t head, std::vector<double>* state) const;

  GdnShape shape_;
  std::vector<bf16> qkv_;
  std::vector<float> g_, beta_;
  std::vector<bf16> o_;
  std::vector<float> state_;
};

/// head_k_dim channels of a row from `first` on, l2-normalised.
std::vector<double> Trial::unit(int64_t row, int64_t first) const {
  const bf16* x = qkv_.data() + row * shape_.qkv_width() + first;
  std::vector<double> out(static_cast<size_t>(shape_.head_k_dim));
  double sum = 0.0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = to_float(x[i]);
    sum += out[i] * out[i];
  }
  for (double& value : out) value /= std::sqrt(sum + 1e-6);
  return out;
}

std::vector<double> Trial::advance(int64_t row, int64_t head, std::vector<double>* state) const {
  const int64_t key_head = head * shape_.num_k_heads / shape_.num_v_heads;
  const std::vector<double> q = unit(row, key_head * shape_.head_k_dim);
  const std::vector<double> k = unit(row, shape_.key_width() + key_head * shape_.head_k_dim);
  const bf16* v =
      qkv_.data() + row * shape_.qkv_width() + 2 * shape_.key_width() + head * shape_.head_v_dim;
  const auto gate = static_cast<size_t>(row * shape_.num_v_heads + head);
  const double decay = std::exp(static_cast<double>(g_[gate]));
  const auto width = static_cast<size_t>(shape_.head_v_dim);
  std::vector<double> o(width);
  std::vector<double> memory(width);
  for (size_t i = 0; i < k.size(); ++i) {
    for (size_t j = 0; j < width; ++j) {
      (*state)[i * width + j] *= decay;
      memory[j] += (*state)[i * width + j] * k[i];
    }
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_k_dim));
  for (size_t i = 0; i < k.size(); ++i) {
    for (size_t j = 0; j < width; ++j) {
      const double d = beta_[gate] * (static_cast<double>(to_float(v[j])) - memory[j]);
      (*state)[i * width + j] += k[i] * d;
      o[j] += (*state)[i * width + j] * q[i] * scale;
    }
  }
  return o;
}

struct Squares {
  double difference = 0.0;
  double norm = 0.0;
  void add(double ours, double exact) {
    difference += (ours - exact) * (ours - exact);
    norm += exact * exact;
  }
  double relative() const {
    const double value = std::sqrt(difference / norm);
    return std::isfinite(value) ? value : INFINITY;
  }
};

Trial::Errors Trial::errors_of_head(int64_t head) const {
  const int64_t size = shape_.head_k_dim * shape_.head_v_dim;
  std::vector<double> exact(static_cast<size_t>(size));
  Squares outputs;
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<double> o = advance(row, head, &exact);
    const bf16* ours = o_.data() + row * shape_.value_width() + head * shape_.head_v_dim;
    for (size_t j = 0; j < o.size(); ++j) outputs.add(to_float(ours[j]), o[j]);
  }
  Squares state;
  for (int64_t i = 0; i < size; ++i) {
    state.add(state_[static_cast<size_t>(head * size + i)], exact[static_cast<size_t>(i)]);
  }
  return {outputs.relative(), state.relative()};
}

std::vector<int64_t> heads_to_check(const GdnShape& shape) {
  std::vector<int64_t> heads = {0, 1, shape.num_v_heads / 2, shape.num_v_heads - 1};
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

}  // namespace

Status check_recurrence(const ModelConfig& config, const Backend& backend, int num_threads,
                        VerifyReport* report) {
  ThreadPool pool(num_threads);
  const OpDims dims = op_dims(config, {kRows, 1, kRows}, pool.num_threads());
  const GdnShape& shape = dims.gdn;
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer,
                          backend.ops->memory->allocate(backend.ops->scratch_bytes(dims),
                                                        "recurrence check", MemoryKind::kPrivate));
  Arena scratch(std::move(buffer));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<BackendState> state,
                          open_backend_state(*backend.ops, dims));
  for (const GdnForm form : {GdnForm::kStep, GdnForm::kChunk}) {
    for (const Scenario& scenario : kScenarios) {
      scratch.reset();
      OpContext context;
      context.pool = &pool;
      context.scratch = &scratch;
      context.state = state.get();
      Trial trial(shape, scenario);
      SLUICE_RETURN_IF_ERROR(trial.run(*backend.ops, form, context));
      Trial::Errors worst;
      for (const int64_t head : heads_to_check(shape)) {
        const Trial::Errors errors = trial.errors_of_head(head);
        worst.output = std::max(worst.output, errors.output);
        worst.state = std::max(worst.state, errors.state);
      }
      const std::string name = form == GdnForm::kStep ? "recurrence step" : "recurrence chunk";
      const std::string subject(scenario.name);
      report->checks.push_back(bounded(name + ", out", subject, worst.output, kOutputLimit,
                                       "relative difference from fp64"));
      report->checks.push_back(bounded(name + ", state", subject, worst.state, kStateLimit,
                                       "relative difference from fp64"));
    }
  }
  return Status();
}

}  // namespace sluice
