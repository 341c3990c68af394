#include "decode/sampling_params.h"

#include <cmath>

namespace sluice {
namespace {

Status check_range(std::string_view field, float value, float low, float high) {
  // Written so that NaN fails.
  if (value >= low && value <= high) return Status();
  return invalid_argument("{} is {}; expected {} to {}", field, value, low, high);
}

}  // namespace

Status SamplingParams::validate() const {
  SLUICE_RETURN_IF_ERROR(check_range("temperature", temperature, 0.0f, 100.0f));
  SLUICE_RETURN_IF_ERROR(check_range("top_p", top_p, 0.0f, 1.0f));
  SLUICE_RETURN_IF_ERROR(check_range("min_p", min_p, 0.0f, 1.0f));
  SLUICE_RETURN_IF_ERROR(check_range("presence_penalty", presence_penalty, -2.0f, 2.0f));
  SLUICE_RETURN_IF_ERROR(check_range("frequency_penalty", frequency_penalty, -2.0f, 2.0f));
  if (temperature > 0.0f && temperature < kTemperatureMin) {
    return invalid_argument("temperature is {}; expected 0 (greedy) or at least {}", temperature,
                            kTemperatureMin);
  }
  if (!(repetition_penalty > 0.0f) || !std::isfinite(repetition_penalty)) {
    return invalid_argument("repetition_penalty is {}; expected a number above 0",
                            repetition_penalty);
  }
  if (top_p == 0.0f) return invalid_argument("top_p is 0; expected above 0, up to 1");
  if (top_k < 0) return invalid_argument("top_k is {}; expected 0 (off) or more", top_k);
  if (num_logprobs < -1 || num_logprobs > kMaxLogprobs) {
    return invalid_argument("num_logprobs is {}; expected -1 (none) to {}", num_logprobs,
                            kMaxLogprobs);
  }
  return Status();
}

}  // namespace sluice
