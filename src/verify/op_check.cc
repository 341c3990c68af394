#include "verify/op_check.h"

#include <algorithm>
#include <map>

#include "verify/op_places.h"
#include "verify/op_values.h"

namespace sluice {
namespace {

/// Root mean square of the difference in bf16 units (op_values.h). A sum in another order moves one element in a
/// hundred by one unit. Multiplying exact FP8 weights instead of bf16-rounded ones adds up to 2^-9 of every product at
/// random: some 0.3 units of the sum. The other ops round where the oracle rounds.
constexpr double kUlpsOp = 0.1;
constexpr double kUlpsLinear = 0.25;
constexpr double kUlpsFp8 = 0.6;
/// Of a single element: a right one is off by 3 at most (measured, products of two rounded values).
constexpr double kUlpsOfOne = 8.0;

/// Published block-FP8 checkpoints keep these in BF16.
constexpr std::string_view kBf16Outputs[] = {"a", "b", "fc", "logits"};

bool is_linear(std::string_view op) {
  return op == "linear" || op == "linear_residual" || op == "gate_up";
}

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Compares with the oracle's tensors and writes them over ours.
class ForcingTap : public OpTap {
 public:
  ForcingTap(const OpTable& inner, const GoldenOps& golden, bool has_fp8, const ModelRunner& runner,
             VerifyReport* report)
      : OpTap(inner), golden_(golden), has_fp8_(has_fp8), runner_(runner), report_(report) {}

  /// The next calls are those of `places`, in `sequence`.
  void begin(std::vector<OpPlace> places, const Sequence& sequence) {
    places_ = std::move(places);
    sequence_ = &sequence;
    next_ = 0;
  }
  bool is_done() const { return next_ == places_.size(); }

  void after(std::string_view op, std::span<const OpOutput> outputs) override {
    SLUICE_CHECK_LT(next_, places_.size());
    const OpPlace& place = places_[next_++];
    SLUICE_CHECK_EQ(place.op, op);
    SLUICE_CHECK_EQ(place.outputs.size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      visit(place, place.outputs[i], place.name(i), outputs[i]);
    }
    if (op == "attn_prepare") compare_keys(place);
  }

  /// One line for each part of the model in which nothing failed.
  void report_passed() {
    for (const auto& [part, worst] : passed_) {
      report_->checks.push_back(worst.check);
      report_->checks.back().subject = part;
      report_->checks.back().text = fmt::format("{} outputs, worst: {}, {}", worst.count,
                                                worst.check.subject, worst.check.text);
    }
  }

 private:
  void visit(const OpPlace& place, std::string_view output, const std::string& name,
             const OpOutput& value) {
    const OpValues ours = copy_values(*inner().memory, value);
    if (name == "logits") return compare_last_row(ours);
    if (const GoldenOps::Tensor* tensor = golden_.find(name)) {
      if (name != "norm" || has_last_layer())
        compare(place.op, place.prefix, output, ours, *tensor);
      overwrite(*inner().memory, value, tensor->values);
    }
    // A recorded layer starts from the oracle's residual stream, whatever came before it.
    const bool ends_layer = output == "output" || output == "embed";
    if (!ends_layer || place.prefix.starts_with("mtp.")) return;
    if (const auto* input = golden_.find(fmt::format("layers.{}.input", place.layer + 1))) {
      overwrite(*inner().memory, value, input->values);
    }
  }

  /// Is the final norm's input the oracle's?
  bool has_last_layer() const {
    return golden_.find(fmt::format("layers.{}.output", runner_.config().num_hidden_layers - 1)) !=
           nullptr;
  }

  /// The head, of which the last row is recorded.
  void compare_last_row(const OpValues& ours) {
    const GoldenOps::Tensor* tensor = golden_.find("logits");
    if (tensor == nullptr || places_.back().prefix.starts_with("mtp.")) return;
    OpValues last = ours;
    last.num_rows = 1;
    last.values.erase(last.values.begin(), last.values.end() - ours.num_cols);
    compare("linear", "", "logits", last, *tensor);
  }

  /// Keys go into pages: they are read back from there.
  void compare_keys(const OpPlace& place) {
    const GoldenOps::Tensor* tensor = golden_.find(place.prefix + "key");
    if (tensor == nullptr) return;
    const ModelConfig& config = runner_.config();
    const int64_t layer = place.prefix.starts_with("mtp.") ? config.num_full_attention_layers()
                                                           : mixer_idx(config, place.layer);
    const KvLayerView kv = runner_.state().kv_layer(layer);
    OpValues ours;
    ours.num_rows = tensor->shape[0];
    ours.num_cols = tensor->shape[1];
    for (int64_t token = 0; token < ours.num_rows; ++token) {
      for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
        const std::vector<bf16> key =
            fetch(*inner().memory, kv.k_row(sequence_->page_table[0], head, token), kv.head_dim);
        std::transform(key.begin(), key.end(), std::back_inserter(ours.values), to_float);
      }
    }
    compare(place.op, place.prefix, "key", ours, *tensor);
  }

