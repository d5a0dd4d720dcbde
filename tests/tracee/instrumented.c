/* Functions that are traced with -finstrument-functions: main calls outer, which calls inner twice. */
static __attribute__((noinline)) int inner(int number)
{
    return number + 1;
}

static __attribute__((noinline)) int outer(int number)
{
    return inner(number) + inner(number);
}

int main(void)
{
    return outer(1) == 4 ? 0 : 1;
}
