/*
 * The traced program of the tests of instrumented functions: `program PART... PLUGIN...`. Each part calls functions a
 * known number of times; the program prints what only it knows.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {

volatile unsigned sink;
static volatile unsigned handled;

void leaf(void) { sink = sink + 1; }

void call_leaf(unsigned calls)
{
    while (calls-- > 0) {
        leaf();
    }
}

unsigned recurse(unsigned depth) { return depth == 0 ? 0 : 1 + recurse(depth - 1); }

void throw_below(unsigned depth)
{
    if (depth == 0) {
        throw std::runtime_error("thrown");
    }
    throw_below(depth - 1);
}

void catch_thrown(void)
{
    try {
        throw_below(9);
    } catch (const std::runtime_error &) {
        leaf();
    }
}

void at_thread_end(void) { leaf(); }

void before_main(void) { leaf(); }

void at_exit(void) { leaf(); }

void on_signal(int) { handled = handled + 1; }

} // extern "C"

struct ThreadEnd {
    unsigned calls = 0;
    ~ThreadEnd() { at_thread_end(); }
};
static thread_local ThreadEnd thread_end;

__attribute__((constructor(101))) static void construct(void) { before_main(); }

static void set_handler(int signal)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
}

extern "C" void run_threads(void)
{
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([] {
            thread_end.calls = 1000;
            call_leaf(thread_end.calls);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

/* Loads a plugin, calls its function and unloads it, so that the next one can take its place. */
extern "C" void call_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW);
    if (plugin == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    auto work = reinterpret_cast<void (*)(unsigned)>(dlsym(plugin, "plugin_work"));
    work(10);
    dlclose(plugin);
}

extern "C" void interrupt_often(void)
{
    struct itimerval timer = {{0, 50}, {0, 50}};
    set_handler(SIGALRM);
    setitimer(ITIMER_REAL, &timer, nullptr);
    while (handled < 2000) {
        leaf();
    }
    timer = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    printf("handled %u\n", handled);
}

extern "C" void fork_child(unsigned generations)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        call_leaf(5);
        if (generations > 1) {
            fork_child(generations - 1);
        }
        printf("child %d\n", static_cast<int>(getpid()));
        exit(0);
    }
    waitpid(child, nullptr, 0);
}

/* Calls functions until it is killed. */
extern "C" void call_for_ever(void)
{
    for (;;) {
        leaf();
        usleep(100);
    }
}

static void run(const std::string &part, const std::vector<std::string> &plugins)
{
    if (part == "leaves") {
        call_leaf(100000);
    } else if (part == "recursion") {
        recurse(500);
    } else if (part == "exceptions") {
        for (int n = 0; n < 10; n++) {
            catch_thrown();
        }
    } else if (part == "threads") {
        run_threads();
    } else if (part == "signals") {
        set_handler(SIGUSR1);
        for (int n = 0; n < 10; n++) {
            raise(SIGUSR1);
        }
    } else if (part == "plugins") {
        for (const std::string &plugin : plugins) {
            call_plugin(plugin.c_str());
        }
    } else if (part == "interrupts") {
        interrupt_often();
    } else if (part == "endless") {
        call_for_ever();
    } else if (part == "forks") {
        fork_child(2);
    }
}

int main(int argc, char **argv)
{
    std::vector<std::string> parts, plugins;
    atexit(at_exit);
    for (int n = 1; n < argc; n++) {
        (strchr(argv[n], '/') ? plugins : parts).emplace_back(argv[n]);
    }
    for (const std::string &part : parts) {
        run(part, plugins);
    }
    return 0;
}
