#include "apps/bench/part_table.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr size_t kKernelMax = 28;
constexpr LaunchPart kParts[] = {LaunchPart::kProjections, LaunchPart::kAttention, LaunchPart::kGdn,
                                 LaunchPart::kRest};

/// "-" where there is nothing to say.
std::string number(double value, int digits, int width) {
  return value > 0.0 ? fmt::format("{:>{}.{}f}", value, width, digits)
                     : fmt::format("{:>{}}", "-", width);
}

double ratio(double numerator, double denominator) {
  return denominator > 0.0 ? numerator / denominator : 0.0;
}

/// Speeds and the share of the ceiling: of work that took so long.
std::string speed_columns(double flop, double bytes, double floor_us, double us) {
  return number(ratio(flop * 1e-6, us), 1, 9) + number(ratio(bytes * 1e-3, us), 0, 8) +
         number(100.0 * ratio(floor_us, us), 1, 8);
}

std::string group_line(const PartGroup& part, const Ceilings& ceilings, double step_us) {
  const LaunchGroup& group = part.group;
  const auto flop = static_cast<double>(group.work.flop);
  const auto bytes = static_cast<double>(group.work.bytes);
  const std::string kernel = group.kernel.substr(0, kKernelMax);
  return fmt::format(
      "{:<10}{:<18}{:<{}}{:>9}{:>4}{}{}{:>9.2f}{:>10.1f}{:>7.2f}{}{}{}{}{}\n",
      part_name(group.work.part), group.work.role, kernel + (group.is_chained ? "" : " *"),
      kKernelMax + 3, fmt::format("{}x{}", group.grid, group.threads), group.launches.size(),
      number(flop * 1e-9, 2, 10), number(bytes * 1e-6, 2, 10), group.us, group.step_us(),
      100.0 * group.step_us() / step_us,
      speed_columns(flop, bytes, floor_us(part, ceilings), group.us),
      number(part.peer.bf16_us, 1, 10), number(ratio(part.peer_us(), group.us), 2, 7),
      number(part.peer.fp8_block_us, 1, 11), number(part.peer.fp8_tensor_us, 1, 10));
}

/// Sums of one part over the step.
struct PartSum {
  size_t num_launches = 0;
  double flop = 0.0;
  double bytes = 0.0;
  double floor_us = 0.0;
  double us = 0.0;
  double peer_us = 0.0;

  void add(const PartGroup& part, const Ceilings& ceilings) {
    const auto count = static_cast<double>(part.group.launches.size());
    num_launches += part.group.launches.size();
    flop += count * static_cast<double>(part.group.work.flop);
    bytes += count * static_cast<double>(part.group.work.bytes);
    floor_us += count * sluice::floor_us(part, ceilings);
    us += part.group.step_us();
    peer_us += count * part.peer_us();
  }
};

std::string sum_row(std::string_view name, const PartSum& sum, double step_us) {
  return fmt::format("{:<10}{:>10}{}{}{:>11.1f}{:>7.2f}{}{}\n", name, sum.num_launches,
                     number(sum.flop * 1e-12, 3, 10), number(sum.bytes * 1e-9, 3, 9), sum.us,
                     100.0 * sum.us / step_us,
                     speed_columns(sum.flop, sum.bytes, sum.floor_us, sum.us),
                     number(ratio(sum.peer_us, sum.us), 2, 11));
}

}  // namespace

double floor_us(const PartGroup& part, const Ceilings& ceilings) {
  const double tflops = part.is_fp8() ? ceilings.fp8_tflops : ceilings.bf16_tflops;
  return std::max(ratio(static_cast<double>(part.group.work.bytes), ceilings.gbs * 1e3),
                  ratio(static_cast<double>(part.group.work.flop), tflops * 1e6));
}

std::string part_table(std::span<const PartGroup> groups, const Ceilings& ceilings,
                       double step_us) {
  std::string table = fmt::format(
      "{:<10}{:<18}{:<{}}{:>9}{:>4}{:>10}{:>10}{:>9}{:>10}{:>7}{:>9}{:>8}{:>8}{:>10}{:>7}{:>11}"
      "{:>10}\n",
      "part", "role", "kernel", kKernelMax + 3, "grid", "n", "GFLOP", "MB", "us", "us step", "%",
      "TFLOP/s", "GB/s", "% ceil", "bf16 us", "ratio", "fp8 blk us", "fp8 us");
  bool has_plain = false;
  for (const PartGroup& part : groups) {
    table += group_line(part, ceilings, step_us);
    has_plain |= !part.group.is_chained;
  }
  if (has_plain) table += "* waits for the whole of the launch ahead of it\n";
  table += fmt::format("\n{:<10}{:>10}{:>10}{:>9}{:>11}{:>7}{:>9}{:>8}{:>8}{:>11}\n", "part",
                       "launches", "TFLOP", "GB", "us", "%", "TFLOP/s", "GB/s", "% ceil", "ratio");
  PartSum all;
  for (const LaunchPart part : kParts) {
    PartSum sum;
    for (const PartGroup& group : groups) {
      if (group.group.work.part == part) sum.add(group, ceilings);
    }
    table += sum_row(part_name(part), sum, step_us);
  }
  for (const PartGroup& group : groups) all.add(group, ceilings);
  all.peer_us = 0.0;  // of projections alone
  table += sum_row("sum", all, step_us);
  return table + sum_line(all.us, step_us);
}

}  // namespace sluice
