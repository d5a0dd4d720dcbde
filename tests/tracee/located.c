/* A traced application with events in main, in an inlined function and in one that is not. */
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tracee.h"

static inline __attribute__((always_inline)) void inlined(int number)
{
    lttng_ust_tracepoint(tracee, tick, number, "inlined");
}

static __attribute__((noinline)) void called(int number)
{
    lttng_ust_tracepoint(tracee, tick, number, "called");
    inlined(number + 1);
}

int main(void)
{
    lttng_ust_tracepoint(tracee, tick, 0, "main");
    inlined(1);
    for (int number = 2; number < 10; number++)
        called(number);
    return 0;
}
