#include "apps/bench/launch_table.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

namespace sluice {
namespace {

constexpr size_t kKernelNameMax = 40;

bool belongs(const LaunchGroup& group, StepBlock block, const LaunchWork& work,
             const cuda::StepLaunch& launch, const std::string& kernel) {
  return group.block == block && group.work.role == work.role && group.kernel == kernel &&
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
    const std::vector<LaunchWork> works =
        works_of(block, std::span(kernels).subspan(first, end - first), weights, step);
    for (size_t i = first; i < end; ++i) {
      const LaunchWork& work = works[i - first];
      const cuda::StepLaunch& launch = launches[i];
      auto group = std::ranges::find_if(groups, [&](const LaunchGroup& g) {
        return belongs(g, block, work, launch, kernels[i]);
      });
      if (group == groups.end()) {
        groups.push_back(
            {block, work, kernels[i], launch.grid, launch.threads, launch.is_chained, {}, 0.0});
        group = groups.end() - 1;
      }
      group->launches.push_back(static_cast<int>(i));
    }
  }
  return groups;
}

void time_group(const cuda::StepLaunches& launches, int num_rounds, LaunchGroup* group) {
  if (group->block == StepBlock::kOpen || group->block == StepBlock::kClose) return;
  group->us =
      launches.chain_us(group->launches, num_rounds) / static_cast<double>(group->launches.size());
}

std::string sum_line(double sum_us, double step_us) {
  return fmt::format("sum of groups {:.1f} us, the step {:.1f} us: {:.1f} us are left ({:.1f} %)\n",
                     sum_us, step_us, step_us - sum_us, 100.0 * (step_us - sum_us) / step_us);
}

std::string launch_table(std::span<const LaunchGroup> groups, double step_us, double gbs) {
  std::string table = fmt::format("{:<10}{:<19}{:<{}}{:>11}{:>5}{:>10}{:>9}{:>9}{:>7}{:>9}{:>7}\n",
                                  "block", "role", "kernel", kKernelNameMax + 2, "grid", "n",
                                  "MB each", "us each", "us step", "%", "GB/s", "% bw");
  double sum_us = 0.0;
  bool has_plain = false;
  for (const LaunchGroup& group : groups) {
    const double us = group.step_us();
    sum_us += us;
    has_plain |= !group.is_chained;
    const double group_gbs =
        group.us > 0.0 ? static_cast<double>(group.work.bytes) / group.us * 1e-3 : 0.0;
    const std::string speed =
        group.work.bytes == 0 || group.us <= 0.0
            ? fmt::format("{:>9}{:>7}", "-", "-")
            : fmt::format("{:>9.0f}{:>7.1f}", group_gbs, 100.0 * group_gbs / gbs);
    table += fmt::format(
        "{:<10}{:<18}{:<{}}{:>11}{:>5}{:>10.3f}{:>9.2f}{:>9.1f}{:>7.2f}{}\n",
        block_name(group.block), group.work.role, group.kernel + (group.is_chained ? "" : " *"),
        kKernelNameMax + 2, fmt::format("{}x{}", group.grid, group.threads), group.launches.size(),
        static_cast<double>(group.work.bytes) * 1e-6, group.us, us, 100.0 * us / step_us, speed);
  }
  table += sum_line(sum_us, step_us);
  if (has_plain) table += "* waits for the whole of the launch ahead of it\n";
  return table;
}

}  // namespace sluice
