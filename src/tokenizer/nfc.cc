#include "tokenizer/nfc.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "base/utf8.h"

namespace sluice {
namespace {

constexpr int kClassShift = 24;
constexpr size_t kFewMarks = 64;
constexpr uint32_t kScalarMask = (uint32_t{1} << kClassShift) - 1;

// Hangul by algorithm (The Unicode Standard, 3.12).
constexpr char32_t kHangulS = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr char32_t kNumHangulL = 19, kNumHangulV = 21, kNumHangulT = 28;
constexpr char32_t kNumHangulS = kNumHangulL * kNumHangulV * kNumHangulT;

// Unsigned differences: below the base wraps to a large number and fails the test too.
bool within(char32_t c, char32_t base, char32_t count) {
  return c - base < count;
}

char32_t compose_hangul(char32_t a, char32_t b) {
  if (within(a, kHangulL, kNumHangulL) && within(b, kHangulV, kNumHangulV)) {
    return kHangulS + ((a - kHangulL) * kNumHangulV + (b - kHangulV)) * kNumHangulT;
  }
  const bool is_lv = within(a, kHangulS, kNumHangulS) && (a - kHangulS) % kNumHangulT == 0;
  if (is_lv && within(b, kHangulT + 1, kNumHangulT - 1)) return a + (b - kHangulT);
  return 0;
}

class Normalizer {
 public:
  Normalizer(const UnicodeTables& tables, NfcScratch* scratch) : tables_(tables), s_(*scratch) {}

  /// Appends the NFC of a piece that starts and ends at safe breaks.
  void append(std::string_view piece) {
    s_.run.clear();
    s_.run.reserve(piece.size());
    size_t length = 0;
    for (size_t pos = 0; pos < piece.size(); pos += length) {
      decompose(utf8_scalar(piece.data() + pos, &length));
    }
    reorder();
    compose();
    for (const uint32_t item : s_.composed) append_utf8(item & kScalarMask, &s_.text);
  }

 private:
  void push(char32_t c) {
    s_.run.push_back(uint32_t{tables_.combining_class(c)} << kClassShift | c);
  }

  void decompose(char32_t c) {
    if (within(c, kHangulS, kNumHangulS)) return push(c);  // composing takes a syllable as it is
    const std::span<const char32_t> parts = tables_.decomposition(c);
    if (parts.empty()) return push(c);
    for (const char32_t part : parts) push(part);
  }

  static uint32_t class_of(uint32_t item) { return item >> kClassShift; }

  void reorder() {
    const auto is_starter = [](uint32_t item) { return class_of(item) == 0; };
    auto& run = s_.run;
    for (auto it = run.begin(); it != run.end();) {
      it = std::find_if_not(it, run.end(), is_starter);
      const auto marks_end = std::find_if(it, run.end(), is_starter);
      if (!std::is_sorted(it, marks_end, has_lower_class)) sort_marks({it, marks_end});
      it = marks_end;
    }
  }

  static bool has_lower_class(uint32_t a, uint32_t b) { return class_of(a) < class_of(b); }

  // Stable. Many marks are counted by class, so that a long run costs linear time.
  void sort_marks(std::span<uint32_t> marks) {
    if (marks.size() <= kFewMarks) {
      std::ranges::stable_sort(marks, has_lower_class);
      return;
    }
    std::array<size_t, 257> place{};
    for (const uint32_t mark : marks) ++place[class_of(mark) + 1];
    std::partial_sum(place.begin(), place.end(), place.begin());
    s_.composed.resize(marks.size());  // free until compose()
    for (const uint32_t mark : marks) s_.composed[place[class_of(mark)]++] = mark;
    std::ranges::copy(s_.composed, marks.begin());
  }

  void compose() {
    auto& out = s_.composed;
    out.clear();
    out.reserve(s_.run.size());
    size_t starter = SIZE_MAX;
    // The class of what stands between the starter and here; -1: nothing does.
    int64_t last_class = -1;
    for (const uint32_t item : s_.run) {
      const int64_t item_class = item >> kClassShift;
      if (starter != SIZE_MAX && last_class < item_class) {
        if (const char32_t c = pair(out[starter], item & kScalarMask); c != 0) {
          out[starter] = c;
          continue;
        }
      }
      if (item_class == 0) starter = out.size();
      last_class = item_class == 0 ? -1 : item_class;
      out.push_back(item);
    }
  }

  char32_t pair(char32_t a, char32_t b) const {
    const char32_t hangul = compose_hangul(a, b);
    return hangul != 0 ? hangul : tables_.composition(a, b);
  }

  const UnicodeTables& tables_;
  NfcScratch& s_;
};

}  // namespace

std::string_view nfc(const UnicodeTables& tables, std::string_view text, NfcScratch* scratch) {
  Normalizer normalizer(tables, scratch);
  scratch->text.clear();
  size_t copied = 0;  // text[0, copied) is in scratch->text
  size_t inert = 0;   // the last safe break
  size_t length = 0;
  for (size_t pos = skip_ascii(text, 0); pos < text.size();) {
    // A break stands before each inert character; the last one before an active one belongs to its piece.
    if (pos > copied && static_cast<uint8_t>(text[pos - 1]) < 0x80) inert = pos - 1;
    if (!tables.is_nfc_active(utf8_scalar(text.data() + pos, &length))) {
      inert = pos;
      pos += length;
    } else {
      size_t end = pos + length;
      while (end < text.size() && tables.is_nfc_active(utf8_scalar(text.data() + end, &length))) {
        end += length;
      }
      scratch->text.append(text.substr(copied, inert - copied));
      normalizer.append(text.substr(inert, end - inert));
      copied = inert = pos = end;
    }
    if (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) pos = skip_ascii(text, pos);
  }
  if (copied == 0) return text;
  return scratch->text.append(text.substr(copied));
}

}  // namespace sluice
