#include "apps/bench/block_probe.h"

namespace sluice {
namespace {

// An OpTable's members are plain functions, so what they look at is the process's.
const OpTable* probed = nullptr;
BlockProbe* probe = nullptr;

void note(StepBlock block) {
  if (probe != nullptr) probe->note(block);
}

bool begin_step(const StepRows& rows, OpContext& context) {
  if (probe == nullptr) return probed->begin_step(rows, context);
  StepRows called = rows;
  called.key = {};
  note(StepBlock::kOpen);
  return probed->begin_step(called, context);
}

void end_step(OpContext& context) {
  note(StepBlock::kClose);
  probed->end_step(context);
}

void embed(const EmbedArgs& args, OpContext& context) {
  note(StepBlock::kEmbed);
  probed->embed(args, context);
}

// A block that the backend declines is made of its parts, behind the same note.

bool gdn_mixer(const GdnMixerArgs& args, OpContext& context) {
  note(StepBlock::kGdnMixer);
  return probed->gdn_mixer != nullptr && probed->gdn_mixer(args, context);
}

bool attention_mixer(const AttentionMixerArgs& args, OpContext& context) {
  note(StepBlock::kAttentionMixer);
  return probed->attention_mixer != nullptr && probed->attention_mixer(args, context);
}

bool mlp(const MlpArgs& args, OpContext& context) {
  note(StepBlock::kMlp);
  return probed->mlp != nullptr && probed->mlp(args, context);
}

bool head(const HeadArgs& args, OpContext& context) {
  note(StepBlock::kHead);
  return probed->head != nullptr && probed->head(args, context);
}

void draw(const DrawArgs& args, OpContext& context) {
  note(StepBlock::kDraw);
  probed->draw(args, context);
}

}  // namespace

std::string_view block_name(StepBlock block) {
  switch (block) {
    case StepBlock::kOpen:
      return "open";
    case StepBlock::kEmbed:
      return "embed";
    case StepBlock::kGdnMixer:
      return "gdn";
    case StepBlock::kAttentionMixer:
      return "attention";
    case StepBlock::kMlp:
      return "mlp";
    case StepBlock::kHead:
      return "head";
    case StepBlock::kDraw:
      return "draw";
    case StepBlock::kClose:
      return "close";
  }
  SLUICE_CHECK(false);
  return "";
}

OpTable probed_ops(const OpTable& inner) {
  probed = &inner;
  OpTable table = inner;
  table.begin_step = begin_step;
  table.end_step = end_step;
  table.embed = embed;
  table.gdn_mixer = gdn_mixer;
  table.attention_mixer = attention_mixer;
  table.mlp = mlp;
  table.head = head;
  if (inner.draw != nullptr) table.draw = draw;
  return table;
}

BlockProbe::BlockProbe(int (*num_launches)()) : num_launches_(num_launches) {
  SLUICE_CHECK(probe == nullptr);
  probe = this;
}

BlockProbe::~BlockProbe() {
  probe = nullptr;
}

}  // namespace sluice
