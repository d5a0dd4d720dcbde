/*
 * trace-ring: events in shared memory that survive the death of the program.
 *
 *     ring_printf(RING_INFO, "listening on port %d", port);
 *
 *     RING_SITE(request_done, RING_INFO, "request done",
 *               {"status", RING_TYPE_U32}, {"path", RING_TYPE_STRING});
 *
 *     struct ring_event event;
 *     if (ring_event_begin(&event, &request_done, strlen(path))) {
 *         ring_put_u32(&event, 200);
 *         ring_put_string(&event, path);
 *         ring_event_end(&event);
 *     }
 *
 * C99 or C++11, with gcc or clang. Link with -ltrace_ring; the static library also needs -lpthread -ldl -lm.
 * Environment variables and behaviour: doc/trace-ring.md.
 *
 * Everything may be called from any thread, from constructors and from signal handlers, and keeps errno. The first
 * event of a thread and of a call site allocate memory: when a handler may interrupt malloc, write an event of the same
 * call site (ring_site_printf or ring_event_begin) on that thread before, outside of a handler. An event that a handler
 * writes in the middle of another event of its thread is counted as lost.
 */
#ifndef TRACE_RING_H
#define TRACE_RING_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Severities. By default the filter lets RING_INFO and above pass. */
#define RING_ERROR 1
#define RING_WARN 2
#define RING_INFO 3
#define RING_DEBUG 4
#define RING_TRACE 5

/* Types of fields. */
#define RING_TYPE_U8 1
#define RING_TYPE_U16 2
#define RING_TYPE_U32 3
#define RING_TYPE_U64 4
#define RING_TYPE_I8 5
#define RING_TYPE_I16 6
#define RING_TYPE_I32 7
#define RING_TYPE_I64 8
#define RING_TYPE_F32 9
#define RING_TYPE_F64 10
#define RING_TYPE_BOOL 11
#define RING_TYPE_STRING 12
#define RING_TYPE_BYTES 13

/* Left side of a filter directive. Define it before this header is included, for example as "app::db". */
#ifndef RING_TARGET
#define RING_TARGET __FILE__
#endif

/* ring_printf cuts its text to this number of bytes, the terminating NUL included. The text is on the stack. */
#ifndef RING_PRINTF_SIZE
#define RING_PRINTF_SIZE 1024
#endif

/* A field of a call site. */
struct ring_field {
    const char *name;
    uint32_t type; /* RING_TYPE_... */
};

/* A place in the program that writes events of one name. Made by RING_SITE; a program does not touch the members. */
struct ring_site {
    void *site;
    const char *target;
    const char *file;
    const char *name;
    const struct ring_field *fields;
    uint32_t field_count;
    uint32_t line;
    uint32_t severity;
};

/* An event that has been begun, on the stack of the thread that writes it. */
struct ring_event {
    uint64_t words[16];
};

#define RING_SITE_WITH_(fields, count, severity, name) \
    { NULL, RING_TARGET, __FILE__, name, fields, count, (uint32_t)__LINE__, severity }

/* Defines the call site `variable` with at least one field: RING_SITE(v, RING_INFO, "name", {"n", RING_TYPE_U32}). */
#define RING_SITE(variable, severity, name, ...) \
    static const struct ring_field variable##_fields[] = {__VA_ARGS__}; \
    static struct ring_site variable = RING_SITE_WITH_( \
        variable##_fields, (uint32_t)(sizeof variable##_fields / sizeof variable##_fields[0]), severity, name)

/* Defines the call site `variable` without fields. */
#define RING_SITE_EMPTY(variable, severity, name) \
    static struct ring_site variable = RING_SITE_WITH_(NULL, 0, severity, name)

/* Defines the call site `variable` for ring_site_printf. */
#define RING_SITE_PRINTF(variable, severity) \
    RING_SITE(variable, severity, "printf", {"message", RING_TYPE_STRING})

/*
 * Makes the process directory now rather than at the first event, so that the filter can be changed from outside before
 * anything is written. Returns whether events are recorded. Calling it is optional.
 */
bool ring_init(void);

/* Events that were lost in this process and that no ring counts. */
uint64_t ring_lost_without_ring(void);

/* Whether the filter lets events of the call site pass; to avoid the work of preparing values. */
bool ring_is_enabled(struct ring_site *site);

/*
 * Begins an event if the filter lets it pass. content_size is at least the number of bytes of all strings and byte
 * sequences of the event, as strlen counts them; 0 when there are none. Returns false when there is nothing to write.
 *
 * After true, put one value for each field of the call site, in its order and of its type, and end the event. Until then
 * other events of the thread are lost. An event with other values, or with more bytes, is lost, and counted.
 */
bool ring_event_begin(struct ring_event *event, struct ring_site *site, size_t content_size);

void ring_put_u8(struct ring_event *event, uint8_t value);
void ring_put_u16(struct ring_event *event, uint16_t value);
void ring_put_u32(struct ring_event *event, uint32_t value);
void ring_put_u64(struct ring_event *event, uint64_t value);
void ring_put_i8(struct ring_event *event, int8_t value);
void ring_put_i16(struct ring_event *event, int16_t value);
void ring_put_i32(struct ring_event *event, int32_t value);
void ring_put_i64(struct ring_event *event, int64_t value);
void ring_put_f32(struct ring_event *event, float value);
void ring_put_f64(struct ring_event *event, double value);
void ring_put_bool(struct ring_event *event, bool value);
/* Strings are UTF-8. They and byte sequences are cut to 65,535 bytes. */
void ring_put_string(struct ring_event *event, const char *text);
void ring_put_text(struct ring_event *event, const char *text, size_t size);
void ring_put_bytes(struct ring_event *event, const void *data, size_t size);

/* Makes the event visible to readers: from here on a kill cannot take it away. */
void ring_event_end(struct ring_event *event);

/* Writes an event with the field `message`; the call site is made by RING_SITE_PRINTF. */
static inline void ring_site_printf(struct ring_site *site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline void ring_site_printf(struct ring_site *site, const char *format, ...)
{
    char text[RING_PRINTF_SIZE];
    struct ring_event event;
    va_list arguments;
    int saved_errno = errno;
    int length;

    if (!ring_is_enabled(site)) {
        return;
    }
    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        size_t size = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
        if (ring_event_begin(&event, site, size)) {
            ring_put_text(&event, text, size);
            ring_event_end(&event);
        }
    }
    errno = saved_errno;
}

/*
 * Writes an event with the field `message`: ring_printf(RING_INFO, "%d of %d", n, m). The severity is a constant. The
 * arguments are evaluated only when the filter lets the event pass.
 */
#define ring_printf(severity, ...) \
    do { \
        RING_SITE_PRINTF(ring_printf_site_, severity); \
        if (ring_is_enabled(&ring_printf_site_)) { \
            ring_site_printf(&ring_printf_site_, __VA_ARGS__); \
        } \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
