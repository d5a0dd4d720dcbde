/*
 * A program to be compiled with -finstrument-functions. Each function is called a number of times that no other
 * function is called.
 */
static volatile unsigned sink;

static void escape(unsigned length)
{
    for (unsigned done = 0; done < length; done++)
        sink += done;
}

static void lookup(void) { escape(10); }

static void render(void)
{
    for (unsigned part = 0; part < 4; part++)
        escape(1000);
}

static void handle(unsigned number)
{
    lookup();
    if (number % 2 == 0)
        lookup();
    if (number % 4 == 0)
        render();
}

int main(void)
{
    for (unsigned number = 0; number < 20; number++)
        handle(number);
    return 0;
}
