/*
 * Events of a C program. Build the library by `cargo build -p trace-ring`, then:
 *
 *     cc -Icrates/trace-ring/include crates/trace-ring/examples/app.c -Ltarget/debug -ltrace_ring -o app
 *     LD_LIBRARY_PATH=target/debug ./app [--kill]
 *
 * With --kill the program kills itself in mid-work; every event that it has finished is in the ring.
 */
#define RING_TARGET "app"
#include "trace_ring.h"

#include <signal.h>
#include <string.h>

RING_SITE(request_done, RING_INFO, "request done", {"status", RING_TYPE_U32}, {"path", RING_TYPE_STRING},
          {"seconds", RING_TYPE_F64}, {"cached", RING_TYPE_BOOL}, {"key", RING_TYPE_BYTES});
RING_SITE_EMPTY(started, RING_WARN, "started");
RING_SITE_PRINTF(interrupted, RING_ERROR);

__attribute__((constructor)) static void before_main(void)
{
    ring_printf(RING_INFO, "before main");
}

static void on_signal(int number)
{
    ring_site_printf(&interrupted, "signal %d", number);
}

static void write_request(uint32_t status, const char *path)
{
    static const unsigned char key[] = {1, 2, 255};
    struct ring_event event;

    if (ring_event_begin(&event, &request_done, strlen(path) + sizeof key)) {
        ring_put_u32(&event, status);
        ring_put_string(&event, path);
        ring_put_f64(&event, 0.25);
        ring_put_bool(&event, true);
        ring_put_bytes(&event, key, sizeof key);
        ring_event_end(&event);
    }
}

int main(int count, char **arguments)
{
    struct ring_event event;
    int n;

    if (ring_event_begin(&event, &started, 0)) {
        ring_event_end(&event);
    }
    write_request(200, "/index.html");
    write_request(404, "/missing");
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    for (n = 0; n < 1000; n++) {
        ring_printf(RING_INFO, "%d of %s", n, "1000");
        ring_printf(RING_DEBUG, "off unless TRACE_RING_FILTER says otherwise: %d", n);
    }
    if (count > 1 && strcmp(arguments[1], "--kill") == 0) {
        raise(SIGKILL);
    }
    return 0;
}
