#include "model/report.h"

#include <map>

namespace sluice {
namespace {

std::string scaled(double value, double base, std::span<const std::string_view> units) {
  size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", value, units[unit])
                   : fmt::format("{:.2f} {}", value, units[unit]);
}

std::string tensor_row(std::string_view what, const TensorTotals& found,
                       const TensorTotals& expected) {
  return fmt::format("  {:<12}{:>8} of {:>5}  {:>16} parameters  {:>16} bytes  {:>10}\n", what,
                     found.num_tensors, expected.num_tensors, grouped(found.num_parameters),
                     grouped(found.num_bytes), binary_bytes(found.num_bytes));
}

std::string byte_row(std::string_view what, int64_t target, int64_t draft) {
  return fmt::format("  {:<16}{:>18}{:>18}\n", what, grouped(target), grouped(draft));
}

bool has_mtp(std::span<const TensorSpec> tensors) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.is_mtp) return true;
  }
  return false;
}

// The table that these tensors fill when none is missing.
std::vector<TensorSpec> expected_table(const ModelConfig& config,
                                       std::span<const TensorSpec> tensors) {
  StorageFormat format;
  format.has_mtp = has_mtp(tensors) || config.mtp_num_hidden_layers > 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role == TensorRole::kLinear && tensor.dtype == Dtype::kF8E4M3) {
      format.linears = WeightFormat::kFp8Block128;
    }
  }
  return checkpoint_tensors(config, format);
}

std::string floor_text(const StepBytes& target, const StepBytes& draft,
                       const SequenceBytes& sequence, double bandwidth_gbs) {
  const auto milliseconds = [&](int64_t bytes) {
    return static_cast<double>(bytes) / (bandwidth_gbs * 1e6);
  };
  const double step_ms = milliseconds(target.total());
  constexpr int64_t kContext = 32768;
  const int64_t per_row = 2 * (sequence.recurrent_state + sequence.conv_state);
  std::string text = fmt::format(
      "floor at {:.0f} GB/s\n"
      "  weights of a step {:.3f} ms ({:.0f} steps/s)\n"
      "  each sequence adds {:.3f} ms of state and {:.3f} ms of KV at {} tokens\n",
      bandwidth_gbs, step_ms, 1000.0 / step_ms, milliseconds(per_row),
      milliseconds(sequence.kv_per_token * kContext), grouped(kContext));
  if (draft.total() > 0) {
    text += fmt::format("  one pass of the draft head {:.3f} ms, of which the head {:.3f} ms\n",
                        milliseconds(draft.total()), milliseconds(draft.lm_head));
  }
  return text;
}

}  // namespace

std::string decimal_bytes(int64_t bytes) {
  static constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  return scaled(static_cast<double>(bytes), 1000.0, kUnits);
}

std::string binary_bytes(int64_t bytes) {
  static constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool starts_group = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (starts_group) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string describe_config(const ModelConfig& config, const GenerationConfig& generation,
                            std::span<const int32_t> stop_token_ids) {
  return fmt::format(
      "layers      {} ({} linear_attention, {} full_attention)\n"
      "sizes       hidden {}, mlp {}, vocabulary {}, context {}\n"
      "attention   {} query heads over {} key/value heads of {}, rotary {} with theta {:g}\n"
      "delta rule  {} value heads over {} key heads of {}, convolution over {}\n"
      "head        {}\n"
      "stop ids    {}\n"
      "sampling    {}temperature {:g}, top_k {}, top_p {:g}\n",
      config.num_hidden_layers, config.num_linear_attention_layers(),
      config.num_full_attention_layers(), config.hidden_size, config.intermediate_size,
      config.vocab_size, config.max_position_embeddings, config.num_attention_heads,
      config.num_key_value_heads, config.head_dim, config.rotary_dim, config.rope_theta,
      config.linear_num_value_heads, config.linear_num_key_heads, config.linear_key_head_dim,
      config.linear_conv_kernel_dim,
      config.tie_word_embeddings ? "tied to embed_tokens" : "lm_head of its own",
      fmt::join(stop_token_ids, ", "), generation.do_sample ? "" : "off; ", generation.temperature,
      generation.top_k, generation.top_p);
}

std::string describe_tensors(const ModelConfig& config, std::span<const TensorSpec> tensors) {
  const ModelTotals found = model_totals(tensors);
  const ModelTotals expected = model_totals(expected_table(config, tensors));
  std::string text = "tensors\n" + tensor_row("text", found.text, expected.text) +
                     tensor_row("mtp", found.mtp, expected.mtp);
  std::map<std::string_view, TensorTotals> by_dtype;
  for (const TensorSpec& tensor : tensors) {
    TensorTotals& row = by_dtype[dtype_name(tensor.dtype)];
    ++row.num_tensors;
    row.num_bytes += tensor.num_bytes();
  }
  for (const auto& [name, row] : by_dtype) {
    text += fmt::format("  {:<12}{:>8} tensors  {:>45} bytes  {:>10}\n", name, row.num_tensors,
                        grouped(row.num_bytes), binary_bytes(row.num_bytes));
  }
  return text;
}

std::string describe_budget(const ModelConfig& config, std::span<const TensorSpec> tensors,
                            std::optional<double> bandwidth_gbs) {
  const StepBytes target = step_bytes(tensors, StepPart::kTarget);
  const StepBytes draft = has_mtp(tensors) ? step_bytes(tensors, StepPart::kDraft) : StepBytes();
  const SequenceBytes sequence = sequence_bytes(config);
  std::string text = fmt::format("one decode step reads{:>15}{:>18}\n", "target", "draft head");
  text += byte_row("FP8 linears", target.fp8_linears, draft.fp8_linears);
  text += byte_row("block scales", target.scales, draft.scales);
  text += byte_row("BF16 linears", target.bf16_linears, draft.bf16_linears);
  text += byte_row("lm_head", target.lm_head, draft.lm_head);
  text += byte_row("norms, conv", target.other, draft.other);
  text += byte_row("embedding row", target.embedding, draft.embedding);
  text += byte_row("total", target.total(), draft.total());
  text += fmt::format(
      "one sequence\n"
      "  recurrent state {}, conv state {}, fixed\n"
      "  KV cache {} a token, draft head {} a token\n",
      binary_bytes(sequence.recurrent_state), binary_bytes(sequence.conv_state),
      binary_bytes(sequence.kv_per_token),
      binary_bytes(has_mtp(tensors) ? sequence.mtp_kv_per_token : 0));
  if (bandwidth_gbs) text += floor_text(target, draft, sequence, *bandwidth_gbs);
  return text;
}

}  // namespace sluice
