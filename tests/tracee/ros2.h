/* Some tracepoints of the provider `ros2`, with the names and fields that `tracetools` of ROS 2 gives them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./ros2.h"

#if !defined(ROS2_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define ROS2_H

#include <stddef.h>
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rcl_node_init,
    LTTNG_UST_TP_ARGS(const void *, node, const void *, rmw, const char *, name, const char *, space),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, node_handle, node)
        lttng_ust_field_integer_hex(const void *, rmw_handle, rmw)
        lttng_ust_field_string(node_name, name)
        lttng_ust_field_string(namespace, space)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rcl_publisher_init,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, node, const void *, rmw, const char *, topic, size_t, depth),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, node_handle, node)
        lttng_ust_field_integer_hex(const void *, rmw_publisher_handle, rmw)
        lttng_ust_field_string(topic_name, topic)
        lttng_ust_field_integer(size_t, queue_depth, depth)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rclcpp_callback_register,
    LTTNG_UST_TP_ARGS(const void *, registered, const char *, name),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, registered)
        lttng_ust_field_string(symbol, name)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, rclcpp_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, text),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, text)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, callback_start,
    LTTNG_UST_TP_ARGS(const void *, started, int, is_intra),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, started)
        lttng_ust_field_integer(int, is_intra_process, is_intra)
    )
)

LTTNG_UST_TRACEPOINT_EVENT(
    ros2, callback_end,
    LTTNG_UST_TP_ARGS(const void *, ended),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, ended)
    )
)

#endif

#include <lttng/tracepoint-event.h>
