//! With real LTTng on one side and real Babeltrace on the other.

mod captures;
mod live;
mod same_tree;
mod seek;
