#pragma once

#include <memory>

#include "apps/tools/confined_dir.h"
#include "apps/tools/tool_set.h"

namespace sluice {

/// list_dir, read_file, search, calc and, when asked for, write_file, over one directory tree. The
/// schemas' text is part of what the embedded model was trained on.
ToolSet builtin_tools(std::shared_ptr<const ConfinedDir> dir, bool allow_write);

}  // namespace sluice
