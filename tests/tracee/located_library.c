/* A shared object with a tracepoint provider of its own. Its events are in a function and in one inlined there. */
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tracee.h"

void call_library(int number);

static inline __attribute__((always_inline)) void inlined(int number)
{
    lttng_ust_tracepoint(tracee, tick, number, "inlined");
}

void call_library(int number)
{
    lttng_ust_tracepoint(tracee, tick, number, "called");
    inlined(number + 1);
}
