#include "apps/bench/launch_table.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "apps/bench/step_traffic.h"

namespace sluice {
namespace {

constexpr size_t kKernelNameMax = 40;

struct Work {
  std::string role;
  int64_t bytes = 0;
};

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

bool is_projection(const std::string& kernel) {
  return has(kernel, "resident") || has(kernel, "streamed") || has(kernel, "gemm") ||
         has(kernel, "linear_kernel") || has(kernel, "gate_up");
}

/// The kernel that moves the state: one of these a block.
bool is_core(StepBlock block, const std::string& kernel) {
  if (block == StepBlock::kGdnMixer) return has(kernel, "gdn_core") || has(kernel, "gdn_step");
  if (block == StepBlock::kDraw) return has(kernel, "scan");
  return block == StepBlock::kAttentionMixer &&
         (has(kernel, "spans") || has(kernel, "attention_kernel"));
}

template <typename Mixer>
const Mixer& first_mixer(const ModelWeights& weights) {
  const auto layer = std::ranges::find_if(
      weights.layers, [](const LayerWeights& w) { return std::holds_alternative<Mixer>(w.mixer); });
  SLUICE_CHECK(layer != weights.layers.end());
  return std::get<Mixer>(layer->mixer);
}

int64_t bytes_of(std::initializer_list<WeightView> views) {
  int64_t bytes = 0;
  for (const WeightView& view : views) bytes += packed_weight_bytes(view);
  return bytes;
}

/// What a block's first and last projections stream. A head has one.
struct BlockWork {
  Work first, last, core;
};

BlockWork block_work(StepBlock block, const ModelWeights& weights, const StepCase& step) {
  const ModelConfig& config = weights.config;
  switch (block) {
    case StepBlock::kGdnMixer: {
      const auto& w = first_mixer<GdnLayerWeights>(weights);
      return {{"qkv z b a", bytes_of({w.in_proj_qkv, w.in_proj_z, w.in_proj_b, w.in_proj_a})},
              {"out_proj", bytes_of({w.out_proj})},
              {"core", state_traffic(config, step.num_sessions, step.num_rows) /
                           config.num_linear_attention_layers()}};
    }
    case StepBlock::kAttentionMixer: {
      const auto& w = first_mixer<AttentionLayerWeights>(weights);
      return {{"q k v", bytes_of({w.q_proj, w.k_proj, w.v_proj})},
              {"o_proj", bytes_of({w.o_proj})},
              {"core", kv_traffic(config, step.num_sessions, step.context) /
                           config.num_full_attention_layers()}};
    }
    case StepBlock::kMlp: {
      const MlpWeights& w = weights.layers[0].mlp;
      return {{"gate up", bytes_of({w.gate_proj, w.up_proj})},
              {"down_proj", bytes_of({w.down_proj})},
              {}};
    }
    case StepBlock::kHead: {
      const Work head = {"lm_head", bytes_of({weights.lm_head})};
      return {head, head, {}};
    }
    case StepBlock::kDraw: {
      constexpr auto kLogitBytes = static_cast<int64_t>(sizeof(bf16));
      return {{}, {}, {"logits", step.num_rows * config.vocab_size * kLogitBytes}};
    }
    case StepBlock::kOpen:
    case StepBlock::kEmbed:
    case StepBlock::kClose:
      break;
  }
  return {};
}

/// "norm" for a block's first kernel of that name, "norm 2" for the second.
std::string nth_of_its_name(std::span<const Work> before, const std::string& name) {
  const auto is_same = [&](const Work& work) {
    return work.role == name || work.role.starts_with(name + " ");
  };
  const auto num_before = std::ranges::count_if(before, is_same);
  return num_before == 0 ? name : fmt::format("{} {}", name, num_before + 1);
}

/// Of each launch of one block.
std::vector<Work> works_of(StepBlock block, std::span<const std::string> kernels,
                           const BlockWork& work) {
  const auto num_projections = std::ranges::count_if(kernels, is_projection);
  const bool has_core = std::ranges::any_of(
      kernels, [&](const std::string& kernel) { return is_core(block, kernel); });
  std::vector<Work> works;
  int64_t num_seen = 0;
  bool is_behind_core = false;
  for (const std::string& kernel : kernels) {
    if (is_core(block, kernel)) {
      is_behind_core = true;
      works.push_back(work.core);
    } else if (is_projection(kernel)) {
      const bool is_last = has_core ? is_behind_core : 2 * num_seen >= num_projections;
      works.push_back(is_last ? work.last : work.first);
      ++num_seen;
    } else {
      works.push_back({nth_of_its_name(works, kernel.substr(0, kernel.find('<'))), 0});
    }
  }
  return works;
}

bool belongs(const LaunchGroup& group, StepBlock block, const Work& work,
             const cuda::StepLaunch& launch, const std::string& kernel) {
  return group.block == block && group.role == work.role && group.kernel == kernel &&
         group.grid == launch.grid && group.threads == launch.threads &&
         group.is_chained == launch.is_chained;
}

}  // namespace

std::string short_kernel_name(const std::string& name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string text = status == 0 ? demangled : name;
  std::free(demangled);
  constexpr std::string_view kDropped[] = {"(anonymous namespace)::", "sluice::cuda::", "void "};
  for (const std::string_view dropped : kDropped) {
    for (size_t at = text.find(dropped); at != std::string::npos; at = text.find(dropped, at)) {
      text.erase(at, dropped.size());
    }
  }
  // The arguments begin at the first parenthesis outside of <>: template values may have casts.
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
    if (text[i] == '(' && depth == 0) text.resize(i);
  }
  const size_t name_end = std::min(text.find('<'), text.size());
  if (const size_t colons = text.rfind("::", name_end); colons < name_end) {
    text.erase(0, colons + 2);
  }
  if (text.size() > kKernelNameMax) text.resize(kKernelNameMax);
  return text;
}

