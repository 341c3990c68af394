// Counts calls of the CUDA driver. The runtime finds the driver's functions by dlsym and cuGetProcAddress; both answer here with a stub
// for each function, which counts and jumps on, arguments untouched.
#include "tests/gpu/driver_calls.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

// Stub i: counts[i] += 1; goto targets[i]. 16 bytes each.
asm(R"(
.text
.balign 16
sluice_stubs:
.set stub, 0
.rept 2048
lock incq sluice_counts+8*stub(%rip)
jmp *sluice_targets+8*stub(%rip)
.balign 16
.set stub, stub+1
.endr
.local sluice_counts
.comm sluice_counts, 16384, 16
.local sluice_targets
.comm sluice_targets, 16384, 16
sluice_tables:
lea sluice_counts(%rip), %rax
ret
sluice_target_table:
lea sluice_targets(%rip), %rax
ret
sluice_stub_table:
lea sluice_stubs(%rip), %rax
ret
)");

namespace {

constexpr size_t kStubsMax = 2048;
constexpr size_t kStubBytes = 16;

extern "C" {
int64_t* counts_of_stubs() asm("sluice_tables");
void** targets_of_stubs() asm("sluice_target_table");
char* first_stub() asm("sluice_stub_table");
}

struct Stubs {
  std::mutex mutex;
  std::vector<std::string> names;
};

Stubs& stubs() {
  static auto* made = new Stubs;
  return *made;
}

/// One stub for each function, whatever name it was asked by.
void* stub_of(const std::string& name, void* target) {
  Stubs& all = stubs();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.names.size(); ++i) {
    if (targets_of_stubs()[i] == target || target == first_stub() + i * kStubBytes)
      return first_stub() + i * kStubBytes;
  }
  if (all.names.size() == kStubsMax) return target;
  const size_t i = all.names.size();
  all.names.push_back(name);
  targets_of_stubs()[i] = target;
  return first_stub() + i * kStubBytes;
}

using GetProcAddress1 = int (*)(const char*, void**, int, uint64_t);
using GetProcAddress2 = int (*)(const char*, void**, int, uint64_t, void*);
void* real_get1 = nullptr;
void* real_get2 = nullptr;

void* counted(const std::string& name, int version, void* found);

int get_proc_address1(const char* name, void** found, int version, uint64_t flags) {
  const int error = reinterpret_cast<GetProcAddress1>(real_get1)(name, found, version, flags);
  if (error == 0 && found != nullptr && *found != nullptr) *found = counted(name, version, *found);
  return error;
}

int get_proc_address2(const char* name, void** found, int version, uint64_t flags, void* status) {
  const int error =
      reinterpret_cast<GetProcAddress2>(real_get2)(name, found, version, flags, status);
  if (error == 0 && found != nullptr && *found != nullptr) *found = counted(name, version, *found);
  return error;
}

/// What is handed out in place of a driver function.
void* counted(const std::string& name, int version, void* found) {
  constexpr int kVersionWithStatus = 12000;
  if (name == "cuGetProcAddress_v2" ||
      (name == "cuGetProcAddress" && version >= kVersionWithStatus)) {
    real_get2 = found;
    return reinterpret_cast<void*>(get_proc_address2);
  }
  if (name == "cuGetProcAddress") {
    real_get1 = found;
    return reinterpret_cast<void*>(get_proc_address1);
  }
  return stub_of(name, found);
}

using Dlsym = void* (*)(void*, const char*);

Dlsym real_dlsym() {
  static const Dlsym found = [] {
    void* real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (real == nullptr) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym>(real);
  }();
  return found;
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  void* found = real_dlsym()(handle, name);
  const std::string text = name;
  const bool is_driver =
      text.size() > 2 && text.starts_with("cu") && text[2] >= 'A' && text[2] <= 'Z';
  return found != nullptr && is_driver ? counted(text, 0, found) : found;
}

extern "C" void sluice_driver_calls_reset() {
  std::fill_n(counts_of_stubs(), kStubsMax, 0);
}

extern "C" void sluice_driver_calls_list(char* text, unsigned long num_bytes) {
  Stubs& all = stubs();
  const std::lock_guard lock(all.mutex);
  std::vector<std::pair<int64_t, std::string>> called;
  for (size_t i = 0; i < all.names.size(); ++i) {
    if (counts_of_stubs()[i] > 0) called.emplace_back(counts_of_stubs()[i], all.names[i]);
  }
  std::sort(called.rbegin(), called.rend());
  std::string list;
  for (const auto& [count, name] : called) list += name + " " + std::to_string(count) + "\n";
  std::snprintf(text, num_bytes, "%s", list.c_str());
}
