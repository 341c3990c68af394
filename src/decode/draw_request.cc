#include "decode/draw_request.h"

#include <cmath>
#include <limits>

namespace sluice {

static_assert(kMaxLogprobs == kLogprobsMax);

bool can_be_drawn_by_backend(const SamplingParams& params) {
  return params.presence_penalty == 0.0f && params.frequency_penalty == 0.0f &&
         params.repetition_penalty == 1.0f;
}

DrawRequest draw_request(const SamplingParams& params, int64_t position) {
  DrawRequest request;
  request.temperature = params.temperature;
  request.top_k = params.top_k;
  request.top_p = params.top_p;
  request.log_min_p = params.min_p > 0.0f ? std::log(static_cast<double>(params.min_p))
                                          : -std::numeric_limits<double>::infinity();
  request.seed = params.seed;
  request.position = position;
  request.num_logprobs = params.num_logprobs;
  return request;
}

}  // namespace sluice
