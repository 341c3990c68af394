#pragma once

#include <string>
#include <vector>

#include "apps/model_flags.h"

namespace sluice {

/// `sluice verify`: the model on this machine against the oracle's recorded values and against itself.
struct VerifyCommandOptions {
  ModelFlags model;
  std::string golden_dir;   // "": for the embedded model its own, else only what needs no oracle
  int64_t num_ids_max = 0;  // longer cases are left out; 0: none
  int num_cuts = 12;
  uint64_t seed = 1;
  std::string against;  // a second backend by name, as diff's; "": none
};
/// Prints a table. Exit code 0 only when every check passed.
int run_verify(const VerifyCommandOptions& options);

/// `sluice diff`: two backends op by op, and the first op that departs.
struct DiffCommandOptions {
  ModelFlags model;
  int64_t layer = -1;
  std::string after;
  std::vector<std::string> backends;  // two names
  std::string ids;                    // as for `run`; "": num_ids at random
  int64_t num_ids = 16;
  uint64_t seed = 1;
  double max_ulps = 2.0;
};
/// Exit code 0 only when no op departs.
int run_diff(const DiffCommandOptions& options);

}  // namespace sluice