  void compare(std::string_view op, const std::string& prefix, std::string_view output,
               const OpValues& ours, const GoldenOps::Tensor& tensor) {
    const UlpDifference d = ulp_difference(ours, tensor.values);
    const bool is_fp8 = has_fp8_ && !is_one_of(output, kBf16Outputs);
    const double limit = !is_linear(op) ? kUlpsOp : is_fp8 ? kUlpsFp8 : kUlpsLinear;
    // One wrong column is lost in a root mean square.
    const double value = std::max(d.rms, limit * d.max / kUlpsOfOne);
    Check check = bounded(
        "op", prefix + std::string(output), value, limit,
        fmt::format("ulps rms; {:.1f} % equal, largest {:.2f} at [{}, {}]: {:.6g}, oracle {:.6g}",
                    100.0 * static_cast<double>(d.num_equal) / static_cast<double>(d.num_elements),
                    d.max, d.row, d.col, d.a, d.b));
    if (!check.passed) return report_->checks.push_back(std::move(check));
    Passed& worst = passed_[prefix.empty() ? "head" : prefix.substr(0, prefix.size() - 1)];
    if (worst.count++ == 0 || check.value * worst.check.limit > worst.check.value * check.limit) {
      worst.check = std::move(check);
    }
  }

  struct Passed {
    int64_t count = 0;
    Check check;
  };

  const GoldenOps& golden_;
  bool has_fp8_;
  const ModelRunner& runner_;
  VerifyReport* report_;
  std::vector<OpPlace> places_;
  const Sequence* sequence_ = nullptr;
  size_t next_ = 0;
  std::map<std::string, Passed> passed_;
};

bool has_fp8(const ModelWeights& weights) {
  return weights.layers[0].mlp.gate_proj.format == WeightFormat::kFp8Block128;
}

/// The draft head on the oracle's hidden vectors.
Status run_drafts(ModelRunner& runner, const GoldenOps& golden, const Sequence& sequence,
                  ForcingTap* tap) {
  const std::vector<float>& norm = golden.find("norm")->values;  // load_golden wants it
  const auto num_rows = static_cast<int64_t>(golden.ids.size()) - 1;
  const int64_t width = runner.config().hidden_size;
  std::vector<bf16> values(static_cast<size_t>(num_rows * width));
  std::transform(norm.begin(), norm.begin() + num_rows * width, values.begin(), to_bf16);
  const size_t num_bytes = values.size() * sizeof(bf16);
  SLUICE_ASSIGN_OR_RETURN(
      const Buffer buffer,
      runner.state().memory().allocate(num_bytes, "hidden vectors", MemoryKind::kPrivate));
  runner.state().memory().upload(buffer.data(), values.data(), num_bytes);
  const auto* hidden = reinterpret_cast<const bf16*>(buffer.data());
  tap->begin(mtp_places(), sequence);
  runner.drafts(MatView<const bf16>(hidden, num_rows, width), std::span(golden.ids).subspan(1), 0,
                sequence);
  SLUICE_CHECK(tap->is_done());
  return Status();
}

}  // namespace

Status check_ops(const ModelWeights& weights, const Backend& backend, const GoldenOps& golden,
                 int num_threads, VerifyReport* report) {
  const int64_t num_ids = static_cast<int64_t>(golden.ids.size());
  RunnerLimits limits;
  limits.num_threads = num_threads;
  limits.context_max = num_ids;
  if (num_ids > limits.rows_max || num_ids > kKvPageTokens) {
    return data_loss("ops.safetensors: tensor ids holds {} ids; expected 1 to {}", num_ids,
                     limits.rows_max);
  }
  const OpTable tapped = tapped_ops(*backend.ops);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner,
                          ModelRunner::create(weights, {&tapped, backend.prefill_form}, limits));
  ForcingTap tap(*backend.ops, golden, has_fp8(weights), *runner, report);
  runner->forward().set_tap(&tap);
  Sequence sequence = runner->open();
  tap.begin(forward_places(weights.config), sequence);
  runner->prompt(golden.ids, &sequence, [](int64_t, const StepOutput&) {});
  SLUICE_CHECK(tap.is_done());
  if (runner->forward().has_mtp()) {
    SLUICE_RETURN_IF_ERROR(run_drafts(*runner, golden, sequence, &tap));
  }
  runner->close(&sequence);
  tap.report_passed();
  return Status();
}

}  // namespace sluice
