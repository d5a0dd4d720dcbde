// Events of a C++ program; built as `app.c` is, with c++.
#define RING_TARGET "app::cpp"
#include "trace_ring.h"

#include <string>

namespace {

RING_SITE(order_filled, RING_INFO, "order filled", {"quantity", RING_TYPE_I64}, {"symbol", RING_TYPE_STRING});

class Order {
public:
    Order(std::int64_t quantity, std::string symbol) : quantity_(quantity), symbol_(symbol) {}

    void fill() const
    {
        ring_event event;
        if (ring_event_begin(&event, &order_filled, symbol_.size())) {
            ring_put_i64(&event, quantity_);
            ring_put_text(&event, symbol_.data(), symbol_.size());
            ring_event_end(&event);
        }
    }

private:
    std::int64_t quantity_;
    std::string symbol_;
};

} // namespace

int main()
{
    Order(-5, "ABC").fill();
    ring_printf(RING_WARN, "%s %d", "filled", 1);
    return 0;
}
