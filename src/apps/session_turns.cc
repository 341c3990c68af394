#include "apps/encode_prompt.h"
#include "apps/turn_source.h"

namespace sluice {
namespace {

constexpr std::string_view kEndOfTurn = "<|im_end|>";

class SessionTurns : public TurnSource {
 public:
  SessionTurns(Engine* engine, const GenerateParams& params)
      : engine_(*engine),
        params_(params),
        end_of_turn_id_(engine->tokenizer().added_token_id(kEndOfTurn)) {}

  Status append(const chat::Prompt& prompt) override {
    return session_->append(encode_prompt(engine_.tokenizer(), prompt));
  }

  Result<GenerateResult> generate(const OnPiece& on_piece) override {
    return session_->generate(params_, [&](const TokenEvent& event) {
      // Special tokens (the stop tokens are) are no text; <think> and <tool_call> are not special.
      if (engine_.tokenizer().is_special(event.id)) return true;
      const auto kind = event.is_control ? chat::PieceKind::kControl : chat::PieceKind::kOrdinary;
      return on_piece(event.text, kind);
    });
  }

  bool turn_is_closed() const override {
    const std::span<const int32_t> ids = session_->ids();
    return !ids.empty() && ids.back() == end_of_turn_id_;
  }

  Status restart() override {
    session_.reset();  // gives its place back first
    SLUICE_ASSIGN_OR_RETURN(session_, engine_.create_session());
    return Status();
  }

 private:
  Engine& engine_;
  GenerateParams params_;
  std::optional<int32_t> end_of_turn_id_;
  std::unique_ptr<Session> session_;
};

}  // namespace

Result<std::unique_ptr<TurnSource>> session_turns(Engine* engine, const GenerateParams& params) {
  auto turns = std::make_unique<SessionTurns>(engine, params);
  SLUICE_RETURN_IF_ERROR(turns->restart());
  return std::unique_ptr<TurnSource>(std::move(turns));
}

}  // namespace sluice
