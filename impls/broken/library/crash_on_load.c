/* SPDX-License-Identifier: Apache-2.0
 * A library whose constructor does not return: crash. */
static void* volatile address;

__attribute__((constructor)) static void on_load(void) { *(volatile int*)address = 1; }
