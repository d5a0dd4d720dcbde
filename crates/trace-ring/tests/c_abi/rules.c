/* What the header promises beside the usual use. */
#define RING_TARGET "rules"
#define RING_PRINTF_SIZE 16
#include "trace_ring.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

RING_SITE(two, RING_INFO, "two", {"a", RING_TYPE_U64}, {"b", RING_TYPE_STRING});
RING_SITE(every, RING_INFO, "every", {"u8", RING_TYPE_U8}, {"u16", RING_TYPE_U16}, {"u32", RING_TYPE_U32},
          {"u64", RING_TYPE_U64}, {"i8", RING_TYPE_I8}, {"i16", RING_TYPE_I16}, {"i32", RING_TYPE_I32},
          {"i64", RING_TYPE_I64}, {"f32", RING_TYPE_F32}, {"f64", RING_TYPE_F64}, {"bool", RING_TYPE_BOOL},
          {"text", RING_TYPE_STRING}, {"bytes", RING_TYPE_BYTES});
RING_SITE_PRINTF(in_handler, RING_WARN);

static void on_signal(int number)
{
    ring_site_printf(&in_handler, "%d", number);
}

static void write_every(void)
{
    struct ring_event event;

    if (!ring_event_begin(&event, &every, 3)) {
        abort();
    }
    ring_put_u8(&event, 255);
    ring_put_u16(&event, 65535);
    ring_put_u32(&event, 4294967295u);
    ring_put_u64(&event, UINT64_MAX);
    ring_put_i8(&event, -128);
    ring_put_i16(&event, -32768);
    ring_put_i32(&event, INT32_MIN);
    ring_put_i64(&event, INT64_MIN);
    ring_put_f32(&event, 0.5f);
    ring_put_f64(&event, -0.25);
    ring_put_bool(&event, true);
    ring_put_string(&event, NULL);
    ring_put_bytes(&event, "abc", 3);
    ring_event_end(&event);
}

/* Four events that are lost. */
static void break_rules(void)
{
    struct ring_event event;

    if (ring_event_begin(&event, &two, 0)) {
        ring_put_u32(&event, 1); /* another type */
        ring_put_string(&event, "");
        ring_event_end(&event);
    }
    if (ring_event_begin(&event, &two, 0)) {
        ring_put_u64(&event, 1); /* a value is missing */
        ring_event_end(&event);
    }
    ring_event_end(&event); /* has ended already */
    if (ring_event_begin(&event, &two, 3)) {
        ring_put_u64(&event, 1);
        ring_put_string(&event, "four"); /* more bytes than announced */
        ring_event_end(&event);
    }
    if (ring_event_begin(&event, &two, 5)) {
        ring_put_u64(&event, 2);
        raise(SIGUSR1); /* the handler's event is nested */
        ring_put_text(&event, "whole text", 5);
        ring_event_end(&event);
    }
}

int main(void)
{
    errno = 42;
    ring_printf(RING_INFO, "%s", "a text that is cut");
    if (errno != 42) {
        abort();
    }
    if (!ring_init()) {
        return 3;
    }
    write_every();
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    break_rules();
    return ring_lost_without_ring() == 2 ? 0 : 4;
}
