#pragma once

#include <optional>
#include <string>

namespace sluice {

/// `sluice info`: what a model is, what it weighs and how fast a memory lets it decode.
struct InfoOptions {
  std::string model_dir;  // "": the embedded model
  /// Instead of a directory: the budget of a published size ("27B") in "bf16" or "fp8", without any file.
  std::string size;
  std::string format = "bf16";
  std::optional<double> bandwidth_gbs;  // 10^9 bytes a second
  /// Reads every weight and refuses values that are not finite, whatever the model's size.
  bool verify_values = false;
};
/// Exit code; the report goes to standard output, warnings and errors to standard error.
int run_info(const InfoOptions& options);

}  // namespace sluice
