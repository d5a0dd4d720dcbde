/* A plugin of the traced program. PLUGIN is the name of its own function, which other plugins do not have. */
volatile unsigned plugin_sink;

void PLUGIN(void) { plugin_sink = plugin_sink + 1; }

void plugin_work(unsigned calls)
{
    while (calls-- > 0) {
        PLUGIN();
    }
}
