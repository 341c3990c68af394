#pragma once
// Where an agent's turns come from: an engine's session, or a script in a test.

#include <functional>
#include <memory>
#include <string_view>

#include "chat/parser.h"
#include "chat/render.h"
#include "engine/engine.h"

namespace sluice {

class TurnSource {
 public:
  /// False cancels.
  using OnPiece = std::function<bool(std::string_view text, chat::PieceKind kind)>;

  virtual ~TurnSource() = default;
  /// Appends text to the timeline; encoded once, here.
  virtual Status append(const chat::Prompt& prompt) = 0;
  /// Writes until a stop. The text of the stop token is not published.
  virtual Result<GenerateResult> generate(const OnPiece& on_piece) = 0;
  /// The timeline ends with the end-of-turn token.
  virtual bool turn_is_closed() const = 0;
  /// An empty timeline again.
  virtual Status restart() = 0;
};

/// `engine` must outlive it and have a free session.
Result<std::unique_ptr<TurnSource>> session_turns(Engine* engine, const GenerateParams& params);

}  // namespace sluice
