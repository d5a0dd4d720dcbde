//! With real LTTng on one side and real Babeltrace on the other.

mod live;
mod order;
mod producer_2_15;
mod same_tree;
mod seek;
