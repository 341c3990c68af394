#pragma once

#include <string>
#include <vector>

#include "apps/tools/confined_dir.h"
#include "base/status.h"

namespace sluice {

struct DirEntry {
  std::string name;
  EntryKind kind = EntryKind::kOther;
  bool is_link = false;  // kind is kOther then: the link is not followed
};

/// Everything in the directory but "." and "..", unordered; at most `num_entries_max`, and
/// kResourceExhausted when there are more. Takes the descriptor over.
Result<std::vector<DirEntry>> read_entries(UniqueFd dir, int64_t num_entries_max);

}  // namespace sluice
