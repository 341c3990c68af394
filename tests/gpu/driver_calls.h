#pragma once
// What a library that is loaded ahead of a program (LD_PRELOAD) tells it: calls of the CUDA driver since the last reset, by name.
// Found with dlsym, so that a program without it starts too.

extern "C" {
void sluice_driver_calls_reset();
/// "name count" lines, most frequent first, of at most `num_bytes` with the closing zero.
void sluice_driver_calls_list(char* text, unsigned long num_bytes);
}
