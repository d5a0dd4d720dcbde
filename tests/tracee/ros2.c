/*
 * A program with the events of a ROS 2 node: a timer callback that publishes to /chatter.
 *
 *   ros2-node CALLBACKS PAUSE_US
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "ros2.h"

int main(int argc, char **argv)
{
    const void *node = (void *) 0x1000, *publisher = (void *) 0x2000, *callback = (void *) 0x3000;

    if (argc < 3) {
        fprintf(stderr, "usage: ros2-node CALLBACKS PAUSE_US\n");
        return 2;
    }
    lttng_ust_tracepoint(ros2, rcl_node_init, node, node, "talker", "/");
    lttng_ust_tracepoint(ros2, rcl_publisher_init, publisher, node, publisher, "/chatter", 7);
    lttng_ust_tracepoint(ros2, rclcpp_callback_register, callback, "Talker::on_timer()");
    for (int left = atoi(argv[1]); left > 0; left--) {
        lttng_ust_tracepoint(ros2, callback_start, callback, 0);
        lttng_ust_tracepoint(ros2, rclcpp_publish, publisher, argv);
        usleep((useconds_t) atol(argv[2]));
        lttng_ust_tracepoint(ros2, callback_end, callback);
    }
    return 0;
}
