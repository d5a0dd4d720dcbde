/*
 * The traced application: emits COUNT events with a pause of PAUSE_US microseconds after each, and exits.
 *
 *   tracee COUNT [PAUSE_US [NAME [FIRST]]]
 *
 * Events are numbered from FIRST (default 0) and carry NAME. With "-" as COUNT, the application emits one event for
 * each line of its standard input, until that ends.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tracee.h"

int main(int argc, char **argv)
{
    useconds_t pause_us = argc > 2 ? (useconds_t) atol(argv[2]) : 0;
    const char *name = argc > 3 ? argv[3] : "tracee";
    int first = argc > 4 ? atoi(argv[4]) : 0;

    if (argc < 2) {
        fprintf(stderr, "usage: tracee COUNT|- [PAUSE_US [NAME [FIRST]]]\n");
        return 2;
    }
    if (strcmp(argv[1], "-") == 0) {
        char line[256];
        for (int number = first; fgets(line, sizeof(line), stdin); number++) {
            lttng_ust_tracepoint(tracee, tick, number, name);
            /* Tells the test that the event is emitted. */
            puts(name);
            fflush(stdout);
        }
        return 0;
    }
    int count = atoi(argv[1]);
    for (int number = first; number < first + count; number++) {
        lttng_ust_tracepoint(tracee, tick, number, name);
        if (pause_us > 0)
            usleep(pause_us);
    }
    return 0;
}
