/*
 * The traced program of the tests in C: `ring-writer PROGRESS 1 EVENTS [PAUSE_US]`, as ring/writer/main.rs with one
 * thread. Every second event is written by ring_printf.
 */
#define RING_TARGET "ring_writer"
#include "trace_ring.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

RING_SITE(tick, RING_INFO, "tick", {"message", RING_TYPE_STRING}, {"thread", RING_TYPE_U64},
          {"number", RING_TYPE_U64});

static void write_tick(uint64_t number)
{
    static const char message[] = "a tick";
    struct ring_event event;

    if (number % 2 == 1) {
        ring_printf(RING_INFO, "thread = %d, number = %" PRIu64, 0, number);
    } else if (ring_event_begin(&event, &tick, strlen(message))) {
        ring_put_string(&event, message);
        ring_put_u64(&event, 0);
        ring_put_u64(&event, number);
        ring_event_end(&event);
    }
}

int main(int count, char **arguments)
{
    uint64_t written = 0;
    uint64_t events;
    useconds_t microseconds;
    int progress;

    if (count < 4) {
        fprintf(stderr, "usage: ring-writer PROGRESS 1 EVENTS [PAUSE_US]\n");
        return 2;
    }
    events = strtoull(arguments[3], NULL, 10);
    microseconds = count > 4 ? (useconds_t)strtoul(arguments[4], NULL, 10) : 0;
    progress = open(arguments[1], O_WRONLY | O_CREAT, 0600);
    while (events == 0 || written < events) {
        write_tick(written);
        written++;
        if (pwrite(progress, &written, sizeof written, 0) != sizeof written) {
            return 1;
        }
        if (microseconds > 0) {
            usleep(microseconds);
        }
    }
    return 0;
}
