#include "engine/engine.h"

#include <algorithm>

#include "decode/rehearsal.h"
#include "engine/engine_impl.h"
#include "engine/text_side.h"

namespace sluice {
namespace {

constexpr int64_t kDefaultContextMax = 32768;
constexpr int32_t kSlotsPerSession = 2;  // live state and checkpoint

Result<int64_t> choose_context(const EngineOptions& options, const ModelConfig& config) {
  const int64_t limit = config.max_position_embeddings;
  if (options.context_max == 0) return std::min(limit, kDefaultContextMax);
  if (options.context_max < 0 || options.context_max > limit) {
    return invalid_argument("a context of {} tokens was asked for; the model's limit is {}",
                            options.context_max, limit);
  }
  return options.context_max;
}

/// No more than a session has, or buffers would be taken for rows that never come.
int64_t choose_prefill_rows(const EngineOptions& options, const Backend& backend,
                            int64_t context_max) {
  const int64_t wanted =
      options.prefill_rows_max == 0 ? backend.prefill_rows : options.prefill_rows_max;
  const int64_t context = (context_max + kGdnChunk - 1) / kGdnChunk * kGdnChunk;
  return std::min({wanted, backend.prefill_rows_max, context});
}

Status check_options(const EngineOptions& options) {
  if (options.num_sessions_max < 1 || options.num_sessions_max > 1024) {
    return invalid_argument("num_sessions_max is {}; expected 1 to 1024", options.num_sessions_max);
  }
  if (options.prefill_rows_max < 0 || options.prefill_rows_max > 65536 ||
      options.prefill_rows_max % kGdnChunk != 0) {
    return invalid_argument("prefill_rows_max is {}; expected a multiple of {} up to 65536, or 0",
                            options.prefill_rows_max, kGdnChunk);
  }
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return invalid_argument("num_threads is {}; expected 0 (one per core) to 1024",
                            options.num_threads);
  }
  return Status();
}

StateLimits state_limits(const EngineOptions& options, int64_t context_max) {
  StateLimits limits;
  limits.num_slots = kSlotsPerSession * options.num_sessions_max;
  limits.num_pages = static_cast<int32_t>(pages_for(context_max)) * options.num_sessions_max;
  limits.context_max = context_max;
  return limits;
}

ForwardLimits forward_limits(const EngineOptions& options, int64_t context_max,
                             const Backend& backend) {
  ForwardLimits limits;
  limits.num_rows_max = options.prefill_rows_max;
  limits.num_logit_rows_max = 1;
  limits.context_max = context_max;
  limits.prefill_math = backend.prefill_math;
  return limits;
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop token";
    case FinishReason::kStopString:
      return "stop string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context full";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  SLUICE_CHECK(false);
  return "";
}

int32_t Engine::Impl::num_defined_ids() const {
  return tokenizer.has_value() ? tokenizer->num_defined()
                               : static_cast<int32_t>(model.weights.config.vocab_size);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() {
  SLUICE_CHECK(impl_->open_sequences.empty());
}

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  SLUICE_RETURN_IF_ERROR(check_options(options));
  SLUICE_ASSIGN_OR_RETURN(const Backend backend,
                          choose_backend(options.device, options.isa, options.prefill_math));
  LoadOptions load_options;
  load_options.num_threads = options.num_threads;
  SLUICE_ASSIGN_OR_RETURN(LoadedModel model, load_model(options.model_dir, load_options));
  auto impl = std::make_unique<Impl>(options, std::move(model), backend);
  SLUICE_ASSIGN_OR_RETURN(impl->context_max, choose_context(options, impl->model.weights.config));
  impl->options.prefill_rows_max = choose_prefill_rows(options, backend, impl->context_max);
  const ForwardLimits limits = forward_limits(impl->options, impl->context_max, backend);
  // Before the weights go to the device, which takes long.
  SLUICE_RETURN_IF_ERROR(check_prefill_math(impl->model.weights, limits));
  SLUICE_ASSIGN_OR_RETURN(
      impl->weights, PlacedWeights::create(impl->model.weights, *backend.ops, options.on_placing));
  impl->options.on_placing = nullptr;  // the caller's, and may go with it
  const ModelWeights& weights = impl->weights.weights();
  if (!options.ids_only) {
    SLUICE_ASSIGN_OR_RETURN(impl->tokenizer,
                            load_model_tokenizer(options.model_dir, weights.config));
    SLUICE_ASSIGN_OR_RETURN(const std::string template_text, read_template_text(options.model_dir));
    const auto chat_template = chat::find_template(template_text);
    if (!chat_template.ok()) {
      return chat_template.status().with_context(options.model_dir.string());
    }
    impl->chat_template = *chat_template;
  }
  SLUICE_ASSIGN_OR_RETURN(
      impl->state, StatePool::create(weights.config, state_limits(options, impl->context_max),
                                     *backend.ops->memory));
  SLUICE_ASSIGN_OR_RETURN(impl->forward,
                          Forward::create(weights, *backend.ops, impl->pool, limits));
  impl->sampler.emplace(weights.config.vocab_size, impl->num_defined_ids());
  rehearse_steps(*impl->forward, *impl->state, backend.prefill_form, impl->options.prefill_rows_max,
                 impl->num_defined_ids());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const ModelConfig& Engine::config() const {
  return impl_->model.weights.config;
}
const GenerationConfig& Engine::generation_config() const {
  return impl_->model.generation;
}
const Tokenizer& Engine::tokenizer() const {
  SLUICE_CHECK(impl_->tokenizer.has_value());
  return *impl_->tokenizer;
}
const chat::ChatTemplate& Engine::chat_template() const {
  SLUICE_CHECK(impl_->chat_template != nullptr);
  return *impl_->chat_template;
}
const Diagnostics& Engine::diagnostics() const {
  return impl_->model.diagnostics;
}
int64_t Engine::context_max() const {
  return impl_->context_max;
}
std::string_view Engine::backend_name() const {
  return impl_->backend.ops->name;
}
int Engine::num_threads() const {
  return impl_->pool.num_threads();
}
size_t Engine::placed_bytes() const {
  return impl_->weights.num_bytes();
}
double Engine::placing_s() const {
  return impl_->weights.seconds();
}

void Engine::check_integrity() const {
  impl_->state->check_integrity(impl_->open_sequences);
}

Result<std::unique_ptr<Session>> Engine::create_session() {
  Result<Sequence> sequence = impl_->state->open();
  if (!sequence.ok()) {
    return resource_exhausted("all {} sessions are open (num_sessions_max)",
                              impl_->options.num_sessions_max);
  }
  auto session = std::make_unique<Session::Impl>();
  session->engine = impl_.get();
  session->sequence = *std::move(sequence);
  // One more: a turn that fills the context ends with an id that finds no place in the state.
  session->ids.reserve(static_cast<size_t>(impl_->context_max) + 1);
  impl_->open_sequences.push_back(&session->sequence);
  return std::unique_ptr<Session>(new Session(std::move(session)));
}

}  // namespace sluice
