//! Where events come from. Each frontend is one module: it opens sessions at an
//! [`Outlet`](crate::queue::Outlet) and knows no relay.

pub mod replay;
pub mod tldrs;
