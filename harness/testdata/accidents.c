/* SPDX-License-Identifier: Apache-2.0
 * Kernels that do one thing wrong each, one after the other in one library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"

#define FORWARD(kernel)                                                           \
  static attest_status kernel(void* state, void* plan, const attest_attention* p, \
                              attest_context* context)
#define UNUSED (void)state, (void)plan, (void)context

static float* end_of(const DLTensor* t) {
  return f32(t, t->shape[0] - 1, t->shape[1] - 1, t->shape[2] - 1, t->shape[3] - 1) + 1;
}

static volatile float sink_of_reads;

FORWARD(honest) {
  UNUSED;
  return average(p);
}
FORWARD(read_past_k) {
  UNUSED;
  sink_of_reads = *end_of(p->k);
  return average(p);
}
FORWARD(read_before_q) {
  UNUSED;
  sink_of_reads = ((float*)p->q->data)[-1];
  return average(p);
}
FORWARD(write_past_o) {
  UNUSED;
  end_of(p->o)[0] = 3;
  return average(p);
}
FORWARD(write_before_o) {
  UNUSED;
  ((float*)p->o->data)[-1] = 3;
  return average(p);
}
FORWARD(write_past_v) {
  UNUSED;
  end_of(p->v)[1] = 3;
  return average(p);
}
FORWARD(far_past_v) { /* the length of a long row past the end: over a guard of one page */
  UNUSED;
  end_of(p->v)[5000] = 3;
  return average(p);
}
FORWARD(modify_q) {
  UNUSED;
  *(float*)p->q->data += 1;
  return average(p);
}
FORWARD(modify_v) {
  UNUSED;
  *(float*)p->v->data += 1;
  return average(p);
}
FORWARD(write_gap) { /* the element after the first row of o */
  UNUSED;
  f32(p->o, 0, 0, 0, 0)[p->o->shape[3]] = 3;
  return average(p);
}
FORWARD(memory_found) { /* what new memory holds, and memory that was ours */
  UNUSED;
  float* mine = malloc(64);
  *f32(p->o, 0, 0, 0, 0) = mine[3];
  for (int i = 0; i < 16; ++i) mine[i] = 1;
  free(mine);
  float* again = malloc(64);
  *f32(p->o, 0, 0, 0, 1) = again[3];
  again = realloc(again, 4096);
  *f32(p->o, 0, 0, 0, 2) = again[1000];
  free(again);
  return ATTEST_OK;
}
FORWARD(take_memory) { /* 3 MiB at its most, 1 of which it keeps */
  UNUSED;
  static char* volatile kept;
  if (!kept) kept = malloc(1 << 20);
  char* volatile block = malloc(1 << 20);
  free(block);
  block = calloc(1 << 10, 1 << 10);
  block = realloc(block, 2 << 20);
  free(block);
  return average(p);
}
static void* take_and_give_back(void* unused) {
  (void)unused;
  for (int i = 0; i < 100000; ++i) {
    char* volatile block = malloc(1 << (4 + i % 10));
    free(block);
  }
  return NULL;
}
FORWARD(take_in_threads) { /* no more than 32 KiB at once, and the threads */
  UNUSED;
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, take_and_give_back, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  return average(p);
}
FORWARD(skip_last) {
  UNUSED;
  float* last = end_of(p->o) - 1;
  const float was = *last;
  average(p);
  memcpy(last, &was, sizeof was);
  return ATTEST_OK;
}
FORWARD(segfault) {
  UNUSED, (void)p;
  *(volatile int*)8 = 1;
  return ATTEST_OK;
}
FORWARD(abort_) {
  UNUSED, (void)p;
  fprintf(stderr, "giving up\n");
  abort();
}
FORWARD(exit_) {
  UNUSED, (void)p;
  _exit(3);
}
FORWARD(divide) {
  UNUSED;
  volatile int64_t zero = p->q->shape[0] - p->q->shape[0];
  return (attest_status)(7 / zero);
}
FORWARD(overflow_stack) {
  volatile char page[8192];
  page[0] = (char)(size_t)context;
  return overflow_stack(state, plan, p, context) + page[0];
}
FORWARD(hang) {
  UNUSED, (void)p;
  for (volatile int i = 0;; i ^= 1) {
  }
}
FORWARD(sleep_) {
  UNUSED, (void)p;
  for (;;) pause();
}
FORWARD(allocate) { /* and touches: the slow way to use up memory */
  UNUSED, (void)p;
  for (;;) {
    char* block = malloc(1 << 20);
    if (block) memset(block, 1, 1 << 20);
  }
}
FORWARD(null_after_malloc) {
  UNUSED, (void)p;
  volatile size_t bytes = (size_t)1 << 40;
  volatile char* block = malloc(bytes);
  block[0] = 1;
  return ATTEST_OK;
}
FORWARD(junk_status) {
  UNUSED, (void)p;
  return 77;
}
FORWARD(refuse) {
  (void)state, (void)plan, (void)p;
  strcpy(context->message, "not\ttoday \xff");
  return ATTEST_UNSUPPORTED;
}
FORWARD(print) {
  UNUSED;
  printf("noise on stdout\n");
  fflush(stdout);
  fprintf(stderr, "noise on stderr\n");
  return average(p);
}
FORWARD(read_stdin) { /* must find nothing, and no descriptor of the runner */
  UNUSED;
  char byte;
  if (read(0, &byte, 1) != 0) return 5;
  for (int fd = 4; fd < 64; ++fd)
    if (write(fd, &byte, 0) == 0) return 6;
  return average(p);
}
FORWARD(killed) {
  UNUSED, (void)p;
  raise(SIGKILL);
  return ATTEST_OK;
}
FORWARD(count) { /* o[0] counts the calls of this process */
  UNUSED;
  static int calls = 0;
  average(p);
  *(float*)p->o->data = (float)++calls;
  return ATTEST_OK;
}
FORWARD(tell_pid) { /* for ever in its second call */
  UNUSED;
  static int calls = 0;
  if (++calls == 2)
    for (;;) pause();
  average(p);
  *(float*)p->o->data = (float)getpid();
  return ATTEST_OK;
}
/* What a kernel that writes wild can do at worst: to all that it shares with the runner. */
static attest_status vandalise(int byte, const attest_attention* p) {
  static char block[1 << 16];
  memset(block, byte, sizeof block);
  if (pwrite(3, block, sizeof block, 0) != sizeof block) return 5;
  return average(p);
}
FORWARD(vandal_zeros) {
  UNUSED;
  return vandalise(0, p);
}
FORWARD(vandal_ones) {
  UNUSED;
  return vandalise(1, p);
}
FORWARD(vandal_high) {
  UNUSED;
  return vandalise(0xff, p);
}
FORWARD(fork_) { /* leaves a process behind, which holds stdout */
  UNUSED;
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  average(p);
  *(float*)p->o->data = (float)child;
  return ATTEST_OK;
}
FORWARD(fork_twice) { /* both processes return; o[0] counts calls, the child from 1000 */
  UNUSED;
  static int calls = 0;
  if (++calls == 1 && fork() == 0) {
    calls = 1000;
    return ATTEST_OK;
  }
  average(p);
  *(float*)p->o->data = (float)calls;
  return ATTEST_OK;
}
FORWARD(fork_crash) { /* the child crashes, which is no fault of this call */
  UNUSED;
  const pid_t child = fork();
  if (child == 0) *(volatile int*)8 = 1;
  int status;
  waitpid(child, &status, 0);
  average(p);
  *(float*)p->o->data = (float)(WIFSIGNALED(status) ? WTERMSIG(status) : -1);
  return ATTEST_OK;
}
FORWARD(truncate_) { /* the memory that it shares with the runner */
  UNUSED;
  if (ftruncate(3, 0) == 0) return 5;
  return average(p);
}
FORWARD(print_much) {
  UNUSED;
  for (int i = 0; i < 100000; ++i) printf("line %d of a kernel that prints much\n", i);
  fflush(stdout);
  return average(p);
}
FORWARD(limits) { /* core dumps are off */
  UNUSED;
  struct rlimit limit;
  if (getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_cur != 0) return 5;
  return average(p);
}

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
FORWARD(starved) { /* a busy process takes its core for 1.5 s; then it goes on for 10 ms */
  UNUSED;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  sched_setaffinity(0, sizeof here, &here);
  const pid_t child = fork();
  if (child == 0) {
    for (const double end = now(CLOCK_MONOTONIC) + 1.5; now(CLOCK_MONOTONIC) < end;) continue;
    _exit(0);
  }
  const struct sched_param plain = {0};
  sched_setscheduler(0, SCHED_IDLE, &plain);
  for (const double end = now(CLOCK_PROCESS_CPUTIME_ID) + 0.01;
       now(CLOCK_PROCESS_CPUTIME_ID) < end;)
    continue;
  waitpid(child, NULL, 0);
  return average(p);
}

