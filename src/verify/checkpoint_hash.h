#pragma once

#include <string>

#include "base/file.h"
#include "base/status.h"

namespace sluice {

/// Names a checkpoint by its weights: XXH3-128 in hex over, for every *.safetensors of `dir` in bytewise order of
/// names, the name, a zero byte, the file's own XXH3-128 in hex and a line feed. Reads every weight once.
Result<std::string> checkpoint_hash(const Path& dir);

}  // namespace sluice
