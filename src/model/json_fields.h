#pragma once
// Typed reads of a JSON object's fields; every failure names the file, the field, what was found and what fits.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace sluice {

/// A value as it is shown in a message: compact JSON, cut at 60 bytes on a code point.
std::string shown(const JsonValue& value);
/// A name from a file as it is shown in a message: control characters escaped, cut at 200 bytes.
std::string shown_name(std::string_view name);

/// Looks at one JSON object; does not own it. `prefix` is the object's own path with its dot ("text_config.").
class JsonFields {
 public:
  JsonFields(const JsonValue& object, std::string_view file, std::string_view prefix)
      : object_(object), file_(file), prefix_(prefix) {}

  /// Null counts as absent, as in the reference's configuration classes.
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const JsonValue* find(std::string_view key) const;

  /// Required, within [min, max].
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<double> real(std::string_view key, double min, double max) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  /// An integer or an array of integers, each within [min, max]; absent gives an empty list.
  Result<std::vector<int32_t>> ids(std::string_view key, int32_t min, int32_t max) const;

  /// "FILE: PREFIXkey is VALUE; expected EXPECTED".
  Status wrong(std::string_view key, std::string_view expected) const;
  const std::string& file() const { return file_; }
  std::string path(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  const JsonValue& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace sluice
