/* Calls call_library of the shared object that it is linked with, if any, and of those whose paths are its arguments. */
#include <dlfcn.h>
#include <stdio.h>

void call_library(int number) __attribute__((weak));

int main(int argc, char **argv)
{
    if (call_library)
        call_library(0);
    for (int argument = 1; argument < argc; argument++) {
        void *library = dlopen(argv[argument], RTLD_NOW);
        void (*call)(int) = library ? (void (*)(int)) dlsym(library, "call_library") : NULL;

        if (!call) {
            fprintf(stderr, "located_caller: %s\n", dlerror());
            return 1;
        }
        call(2 * argument);
        dlclose(library);
    }
    return 0;
}
