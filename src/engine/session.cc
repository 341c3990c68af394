#include <algorithm>
#include <chrono>

#include "decode/draw_request.h"
#include "decode/round.h"
#include "engine/engine_impl.h"
#include "tokenizer/stream_decoder.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Equal in all that decides which token is drawn and what is told of it.
bool is_same_draw(const DrawRequest& a, const DrawRequest& b) {
  return a.temperature == b.temperature && a.top_k == b.top_k && a.top_p == b.top_p &&
         a.log_min_p == b.log_min_p && a.seed == b.seed && a.position == b.position &&
         a.num_logprobs == b.num_logprobs;
}

/// Turns drawn ids into text events: whole code points, stop strings held back.
class TextPublisher {
 public:
  TextPublisher(const Tokenizer* tokenizer, StopStringMatcher matcher)
      : tokenizer_(tokenizer), matcher_(std::move(matcher)) {
    if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_, DecodeOptions());
  }

  /// True when a stop string is complete with this token.
  bool push(int32_t id, TokenEvent* event) {
    if (tokenizer_ == nullptr) return false;
    event->is_control = tokenizer_->is_added(id);
    std::string text;
    const Status status = decoder_->push(id, &text);
    SLUICE_CHECK(status.ok());  // the sampler draws defined ids only
    return matcher_.push(text, &event->text);
  }

  /// What was held back when generation ended for another reason than a stop string.
  std::string finish() {
    std::string out;
    if (tokenizer_ == nullptr) return out;
    std::string text;
    decoder_->finish(&text);
    if (!matcher_.push(text, &out)) matcher_.finish(&out);
    return out;
  }

 private:
  const Tokenizer* tokenizer_;
  StopStringMatcher matcher_;
  std::optional<StreamDecoder> decoder_;
};

/// One call of generate(): draws until a stop.
///
/// Where the backend draws and tells stop ids itself (DrawRequest), the step of a token is started before the token before it is
/// published, and the one behind that before the host has seen the token: the device does not wait for the host. A step behind a stop id
/// is not run there, none is started behind the last token allowed, and stop strings, which only the host can tell, wait for it.
class Generation {
 public:
  Generation(Engine::Impl& engine, Session::Impl& session, const GenerateParams& params,
             StopStringMatcher matcher, const std::function<bool(const TokenEvent&)>& on_token)
      : engine_(engine),
        session_(session),
        params_(params),
        publisher_(engine.tokenizer.has_value() ? &*engine.tokenizer : nullptr, std::move(matcher)),
        on_token_(on_token) {
    counts_.add_prompt(session.ids);
    if (!params.ignore_model_stops) stop_ids_ = engine.model.stop_token_ids;
    stop_ids_.insert(stop_ids_.end(), params.stop_ids.begin(), params.stop_ids.end());
    draws_on_backend_ = engine.forward->can_draw() && can_be_drawn_by_backend(params.sampling);
    runs_ahead_ =
        draws_on_backend_ && params.stop_strings.empty() && stop_ids_.size() <= kStopIdsMax;
  }

  Result<GenerateResult> run() {
    const Clock::time_point start = Clock::now();
    result_.num_prompt_tokens =
        static_cast<int64_t>(session_.ids.size()) - session_.sequence.position;
    SLUICE_ASSIGN_OR_RETURN(std::optional<SampledToken> token, first_token());
    if (!token) {
      result_.reason = FinishReason::kCancelled;
      return result_;
    }
    const Clock::time_point first_token_at = Clock::now();
    for (;;) {
      const int32_t id = token->id;
      record(std::move(*token));
      if (!step_of_newest_ && !is_stop(id) && is_wanted(0)) step_of_newest_ = start_step(id, 0);
      if (is_finished(id)) break;
      Result<SampledToken> next = run_step(id);
      if (!next.ok()) return end_with(next.status());
      token = *std::move(next);
    }
    result_.ttft_s = seconds_between(start, first_token_at);
    result_.decode_s = seconds_between(first_token_at, Clock::now());
    close_turn();
    return result_;
  }

 private:
  /// None when it was cancelled on the way.
  Result<std::optional<SampledToken>> first_token() {
    if (num_ids() > session_.sequence.position) return prefill_all();
    SLUICE_CHECK(session_.drawn_ahead.has_value());
    if (!draws_on_backend_ || !is_same_draw(*next_draw(0).request, session_.drawn_ahead->request)) {
      return invalid_argument(
          "a cancelled turn goes on with the same sampling parameters only; append ids first");
    }
    SLUICE_ASSIGN_OR_RETURN(SampledToken token, session_.drawn_ahead->token);
    session_.drawn_ahead.reset();
    return std::optional(std::move(token));
  }

