#pragma once

#include <string>
#include <vector>

#include "verify/model_runner.h"

namespace sluice {

/// Named hashes of everything a run left behind; equal names in equal order for equal shapes.
struct Fingerprint {
  struct Part {
    std::string name;
    uint64_t hash = 0;
  };
  std::vector<Part> parts;

  /// Hash of every row's logits and hidden vector; the latter lie in `memory`.
  void add_rows(const MemoryTable& memory, std::string name, const StepOutput& output);
  /// Recurrent state, the conv inputs that a later row reads, keys and values of every layer.
  void add_state(ModelRunner& runner, const Sequence& sequence);
};

/// The first part that differs; empty when none does.
std::string first_difference(const Fingerprint& a, const Fingerprint& b);

}  // namespace sluice
