#include "verify/op_check.h"

#include <algorithm>

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

bool is_linear(std::string_view op) {
  return op == "linear" || op == "linear_residual" || op == "gate_up";
}

/// Compares with the oracle's tensors and writes them over ours.
class ForcingTap : public OpTap {
 public:
  ForcingTap(const OpTable& inner, const GoldenOps& golden, double linear_limit,
             VerifyReport* report)
      : OpTap(inner), golden_(golden), linear_limit_(linear_limit), report_(report) {}

  void begin(std::vector<OpPlace> places) {
    places_ = std::move(places);
    next_ = 0;
  }
  bool is_done() const { return next_ == places_.size(); }

  void after(std::string_view op, std::span<const OpOutput> outputs) override {
    SLUICE_CHECK_LT(next_, places_.size());
    const OpPlace& place = places_[next_++];
    SLUICE_CHECK_EQ(place.op, op);
    SLUICE_CHECK_EQ(place.outputs.size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      compare(place, place.name(i), outputs[i]);
      force_input_of_next_layer(place, place.outputs[i], outputs[i]);
    }
  }

 private:
  const GoldenOps::Tensor* fitting(const std::string& name, const OpValues& ours) const {
    const GoldenOps::Tensor* tensor = golden_.find(name);
    if (tensor == nullptr || tensor->values.size() != ours.values.size()) return nullptr;
    return tensor;
  }

  void compare(const OpPlace& place, const std::string& name, const OpOutput& output) {
    const OpValues ours = copy_values(*inner().memory, output);
    const GoldenOps::Tensor* tensor = fitting(name, ours);
    // The target's final norm and head follow layers that were not recorded: their inputs are ours.
    if (tensor == nullptr || place.prefix.empty()) return;
    const UlpDifference d = ulp_difference(ours, tensor->values);
    const double limit = is_linear(place.op) ? linear_limit_ : kUlpsOp;
    report_->checks.push_back(bounded(
        "op", name, d.rms, limit,
        fmt::format("ulps rms; {:.1f} % equal, largest {:.2f} at [{}, {}]: {:.6g}, oracle {:.6g}",
                    100.0 * static_cast<double>(d.num_equal) / static_cast<double>(d.num_elements),
                    d.max, d.row, d.col, d.a, d.b)));
    overwrite(*inner().memory, output, tensor->values);
  }

  /// A recorded layer starts from the oracle's residual stream, whatever came before it.
  void force_input_of_next_layer(const OpPlace& place, std::string_view output_name,
                                 const OpOutput& output) {
    const bool ends_layer = output_name == "output" || output_name == "embed";
    if (!ends_layer || place.prefix.starts_with("mtp.")) return;
    const std::string name = fmt::format("layers.{}.input", place.layer + 1);
    if (const GoldenOps::Tensor* tensor = fitting(name, copy_values(*inner().memory, output))) {
      overwrite(*inner().memory, output, tensor->values);
    }
  }

  const GoldenOps& golden_;
  double linear_limit_;
  VerifyReport* report_;
  std::vector<OpPlace> places_;
  size_t next_ = 0;
};

bool has_fp8(const ModelWeights& weights) {
  return weights.layers[0].mlp.gate_proj.format == WeightFormat::kFp8Block128;
}

/// The draft head on the oracle's hidden vectors.
Status run_drafts(ModelRunner& runner, const GoldenOps& golden, const Sequence& sequence,
                  ForcingTap* tap) {
  const GoldenOps::Tensor* norm = golden.find("norm");
  const auto num_rows = static_cast<int64_t>(golden.ids.size()) - 1;
  const int64_t width = runner.config().hidden_size;
  if (norm == nullptr || num_rows < 1) return Status();
  std::vector<bf16> values(static_cast<size_t>(num_rows * width));
  std::transform(norm->values.begin(), norm->values.begin() + num_rows * width, values.begin(),
                 to_bf16);
  const size_t num_bytes = values.size() * sizeof(bf16);
  SLUICE_ASSIGN_OR_RETURN(
      const Buffer buffer,
      runner.state().memory().allocate(num_bytes, "hidden vectors", MemoryKind::kPrivate));
  runner.state().memory().upload(buffer.data(), values.data(), num_bytes);
  const auto* hidden = reinterpret_cast<const bf16*>(buffer.data());
  tap->begin(mtp_places(runner.config()));
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
  if (num_ids < 1 || num_ids > limits.rows_max) {
    return data_loss("ops.safetensors: tensor ids holds {} ids; expected 1 to {}", num_ids,
                     limits.rows_max);
  }
  const OpTable tapped = tapped_ops(*backend.ops);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner,
                          ModelRunner::create(weights, {&tapped, backend.prefill_form}, limits));
  ForcingTap tap(*backend.ops, golden, has_fp8(weights) ? kUlpsFp8 : kUlpsLinear, report);
  runner->forward().set_tap(&tap);
  Sequence sequence = runner->open();
  tap.begin(forward_places(weights.config));
  runner->prompt(golden.ids, &sequence, [](int64_t, const StepOutput&) {});
  SLUICE_CHECK(tap.is_done());
  if (runner->forward().has_mtp()) {
    SLUICE_RETURN_IF_ERROR(run_drafts(*runner, golden, sequence, &tap));
  }
  runner->close(&sequence);
  return Status();
}

}  // namespace sluice
