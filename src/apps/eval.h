#pragma once

#include <string>

#include "apps/model_flags.h"

namespace sluice {

/// `sluice eval`: recorded conversations, each assistant turn generated greedily on its gold prefix
/// and compared with the gold turn id by id. File format: tools/tiny_agent/README.md.
struct EvalOptions {
  ModelFlags model;
  std::string file;
  int64_t limit = 0;       // episodes; 0: all
  double min_exact = 0.0;  // the share of exact episodes below which the exit code is 1
  bool verbose = false;    // shows the first turns that differ
};
int run_eval(const EvalOptions& options);

}  // namespace sluice