#define MAX_KERNELS 40
static attest_plugin kernels[MAX_KERNELS];
static int num_kernels = 0;

static void add(const char* name,
                attest_status (*forward)(void*, void*, const attest_attention*, attest_context*)) {
  attest_plugin* kernel = &kernels[num_kernels++];
  kernel->struct_size = sizeof *kernel;
  kernel->abi_version = ATTEST_ABI_VERSION;
  kernel->name = name;
  kernel->version = "1.2";
  kernel->declaration = "dtype=f32 gqa v_head_dim=1..64 lse layout=any empty_dims";
  kernel->device_type = kDLCPU;
  kernel->forward = forward;
  if (num_kernels > 1) kernels[num_kernels - 2].next = kernel;
}

ATTEST_EXPORT const attest_plugin* attest_plugin_entry(uint32_t version) {
  (void)version;
  if (num_kernels) return kernels;
#define ADD(name, function) add(name, function)
  ADD("honest", honest);
  ADD("read_past_k", read_past_k);
  ADD("read_before_q", read_before_q);
  ADD("write_past_o", write_past_o);
  ADD("write_before_o", write_before_o);
  ADD("write_past_v", write_past_v);
  ADD("far_past_v", far_past_v);
  ADD("modify_q", modify_q);
  ADD("modify_v", modify_v);
  ADD("write_gap", write_gap);
  ADD("memory_found", memory_found);
  ADD("take_memory", take_memory);
  ADD("take_in_threads", take_in_threads);
  ADD("skip_last", skip_last);
  ADD("segfault", segfault);
  ADD("abort", abort_);
  ADD("exit", exit_);
  ADD("divide", divide);
  ADD("overflow_stack", overflow_stack);
  ADD("hang", hang);
  ADD("sleep", sleep_);
  ADD("allocate", allocate);
  ADD("null_after_malloc", null_after_malloc);
  ADD("junk_status", junk_status);
  ADD("refuse", refuse);
  ADD("print", print);
  ADD("read_stdin", read_stdin);
  ADD("killed", killed);
  ADD("count", count);
  ADD("tell_pid", tell_pid);
  ADD("vandal_zeros", vandal_zeros);
  ADD("vandal_ones", vandal_ones);
  ADD("vandal_high", vandal_high);
  ADD("fork", fork_);
  ADD("fork_twice", fork_twice);
  ADD("fork_crash", fork_crash);
  ADD("truncate", truncate_);
  ADD("print_much", print_much);
  ADD("limits", limits);
  ADD("starved", starved);
  return kernels;
}