  Result<std::optional<SampledToken>> prefill_all() {
    const PrefillOptions options = {engine_.backend.prefill_form, engine_.options.prefill_rows_max,
                                    next_draw(0)};
    for (;;) {
      StepOutput output;
      const bool is_last = prefill_step(*engine_.forward, *engine_.state, session_.ids, options,
                                        &session_.sequence, &output);
      SLUICE_RETURN_IF_ERROR(check_range(output));
      if (is_last) {
        SLUICE_ASSIGN_OR_RETURN(SampledToken token, drawn_token_of(output));
        return std::optional(std::move(token));
      }
      if (params_.cancelled && params_.cancelled()) return std::optional<SampledToken>();
    }
  }

  /// What the step of the newest token, `id`, draws; the step behind that is under way when it returns, if it may be.
  Result<SampledToken> run_step(int32_t id) {
    PendingStep step = step_of_newest_ ? *step_of_newest_ : start_step(id, 0);
    step_of_newest_.reset();
    commit_decode_step(*engine_.state, engine_.backend.prefill_form, &session_.sequence);
    if (is_wanted(1)) step_of_newest_ = start_step(drawn_token(0), 1);
    const StepOutput output = engine_.forward->finish(std::move(step));
    SLUICE_RETURN_IF_ERROR(check_range(output));
    return drawn_token_of(output);
  }

  /// `num_unseen`: tokens that are not recorded yet.
  PendingStep start_step(int32_t token_id, int64_t num_unseen) {
    return start_decode_step(*engine_.forward, *engine_.state, token_id, session_.sequence,
                             next_draw(num_unseen));
  }

  /// May a step be started ahead, whose token only a stop id can make the last?
  bool is_wanted(int64_t num_unseen) {
    if (!runs_ahead_) return false;
    const int64_t num_tokens = result_.num_generated_tokens + num_unseen;
    if (params_.max_tokens > 0 && num_tokens >= params_.max_tokens) return false;
    return has_room(num_unseen);
  }

  bool is_stop(int32_t id) const {
    return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
  }

  /// A step that was started ahead of an error: of no use, but it must be over.
  Status end_with(const Status& status) {
    if (step_of_newest_) engine_.forward->finish(*step_of_newest_);
    return status;
  }

  /// The turn has ended. If a step of its last token is under way, either the token is a stop id and nothing was run, or
  /// the turn was cancelled: then the state has followed.
  void close_turn() {
    if (!step_of_newest_) return;
    const StepOutput output = engine_.forward->finish(*step_of_newest_);
    if (is_stop(session_.ids.back())) return;
    commit_decode_step(*engine_.state, engine_.backend.prefill_form, &session_.sequence);
    if (!check_range(output).ok()) return;  // the next call tells
    session_.drawn_ahead = {request_, drawn_token_of(output)};
    session_.drawn_ahead->request.stop_ids = {};
  }

  /// Whatever the step computed is in the session's state by now: the session is lost with it.
  Status check_range(const StepOutput& output) {
    if (output.out_of_range) {
      session_.lost = data_loss(
          "activations left the range of the backend's number format (f16 after a factor of 2^-4); "
          "this session's state is lost, other sessions are not touched");
    }
    return session_.lost;
  }

  /// What the backend shall draw behind all ids and `num_unseen` more, where it can.
  StepDraw next_draw(int64_t num_unseen) {
    if (!draws_on_backend_) return {};
    request_ = draw_request(params_.sampling, num_ids() + num_unseen);
    if (runs_ahead_) request_.stop_ids = stop_ids_;
    return {&request_, engine_.num_defined_ids()};
  }

  Result<SampledToken> drawn_token_of(const StepOutput& output) {
    if (draws_on_backend_) return token_from_backend(output);
    const MatView<const bf16> logits = output.logits;
    return engine_.sampler->sample({logits.row(0), static_cast<size_t>(logits.num_cols)},
                                   params_.sampling, counts_, num_ids());
  }

  Result<SampledToken> token_from_backend(const StepOutput& output) const {
    if (output.drawn[0] == kNoToken) return unsound_logits();
    SampledToken token = {output.drawn[0], {}};
    if (params_.sampling.num_logprobs < 0) return token;
    const DrawnLogits& logits = output.drawn_logits[0];
    const auto logprob = [&](float logit) {
      return static_cast<float>(logit - logits.log_sum_exp);
    };
    token.logprobs.present = true;
    token.logprobs.drawn = logprob(logits.drawn);
    for (int32_t i = 0; i < params_.sampling.num_logprobs; ++i) {
      const DrawnLogits::Top& top = logits.tops[i];
      if (top.id != kNoToken) token.logprobs.top.push_back({top.id, logprob(top.logit)});
    }
    return token;
  }

