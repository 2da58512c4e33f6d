/* SPDX-License-Identifier: MIT
 * fuzz.h: the face of a libFuzzer target. `make fuzz` builds and runs each file of this folder
 * from its seeds; a crash becomes a spec. */
#ifndef CB_FUZZ_FUZZ_H
#define CB_FUZZ_FUZZ_H
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
#endif
