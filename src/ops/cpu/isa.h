#pragma once
// What this machine and its kernel let us execute.

#include "ops/op_table.h"

namespace sluice {

/// True when every instruction of `isa`'s kernels may run here: the processor has it and the kernel saves its
/// registers. The first call with kAmx asks the kernel for the tile registers (they are off until asked for).
bool cpu_isa_available(CpuIsa isa);

}  // namespace sluice
