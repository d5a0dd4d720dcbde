/* The events of the benchmark, as tracepoints of LTTng-UST. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tracepoints.h"

#if !defined(TRACEPOINTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TRACEPOINTS_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    bench, ints,
    LTTNG_UST_TP_ARGS(int, first, int, second),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, first, first)
        lttng_ust_field_integer(int, second, second)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    bench, text,
    LTTNG_UST_TP_ARGS(int, first, int, second, const char *, text),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, first, first)
        lttng_ust_field_integer(int, second, second)
        lttng_ust_field_string(text, text)
    )
)

/* Never enabled. */
LTTNG_UST_TRACEPOINT_EVENT(
    bench, disabled,
    LTTNG_UST_TP_ARGS(int, first, int, second),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, first, first)
        lttng_ust_field_integer(int, second, second)
    )
)

#endif

#include <lttng/tracepoint-event.h>