std::vector<LaunchGroup> group_launches(std::span<const cuda::StepLaunch> launches,
                                        std::span<const BlockStart> blocks,
                                        const ModelWeights& weights, const StepCase& step) {
  std::vector<LaunchGroup> groups;
  std::vector<std::string> kernels;
  for (const cuda::StepLaunch& launch : launches) {
    kernels.push_back(short_kernel_name(launch.kernel));
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const StepBlock block = blocks[b].block;
    const auto first = static_cast<size_t>(blocks[b].first_launch);
    const size_t end =
        b + 1 < blocks.size() ? static_cast<size_t>(blocks[b + 1].first_launch) : launches.size();
    const std::vector<Work> works = works_of(block, std::span(kernels).subspan(first, end - first),
                                             block_work(block, weights, step));
    for (size_t i = first; i < end; ++i) {
      const Work& work = works[i - first];
      const cuda::StepLaunch& launch = launches[i];
      auto group = std::ranges::find_if(groups, [&](const LaunchGroup& g) {
        return belongs(g, block, work, launch, kernels[i]);
      });
      if (group == groups.end()) {
        groups.push_back({block,
                          work.role,
                          kernels[i],
                          launch.grid,
                          launch.threads,
                          launch.is_chained,
                          {},
                          work.bytes,
                          0.0});
        group = groups.end() - 1;
      }
      group->launches.push_back(static_cast<int>(i));
    }
  }
  return groups;
}

Result<std::vector<LaunchGroup>> time_launches(StepRunner* runner, const ModelWeights& weights,
                                               const StepCase& step, int num_rounds) {
  SLUICE_ASSIGN_OR_RETURN(const CaughtStep caught, runner->catch_step(step));
  std::vector<LaunchGroup> groups =
      group_launches(caught.launches->all(), caught.blocks, weights, step);
  for (LaunchGroup& group : groups) {
    // These two count steps: alone they would tell the host of steps that never were.
    if (group.block == StepBlock::kOpen || group.block == StepBlock::kClose) continue;
    group.us = caught.launches->chain_us(group.launches, num_rounds) /
               static_cast<double>(group.launches.size());
  }
  return groups;
}

std::string launch_table(std::span<const LaunchGroup> groups, double step_us, double gbs) {
  std::string table = fmt::format("{:<10}{:<19}{:<{}}{:>11}{:>5}{:>10}{:>9}{:>9}{:>7}{:>9}{:>7}\n",
                                  "block", "role", "kernel", kKernelNameMax + 2, "grid", "n",
                                  "MB each", "us each", "us step", "%", "GB/s", "% bw");
  double sum_us = 0.0;
  bool has_plain = false;
  for (const LaunchGroup& group : groups) {
    const double us = group.us * static_cast<double>(group.launches.size());
    sum_us += us;
    has_plain |= !group.is_chained;
    const double group_gbs =
        group.us > 0.0 ? static_cast<double>(group.bytes) / group.us * 1e-3 : 0.0;
    const std::string speed =
        group.bytes == 0 || group.us <= 0.0
            ? fmt::format("{:>9}{:>7}", "-", "-")
            : fmt::format("{:>9.0f}{:>7.1f}", group_gbs, 100.0 * group_gbs / gbs);
    table += fmt::format(
        "{:<10}{:<18}{:<{}}{:>11}{:>5}{:>10.3f}{:>9.2f}{:>9.1f}{:>7.2f}{}\n",
        block_name(group.block), group.role, group.kernel + (group.is_chained ? "" : " *"),
        kKernelNameMax + 2, fmt::format("{}x{}", group.grid, group.threads), group.launches.size(),
        static_cast<double>(group.bytes) * 1e-6, group.us, us, 100.0 * us / step_us, speed);
  }
  table +=
      fmt::format("sum of groups {:.1f} us, the step {:.1f} us: {:.1f} us are left ({:.1f} %)\n",
                  sum_us, step_us, step_us - sum_us, 100.0 * (step_us - sum_us) / step_us);
  if (has_plain) table += "* waits for the whole of the launch ahead of it\n";
  return table;
}

}  // namespace sluice
