#include "apps/bench/launch_work.h"

#include <algorithm>

#include "apps/bench/step_flop.h"
#include "apps/bench/step_traffic.h"

namespace sluice {
namespace {

constexpr auto kValueBytes =
    static_cast<int64_t>(sizeof(bf16));  // of an activation, and of an operand

/// A kernel between a block's projections, known by a part of its name.
struct CoreWork {
  std::string_view kernel;
  LaunchWork work;
};

/// A head has one projection.
struct BlockWork {
  LaunchWork first, last;
  std::vector<CoreWork> core = {};
};

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

bool is_projection(const std::string& kernel) {
  return has(kernel, "resident") || has(kernel, "streamed") || has(kernel, "gemm") ||
         has(kernel, "linear_kernel") || has(kernel, "gate_up");
}

template <typename Mixer>
const Mixer& first_mixer(const ModelWeights& weights) {
  const auto layer = std::ranges::find_if(
      weights.layers, [](const LayerWeights& w) { return std::holds_alternative<Mixer>(w.mixer); });
  SLUICE_CHECK(layer != weights.layers.end());
  return std::get<Mixer>(layer->mixer);
}

/// What a block does in one step of one model.
class Accountant {
 public:
  Accountant(const ModelWeights& weights, const StepCase& step)
      : weights_(weights), config_(weights.config), step_(step) {}

  BlockWork work_of(StepBlock block) const {
    switch (block) {
      case StepBlock::kGdnMixer:
        return gdn();
      case StepBlock::kAttentionMixer:
        return attention();
      case StepBlock::kMlp:
        return mlp();
      case StepBlock::kHead: {
        const WeightView& w = weights_.lm_head;
        const LaunchWork work = {"lm_head", LaunchPart::kRest, packed_weight_bytes(w),
                                 product_flop(w, step_.num_logit_rows())};
        return {work, work};
      }
      case StepBlock::kDraw: {
        const int64_t bytes = step_.num_logit_rows() * config_.vocab_size * kValueBytes;
        return {{}, {}, {{"scan", {"logits", LaunchPart::kRest, bytes, 0}}}};
      }
      case StepBlock::kEmbed: {
        if (!step_.is_prompt) break;
        return {{}, {}, {{"embed", {"embed", LaunchPart::kRest, 2 * values(config_.hidden_size)}}}};
      }
      case StepBlock::kOpen:
      case StepBlock::kClose:
        break;
    }
    return {};
  }

 private:
  /// Bytes of so many values a row.
  int64_t values(int64_t count) const { return step_.num_rows * count * kValueBytes; }

  /// `widths`: values a row that go in or out, where that is counted.
  LaunchWork projection(std::string role, std::initializer_list<WeightView> weights,
                        int64_t widths) const {
    LaunchWork work = {std::move(role), LaunchPart::kProjections};
    const WeightView& main = *weights.begin();
    cuda::MatmulShape product = {step_.num_rows, 0, static_cast<int>(main.num_in)};
    for (const WeightView& weight : weights) {
      work.bytes += packed_weight_bytes(weight);
      work.flop += product_flop(weight, step_.num_rows);
      if (weight.format == main.format) product.num_out += static_cast<int>(weight.num_out);
    }
    if (step_.is_prompt) work.bytes += values(widths);
    work.product = product;
    return work;
  }

  /// Behind the norm that a prompt's blocks begin with.
  void add_norm(BlockWork* work) const {
    if (!step_.is_prompt) return;
    for (const std::string_view kernel : {"operands", "norm_kernel"}) {
      work->core.push_back({kernel, {"norm", LaunchPart::kRest, 2 * values(config_.hidden_size)}});
    }
    work->core.push_back({"requantise", {"to e4m3", LaunchPart::kRest}});
  }

  BlockWork gdn() const {
    const auto& w = first_mixer<GdnLayerWeights>(weights_);
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.linear_num_value_heads;
    const int64_t conv_dim = config_.conv_dim();
    const int64_t value_dim = config_.linear_value_dim();
    const int64_t layers = config_.num_linear_attention_layers();
    const int64_t flop = gdn_flop(config_, step_.num_rows);
    const int64_t state = state_traffic(config_, step_.num_sessions, 0) / layers;
    BlockWork work = {
        projection("qkv z b a", {w.in_proj_qkv, w.in_proj_z, w.in_proj_b, w.in_proj_a},
                   hidden + conv_dim + value_dim + 2 * heads),
        projection("out_proj", {w.out_proj}, value_dim + 2 * hidden)};
    const int64_t step_bytes = state_traffic(config_, step_.num_sessions, step_.num_rows) / layers;
    for (const std::string_view kernel : {"gdn_core", "gdn_step"}) {
      work.core.push_back({kernel, {"core", LaunchPart::kGdn, step_bytes, flop}});
    }
    if (!step_.is_prompt) return work;
    // Its name has the other norm's in it.
    work.core.push_back(
        {"gated_norm_kernel", {"gated norm", LaunchPart::kGdn, values(2 * value_dim)}});
    add_norm(&work);
    work.core.push_back(
        {"factors", {"factors", LaunchPart::kGdn, values(conv_dim - value_dim + 2 * heads), 0}});
    work.core.push_back({"values_kernel", {"values", LaunchPart::kGdn, values(value_dim), 0}});
    work.core.push_back({"scan", {"scan", LaunchPart::kGdn, state, flop}});
    return work;
  }

