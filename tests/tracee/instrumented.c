/*
 * Functions that are traced with -finstrument-functions: main calls outer, which calls inner twice. Then it opens the
 * plugins whose paths are its arguments, one after the other, and calls plugin_work of each.
 */
#include <dlfcn.h>

static __attribute__((noinline)) int inner(int number)
{
    return number + 1;
}

static __attribute__((noinline)) int outer(int number)
{
    return inner(number) + inner(number);
}

int main(int argc, char **argv)
{
    for (int argument = 1; argument < argc; argument++) {
        void *plugin = dlopen(argv[argument], RTLD_NOW);
        void (*work)(unsigned) = plugin ? (void (*)(unsigned)) dlsym(plugin, "plugin_work") : 0;

        if (!work)
            return 1;
        work(1);
        dlclose(plugin);
    }
    return outer(1) == 4 ? 0 : 1;
}
