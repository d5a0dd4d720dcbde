/* One tracepoint with an integer, a string and a floating-point field. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER tracee

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tracee.h"

#if !defined(TRACEE_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TRACEE_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    tracee, tick,
    LTTNG_UST_TP_ARGS(int, number, const char *, name),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, number, number)
        lttng_ust_field_string(name, name)
        lttng_ust_field_float(double, half, number / 2.0)
    )
)

#endif

#include <lttng/tracepoint-event.h>