  BlockWork attention() const {
    const auto& w = first_mixer<AttentionLayerWeights>(weights_);
    const int64_t hidden = config_.hidden_size;
    const int64_t width = config_.attention_dim();
    const int64_t kv_width = config_.key_value_dim();
    const int64_t rows_each = step_.num_rows / step_.num_sessions;
    const int64_t flop =
        step_.num_sessions * attention_flop(config_, step_.context - rows_each, rows_each);
    const int64_t kv = kv_traffic(config_, step_.num_sessions, step_.context) /
                       config_.num_full_attention_layers();
    BlockWork work = {
        projection("q k v", {w.q_proj, w.k_proj, w.v_proj}, hidden + 2 * width + 2 * kv_width),
        projection("o_proj", {w.o_proj}, width + 2 * hidden)};
    work.core.push_back({"spans", {"core", LaunchPart::kAttention, kv, flop}});
    const LaunchWork products = {"products", LaunchPart::kAttention, kv + values(width), flop};
    const LaunchWork core = {"core", LaunchPart::kAttention, kv, flop};
    work.core.push_back({"attention_kernel", step_.is_prompt ? products : core});
    if (!step_.is_prompt) return work;
    add_norm(&work);
    const int64_t prepared = values(2 * width + 4 * kv_width);  // keys and values go to their pages
    work.core.push_back({"prepare", {"prepare", LaunchPart::kAttention, prepared}});
    work.core.push_back({"merge", {"merge", LaunchPart::kAttention}});
    return work;
  }

  BlockWork mlp() const {
    const MlpWeights& w = weights_.layers[0].mlp;
    const int64_t hidden = config_.hidden_size;
    BlockWork work = {
        projection("gate up", {w.gate_proj, w.up_proj}, hidden + config_.intermediate_size),
        projection("down_proj", {w.down_proj}, config_.intermediate_size + 2 * hidden)};
    add_norm(&work);
    return work;
  }

  const ModelWeights& weights_;
  const ModelConfig& config_;
  const StepCase& step_;
};

/// "norm" for a block's first kernel of that name, "norm 2" for the second.
std::string nth_of_its_name(std::span<const LaunchWork> before, const std::string& name) {
  const auto is_same = [&](const LaunchWork& work) {
    return work.role == name || work.role.starts_with(name + " ");
  };
  const auto num_before = std::ranges::count_if(before, is_same);
  return num_before == 0 ? name : fmt::format("{} {}", name, num_before + 1);
}

const CoreWork* find_core(const BlockWork& work, const std::string& kernel) {
  const auto found = std::ranges::find_if(
      work.core, [&](const CoreWork& core) { return has(kernel, core.kernel); });
  return found == work.core.end() ? nullptr : &*found;
}

/// Of a work that so many launches of the block share.
LaunchWork share_of(const LaunchWork& work, int64_t num_launches) {
  LaunchWork share = work;
  share.bytes /= num_launches;
  share.flop /= num_launches;
  return share;
}

}  // namespace

std::string_view part_name(LaunchPart part) {
  switch (part) {
    case LaunchPart::kProjections:
      return "GEMM";
    case LaunchPart::kAttention:
      return "attention";
    case LaunchPart::kGdn:
      return "GDN";
    case LaunchPart::kRest:
      return "rest";
  }
  SLUICE_CHECK(false);
  return "";
}

std::vector<LaunchWork> works_of(StepBlock block, std::span<const std::string> kernels,
                                 const ModelWeights& weights, const StepCase& step) {
  const BlockWork work = Accountant(weights, step).work_of(block);
  const auto is_mixers = [](const CoreWork* core) {
    return core != nullptr && core->work.part != LaunchPart::kRest;
  };
  const auto num_projections = std::ranges::count_if(kernels, is_projection);
  const bool has_core = std::ranges::any_of(
      kernels, [&](const std::string& kernel) { return is_mixers(find_core(work, kernel)); });
  std::vector<LaunchWork> works;
  int64_t num_seen = 0;
  bool is_behind_core = false;
  for (const std::string& kernel : kernels) {
    const CoreWork* core = find_core(work, kernel);
    if (is_projection(kernel)) {
      const bool is_last = has_core ? is_behind_core : 2 * num_seen >= num_projections;
      // The FP8 mode leaves a mixer's BF16 weights, a few rows, to a launch of their own.
      const bool is_leftover = has_core && !is_last && num_seen > 0;
      works.push_back(is_leftover ? LaunchWork{"b a", LaunchPart::kProjections}
                      : is_last   ? work.last
                                  : work.first);
      ++num_seen;
    } else if (core != nullptr) {
      is_behind_core |= is_mixers(core);
      works.push_back(share_of(core->work, std::ranges::count_if(kernels, [&](const auto& name) {
                                 return find_core(work, name) == core;
                               })));
    } else {
      works.push_back({nth_of_its_name(works, kernel.substr(0, kernel.find('<')))});
    }
  }
  return works;
}

}  // namespace sluice
