#include "tokenizer/stream_decoder.h"

#include "base/utf8.h"

namespace sluice {

Status StreamDecoder::push(int32_t id, std::string* out) {
  SLUICE_RETURN_IF_ERROR(tokenizer_->check_id(id));
  if (options_.skip_special && tokenizer_->is_special(id)) return Status();
  pending_.append(tokenizer_->token_bytes(id));
  const size_t certain = pending_.size() - truncated_utf8_tail(pending_);
  append_lossy_utf8(std::string_view(pending_).substr(0, certain), out);
  pending_.erase(0, certain);
  return Status();
}

void StreamDecoder::finish(std::string* out) {
  append_lossy_utf8(pending_, out);
  pending_.clear();
}

}  // namespace sluice
