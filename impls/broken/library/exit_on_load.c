/* SPDX-License-Identifier: Apache-2.0
 * A library whose constructor does not return: exit. */
#include <unistd.h>

__attribute__((constructor)) static void on_load(void) { _exit(0); }
