#pragma once
// Loading a published checkpoint: config.json, index, shards -> checked weights over memory maps.

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "model/config.h"
#include "model/tensor_table.h"
#include "model/weights.h"

namespace sluice {

enum class VerifyValues {
  kAuto,   // kAll up to kVerifyAutoBytesMax of weights, kSmall above
  kAll,    // every weight is read once and must be finite: about a second per 10 GB that is in the
           // page cache
  kSmall,  // norms, vectors, convolutions and block scales only; big matrices are not touched
};
inline constexpr int64_t kVerifyAutoBytesMax = int64_t{4} << 30;

struct LoadOptions {
  VerifyValues verify_values = VerifyValues::kAuto;
  /// False leaves the draft head out even when the checkpoint has one.
  bool load_mtp = true;
  /// Threads of the value scan; 0 means one per core.
  int num_threads = 0;
};

/// What a loader noticed and what the caller may want to print.
struct Diagnostics {
  std::vector<std::string> warnings;  // probably wrong, loads anyway
  std::vector<std::string> notes;     // worth knowing
};

/// Owns the maps and the widened small tensors behind `weights`. Movable; views stay valid across a
/// move.
class LoadedModel {
 public:
  LoadedModel();
  LoadedModel(LoadedModel&&) noexcept;
  LoadedModel& operator=(LoadedModel&&) noexcept;
  ~LoadedModel();

  ModelWeights weights;
  GenerationConfig generation;
  std::vector<int32_t> stop_token_ids;
  Diagnostics diagnostics;
  /// The tensors behind `weights` with their stored dtypes, scales included, in the order of the table.
  std::vector<TensorSpec> tensors;
  /// Their bytes, as stored.
  int64_t weight_bytes = 0;

  struct Storage;
  std::unique_ptr<Storage> storage;
};

/// Every tensor is checked for presence, shape, dtype and (verify_values) finite values. Big
/// matrices are views of the mapped files; one whose bytes are not aligned to its elements is
/// copied and noted. A weight is block FP8 when its header says F8_E4M3 and
/// `<module>.weight_scale_inv` is there; config.json's list of excluded modules is never consulted.
/// Rows of block FP8 have whole blocks, else kUnsupported.
/// Vision tensors (`model.visual.*`) are skipped. Block scales: not finite or negative is an error;
/// zero is allowed (the block is zero) and counted in a warning. Errors are one line: file, tensor,
/// found, expected. Source: model-spec 1.5, 2.1 to 2.6.
Result<LoadedModel> load_model(const Path& dir, const LoadOptions& options);

}  // namespace sluice