  void record(SampledToken token) {
    session_.ids.push_back(token.id);
    counts_.add_generated(token.id);
    ++result_.num_generated_tokens;
    event_ = TokenEvent();
    event_.id = token.id;
    event_.logprobs = std::move(token.logprobs);
  }

  /// Decides whether `id` ends the turn, and publishes it either way.
  bool is_finished(int32_t id) {
    std::optional<FinishReason> reason = publish_text(id);
    if (!reason.has_value()) {
      if (params_.max_tokens > 0 && result_.num_generated_tokens >= params_.max_tokens) {
        reason = FinishReason::kLength;
      } else if (!has_room(0)) {
        reason = FinishReason::kContextFull;
      }
    }
    if (reason.has_value() && *reason != FinishReason::kStopString)
      event_.text += publisher_.finish();
    if (!on_token_(event_) && !reason.has_value()) reason = FinishReason::kCancelled;
    if (reason.has_value()) result_.reason = *reason;
    return reason.has_value();
  }

  /// The stop reason that the token itself gives. A stop token has no text.
  std::optional<FinishReason> publish_text(int32_t id) {
    if (is_stop(id)) {
      event_.is_control = true;
      return FinishReason::kStopToken;
    }
    if (publisher_.push(id, &event_)) return FinishReason::kStopString;
    return std::nullopt;
  }

  /// A further step needs one position in the pages.
  bool has_room(int64_t num_unseen) {
    return engine_.state->reserve(&session_.sequence, num_ids() + num_unseen).ok();
  }

  int64_t num_ids() const { return static_cast<int64_t>(session_.ids.size()); }

  Engine::Impl& engine_;
  Session::Impl& session_;
  const GenerateParams& params_;
  TextPublisher publisher_;
  const std::function<bool(const TokenEvent&)>& on_token_;
  std::vector<int32_t> stop_ids_;
  bool draws_on_backend_ = false;
  bool runs_ahead_ = false;
  /// The newest token's step, if it is under way ahead of its time.
  std::optional<PendingStep> step_of_newest_;
  TokenCounts counts_;
  DrawRequest request_;
  TokenEvent event_;
  GenerateResult result_;
};

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  std::erase(impl_->engine->open_sequences, &impl_->sequence);
  impl_->engine->state->close(&impl_->sequence);
}

Status Session::append(std::span<const int32_t> ids) {
  const int32_t num_defined = impl_->engine->num_defined_ids();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_defined) {
      return invalid_argument("id {} at place {} is not a token; expected 0 to {}", ids[i], i,
                              num_defined - 1);
    }
  }
  const auto total = static_cast<int64_t>(impl_->ids.size() + ids.size());
  SLUICE_RETURN_IF_ERROR(impl_->engine->state->reserve(&impl_->sequence, total));
  impl_->ids.insert(impl_->ids.end(), ids.begin(), ids.end());
  if (!ids.empty()) impl_->drawn_ahead.reset();
  return Status();
}

Result<GenerateResult> Session::generate(const GenerateParams& params,
                                         const std::function<bool(const TokenEvent&)>& on_token) {
  SLUICE_RETURN_IF_ERROR(impl_->lost);
  SLUICE_RETURN_IF_ERROR(params.sampling.validate());
  if (params.max_tokens < 0) {
    return invalid_argument("max_tokens is {}; expected 0 (no limit) or more", params.max_tokens);
  }
  if (!params.stop_strings.empty() && !impl_->engine->tokenizer.has_value()) {
    return invalid_argument("stop strings need a tokenizer; this engine knows ids only");
  }
  SLUICE_ASSIGN_OR_RETURN(StopStringMatcher matcher,
                          StopStringMatcher::create(params.stop_strings));
  if (static_cast<int64_t>(impl_->ids.size()) == impl_->sequence.position && !impl_->drawn_ahead) {
    return invalid_argument("nothing to generate from: append ids first");
  }
  // After a context that filled up the last drawn id may lack its place.
  SLUICE_RETURN_IF_ERROR(
      impl_->engine->state->reserve(&impl_->sequence, static_cast<int64_t>(impl_->ids.size())));
  bool& is_generating = impl_->engine->is_generating;
  if (is_generating) {
    return invalid_argument("a turn is under way; an engine runs one generate() at a time");
  }
  is_generating = true;
  Result<GenerateResult> result =
      Generation(*impl_->engine, *impl_, params, std::move(matcher), on_token).run();
  is_generating = false;
  return result;
}

std::span<const int32_t> Session::ids() const {
  return impl_->ids;
}
int64_t Session::num_committed() const {
  return impl_->sequence.position;
}

}  // namespace sluice
