#pragma once

#include "ops/cuda/gdn_prefill.h"

namespace sluice::cuda {

/// out [run.num_rows, channels] = conv and SiLU of the run's rows by gdn_prefill's own functions.
cudaError_t launch_prefill_conv(const GdnPrefill& args, const RowRun& run, bf16* out);

}  // namespace sluice::cuda
