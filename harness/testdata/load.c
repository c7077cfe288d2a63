/* SPDX-License-Identifier: Apache-2.0
 * Libraries that go wrong while they are loaded, and ones that are unusual but right: LOAD_CASE
 * says which. */
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels.h"

#define CRASH 1
#define EXIT 2
#define HANG 3
#define NO_ENTRY 4
#define NULL_ENTRY 5
#define WRONG_ABI 6
#define BAD_DECLARATION 7
#define SHORT_STRUCT 8
#define TINY_STRUCT 9
#define OPEN_FAILS 10
#define NO_FORWARD 11
#define BAD_ALIGNMENT 12
#define NO_DECLARATION 13
#define PLANNED 14
#define OPEN_CRASHES 15
#define KILLED 16

#if LOAD_CASE == CRASH
__attribute__((constructor)) static void crash(void) { *(volatile int*)8 = 1; }
#elif LOAD_CASE == EXIT
__attribute__((constructor)) static void leave(void) { exit(4); }
#elif LOAD_CASE == KILLED
__attribute__((constructor)) static void kill_it(void) { raise(SIGKILL); }
#elif LOAD_CASE == HANG
__attribute__((constructor)) static void hang(void) {
  for (volatile int i = 0;; i ^= 1) {
  }
}
#endif

static attest_status forward(void* state, void* plan, const attest_attention* p,
                             attest_context* context) {
  (void)state, (void)plan, (void)context;
  return average(p);
}

#if LOAD_CASE == OPEN_FAILS || LOAD_CASE == OPEN_CRASHES
static attest_status open_(int32_t device, attest_context* context, void** state) {
  (void)device, (void)state;
#if LOAD_CASE == OPEN_CRASHES
  abort();
#endif
  strcpy(context->message, "no device");
  return ATTEST_FAILED;
}
#endif

#if LOAD_CASE == PLANNED
/* Asks for as many bytes of workspace as q_len says; forward checks what it got. */
static int plans = 0;
static attest_status plan_(void* state, const char* operation, const attest_attention* p,
                           attest_context* context, void** plan, uint64_t* workspace_bytes) {
  (void)state, (void)context;
  if (strcmp(operation, "forward") != 0) return ATTEST_UNSUPPORTED;
  ++plans;
  *plan = &plans;
  *workspace_bytes = (uint64_t)p->q->shape[2] * 1000;
  return ATTEST_OK;
}
static void drop(void* state, void* plan) {
  (void)state;
  --*(int*)plan;
}
/* kv_len says what to do with it: 1 fills it, 2 writes past its end, 3 before it, 4 far past it. */
static attest_status planned(void* state, void* plan, const attest_attention* p,
                             attest_context* context) {
  (void)state;
  unsigned char* bytes = context->workspace;
  if (plan != &plans || plans != 1 || ((size_t)bytes & 255) != 0) return ATTEST_FAILED;
  if (context->workspace_bytes != (uint64_t)p->q->shape[2] * 1000) return ATTEST_FAILED;
  memset(bytes, 0, context->workspace_bytes);
  const int64_t what = p->k->shape[2];
  if (what == 2) bytes[context->workspace_bytes] = 9;
  if (what == 3) bytes[-1] = 9;
  if (what == 4) bytes[context->workspace_bytes + 600] = 9;
  return average(p);
}
#endif

#if LOAD_CASE != NO_ENTRY
ATTEST_EXPORT const attest_plugin* attest_plugin_entry(uint32_t version) {
  static attest_plugin plugin;
  (void)version;
  memset(&plugin, 0, sizeof plugin);
  plugin.struct_size = sizeof plugin;
  plugin.abi_version = ATTEST_ABI_VERSION;
  plugin.name = "only";
  plugin.version = "1";
  plugin.declaration = "dtype=f32 lse empty_dims";
  plugin.forward = forward;
#if LOAD_CASE == NULL_ENTRY
  return NULL;
#elif LOAD_CASE == WRONG_ABI
  plugin.abi_version = 99;
#elif LOAD_CASE == BAD_DECLARATION
  plugin.declaration = "dtype=f31";
#elif LOAD_CASE == SHORT_STRUCT
  /* Built before backward and what follows it were there: garbage lies behind. */
  plugin.struct_size = offsetof(attest_plugin, backward);
  memset((char*)&plugin + plugin.struct_size, 0x77, sizeof plugin - plugin.struct_size);
#elif LOAD_CASE == TINY_STRUCT
  plugin.struct_size = 8;
#elif LOAD_CASE == OPEN_FAILS || LOAD_CASE == OPEN_CRASHES
  plugin.open = open_;
#elif LOAD_CASE == NO_FORWARD
  plugin.forward = NULL;
#elif LOAD_CASE == BAD_ALIGNMENT
  plugin.alignment = 48;
#elif LOAD_CASE == NO_DECLARATION
  plugin.declaration = NULL;
#elif LOAD_CASE == PLANNED
  plugin.plan = plan_;
  plugin.drop = drop;
  plugin.forward = planned;
#endif
  return &plugin;
}
#endif
