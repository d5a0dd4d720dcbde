/*
 * The load of the benchmark with LTTng-UST: the same as `load.rs`, whose comments say what it measures.
 *
 *   tracepoints EVENT THREADS BATCHES EVENTS PAUSE_MS TEXT
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "tracepoints.h"

/* As in load.rs. */
#define WARM_UP 5
#define MAX_BATCHES 100
#define MAX_THREADS 16

static const char *event, *text;
static int batches, events, pause_ms;
static pthread_barrier_t barrier;
static struct {
    double cpu[MAX_BATCHES], begin[MAX_BATCHES], end[MAX_BATCHES];
} times[MAX_THREADS];

/* Nanoseconds. */
static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void emit(void)
{
    if (strcmp(event, "ints") == 0)
        for (int number = 0; number < events; number++)
            lttng_ust_tracepoint(bench, ints, number, -number);
    else if (strcmp(event, "text") == 0)
        for (int number = 0; number < events; number++)
            lttng_ust_tracepoint(bench, text, number, -number, text);
    else
        for (int number = 0; number < events; number++)
            lttng_ust_tracepoint(bench, disabled, number, -number);
}

static void *run(void *argument)
{
    long thread = (long) argument;
    for (int batch = -WARM_UP; batch < batches; batch++) {
        usleep(pause_ms * 1000);
        pthread_barrier_wait(&barrier);
        double begin = read_clock(CLOCK_MONOTONIC);
        double cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
        emit();
        if (batch < 0)
            continue;
        times[thread].cpu[batch] = read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
        times[thread].begin[batch] = begin;
        times[thread].end[batch] = read_clock(CLOCK_MONOTONIC);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t ids[MAX_THREADS];
    if (argc != 7)
        return 2;
    event = argv[1];
    int threads = atoi(argv[2]);
    batches = atoi(argv[3]);
    events = atoi(argv[4]);
    pause_ms = atoi(argv[5]);
    text = argv[6];
    if (threads > MAX_THREADS || batches > MAX_BATCHES)
        return 2;
    if (threads == 1) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cpus);
        sched_setaffinity(0, sizeof(cpus), &cpus);
    }
    pthread_barrier_init(&barrier, NULL, threads);
    for (long thread = 0; thread < threads; thread++)
        pthread_create(&ids[thread], NULL, run, (void *) thread);
    for (int thread = 0; thread < threads; thread++)
        pthread_join(ids[thread], NULL);
    for (int batch = 0; batch < batches; batch++) {
        double cpu = 0, begin = times[0].begin[batch], end = times[0].end[batch];
        for (int thread = 0; thread < threads; thread++) {
            cpu += times[thread].cpu[batch];
            begin = times[thread].begin[batch] < begin ? times[thread].begin[batch] : begin;
            end = times[thread].end[batch] > end ? times[thread].end[batch] : end;
        }
        double all = (double) events * threads;
        printf("%f %f\n", cpu / all, all / (end - begin) * 1e9);
    }
    puts("end");
    fflush(stdout);
    /* Until the counters have been read. */
    getchar();
    return 0;
}
