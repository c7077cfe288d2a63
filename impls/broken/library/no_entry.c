/* SPDX-License-Identifier: Apache-2.0
 * A shared library that is no plug-in. */
__attribute__((visibility("default"))) int something_else(void);
int something_else(void) { return 0; }
