/* SPDX-License-Identifier: Apache-2.0
 * A library whose constructor does not return: hang. */
__attribute__((constructor)) static void on_load(void) {
  for (volatile int again = 1; again;) {
  }
}
