#include "verify/diff.h"

#include <algorithm>

#include "engine/placed_weights.h"
#include "verify/op_places.h"

namespace sluice {
namespace {

constexpr size_t kDecodedIds = 4;

/// Follows forward's calls by place; a prompt of several steps passes the places several times.
class PlaceTap : public OpTap {
 public:
  PlaceTap(const OpTable& inner, const std::vector<OpPlace>& places)
      : OpTap(inner), places_(places) {}

  void after(std::string_view op, std::span<const OpOutput> outputs) final {
    const size_t place_idx = num_calls_ % places_.size();
    if (place_idx == 0) {
      first_position_ += num_rows_;
      num_rows_ = outputs[0].values.num_rows;
    }
    const OpPlace& place = places_[place_idx];
    SLUICE_CHECK_EQ(place.op, op);
    SLUICE_CHECK_EQ(place.outputs.size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) see(place_idx, place, i, outputs[i]);
    ++num_calls_;
  }

 protected:
  /// Of the present step's first row.
  int64_t first_position() const { return first_position_; }

 private:
  virtual void see(size_t place_idx, const OpPlace& place, size_t output,
                   const OpOutput& value) = 0;

  const std::vector<OpPlace>& places_;
  size_t num_calls_ = 0;
  int64_t first_position_ = 0;
  int64_t num_rows_ = 0;
};

class RecordingTap final : public PlaceTap {
 public:
  using PlaceTap::PlaceTap;
  std::vector<OpValues> values;

 private:
  void see(size_t, const OpPlace&, size_t, const OpOutput& value) override {
    values.push_back(copy_values(*inner().memory, value));
  }
};

class ComparingTap final : public PlaceTap {
 public:
  ComparingTap(const OpTable& inner, const std::vector<OpPlace>& places,
               const std::vector<OpValues>& wanted, size_t first_place, double max_ulps)
      : PlaceTap(inner, places), wanted_(wanted), first_place_(first_place), max_ulps_(max_ulps) {}
  DiffResult result;

 private:
  void see(size_t place_idx, const OpPlace& place, size_t output, const OpOutput& value) override {
    const OpValues& wanted = wanted_.at(next_++);
    if (place_idx >= first_place_ && !result.departure) compare(place, output, value, wanted);
    overwrite(*inner().memory, value, wanted.values);
  }

  void compare(const OpPlace& place, size_t output, const OpOutput& value, const OpValues& wanted) {
    const OpValues ours = copy_values(*inner().memory, value);
    const UlpDifference d = ulp_difference(ours, wanted.values);
    ++result.num_compared;
    if (d.max > result.largest) {
      result.largest = d.max;
      result.largest_tensor = place.name(output);
    }
    if (d.max <= max_ulps_) return;
    result.departure = {place.name(output), std::string(place.op), d, first_position() + d.row,
                        ulps_between(d.a, d.b, ours.is_bf16)};
  }

  const std::vector<OpValues>& wanted_;
  size_t first_place_;
  double max_ulps_;
  size_t next_ = 0;
};

/// Place from which on outputs are compared.
Result<size_t> first_place(const std::vector<OpPlace>& places, const ModelConfig& config,
                           const DiffOptions& options) {
  if (options.layer < 0) return size_t{0};
  if (options.layer >= config.num_hidden_layers) {
    return invalid_argument("layer {}; this model has layers 0 to {}", options.layer,
                            config.num_hidden_layers - 1);
  }
  std::vector<std::string_view> known;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].layer != options.layer) continue;
    if (options.after.empty()) return i;
    for (const std::string_view output : places[i].outputs) {
      if (output == options.after) return i + 1;
      known.push_back(output);
    }
  }
  return invalid_argument("no output \"{}\" in layer {}; expected one of {}", options.after,
                          options.layer, fmt::join(known, ", "));
}

Status run_tapped(const ModelWeights& host_weights, const Backend& backend, const OpTable& tapped,
                  std::span<const int32_t> ids, int num_threads, OpTap* tap) {
  RunnerLimits limits;
  limits.num_threads = num_threads;
  limits.context_max = static_cast<int64_t>(ids.size());
  SLUICE_ASSIGN_OR_RETURN(const PlacedWeights placed,
                          PlacedWeights::create(host_weights, *backend.ops, nullptr));
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelRunner> runner,
      ModelRunner::create(placed.weights(), {&tapped, backend.prefill_form}, limits));
  runner->forward().set_tap(tap);
  Sequence sequence = runner->open();
  // The last ids one row at a time: decode has kernels of its own.
  const size_t num_decoded = std::min(kDecodedIds, ids.size() - 1);
  runner->prompt(ids.first(ids.size() - num_decoded), &sequence, [](int64_t, const StepOutput&) {});
  for (size_t i = ids.size() - num_decoded; i < ids.size(); ++i) {
    runner->rows(ids.subspan(i, 1), &sequence);
  }
  runner->close(&sequence);
  return Status();
}

}  // namespace

Result<DiffResult> diff_backends(const ModelWeights& weights, const Backend& a, const Backend& b,
                                 std::span<const int32_t> ids, const DiffOptions& options) {
  if (ids.empty()) return invalid_argument("no ids to run; expected at least one");
  for (const int32_t id : ids) {
    if (id >= 0 && id < weights.config.vocab_size) continue;
    return invalid_argument("id {} is not in the vocabulary; expected 0 to {}", id,
                            weights.config.vocab_size - 1);
  }
  const std::vector<OpPlace> places = forward_places(weights.config);
  SLUICE_ASSIGN_OR_RETURN(const size_t first, first_place(places, weights.config, options));
  const OpTable tapped_a = tapped_ops(*a.ops);
  const OpTable tapped_b = tapped_ops(*b.ops);
  RecordingTap recording(*a.ops, places);
  SLUICE_RETURN_IF_ERROR(run_tapped(weights, a, tapped_a, ids, options.num_threads, &recording));
  ComparingTap comparing(*b.ops, places, recording.values, first, options.max_ulps);
  SLUICE_RETURN_IF_ERROR(run_tapped(weights, b, tapped_b, ids, options.num_threads, &comparing));
  return std::move(comparing.result);
}

}  // namespace sluice
